"""Saves a Keras model to a folder that Hugging Face's libraries load."""

import inspect
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.families.modernbert import ModernBert
from keras_posenc.checkpoints.family import (
    Family,
    Parts,
    Pooler,
    Reading,
    sizes_of,
    specs_in,
)
from keras_posenc.checkpoints.folder import SETTINGS, VOCABULARY
from keras_posenc.checkpoints.pretrained_model import PretrainedModel
from keras_posenc.checkpoints.tensors import WHOLE
from keras_posenc.publish import publish, staging_in, writing_to
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer
from keras_posenc.transformer._sublayers import make_activation
from keras_posenc.transformer.pooling import Pooling1D
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

# Options of an encoder without effect on its outputs, dropout included.
_OF_NO_MATTER = frozenset(
    f"{of}_{what}"
    for of in ("kernel", "bias", "embeddings")
    for what in ("initializer", "regularizer", "constraint")
) | {"dropout", "dtype", "keep_inner_padding", "name", "skip_padding"}
_OF_NO_MATTER |= {"trainable", "unknown"}
_POOLINGS = ("first", "mean")
_PROBLEMS = {
    "linear": "regression",
    "sigmoid": "multi_label_classification",
    "softmax": "single_label_classification",
}


def save_hugging_face(
    model: keras.Model, folder: str | os.PathLike[str]
) -> Path:
    """Writes a model that `transformers` loads, with the same outputs.

    A model that computes what BERT does is saved as BERT, whatever it was
    loaded as; one that computes what ModernBERT does is saved as ModernBERT:
    `config.json`, `model.safetensors`, and, where the model starts with a
    tokenizer, `vocab.txt` and `tokenizer_config.json`. `load_hugging_face`
    reads the folder too.

    Our models have a pooler only in a classifier: for other models the pooler
    of `transformers`'s `BertModel` gets random weights. LoRA is merged into
    its kernels. Only models of pairs have token types; else the embedding of
    type 0 is written as zeros.

    Args:
        model: A `TransformerEncoderModel`; or a `PretrainedModel` of a
            `WordpieceTokenizer` or none, an encoder, and nothing or a
            classifier of texts or tokens, as `load_hugging_face` makes one.
        folder: A folder that does not exist or is empty. It appears complete
            or not at all.

    Returns:
        The path of the folder.

    Raises:
        ExportError: The folder cannot be written to, or the disk is full.
        FileExistsError: The folder is not empty.
        ImportError: The library `safetensors` is missing.
        ValueError: Such a checkpoint cannot hold a part of the model, which
            the message names.

    Example:
        >>> import keras_posenc as kp
        >>> model = kp.load_hugging_face("bert-base-uncased")  # doctest: +SKIP
        >>> kp.save_hugging_face(model, "mine")  # doctest: +SKIP
        PosixPath('mine')
    """
    path = Path(folder).expanduser()
    tokenizer, encoder, after = _parts_of(model)
    is_modern = encoder.norm.at != "after"
    kind = "modernbert" if is_modern else "bert"
    family: Family = ModernBert() if is_modern else Bert()
    head = _head_of(after, type(family).__name__)
    values = family.describe(encoder)
    if head.projection is not None:
        values |= family.describe_pooler(head.pooling, head.projection)
    config = Config(values, "config.json")
    reading = family.read(config)
    options = reading.options
    if reading.tells_texts_apart:
        options["separator_id"] = encoder.separator_id
    _check(encoder, kind, options)
    config.finish()
    if reading.pooler is None or not (
        head.logits is None or _is_of(head, reading.pooler)
    ):
        raise _unknown_head(after, kind=type(family).__name__)
    parts = WrittenParts(family, reading, family.prefix if after else "")
    family.match(encoder, parts)
    values = {
        "model_type": kind,
        "dtype": "float32",
        **values,
        **_describe_head(head, family, parts, getattr(model, "labels", None)),
    }
    files = {"config.json": _json(values)}
    if tokenizer is not None:
        files |= _describe_tokenizer(tokenizer, encoder)
    _write(path, files, parts.tensors)
    return path


def _parts_of(
    model: Any,
) -> tuple[Any, TransformerEncoderModel, Sequence[Any]]:
    """Returns the tokenizer or None, the encoder, and the layers after it."""
    if isinstance(model, TransformerEncoderModel):
        return None, model, []
    if not isinstance(model, PretrainedModel):
        raise ValueError(
            "`model` must be a PretrainedModel or a TransformerEncoderModel. "
            f"Received: model of type {type(model).__name__}"
        )
    match model.layers:
        case [TransformerEncoderModel() as encoder, *after]:
            return None, encoder, after
        case [
            WordpieceTokenizer() as tokenizer,
            TransformerEncoderModel() as encoder,
            *after,
        ]:
            return tokenizer, encoder, after
    raise ValueError(
        "`model` must begin with a TransformerEncoderModel, or with a "
        "WordpieceTokenizer and one. Received: "
        + ", ".join(type(layer).__name__ for layer in model.layers)
    )


def _check(
    encoder: TransformerEncoderModel, kind: str, options: Mapping[str, Any]
) -> None:
    """Raises `ValueError` unless an encoder computes what its options say."""
    signature = inspect.signature(TransformerEncoderModel)
    for name, parameter in signature.parameters.items():
        if name in _OF_NO_MATTER:
            continue
        value = options.get(name, parameter.default)
        known = _comparable(name, value, encoder)
        found = _comparable(name, getattr(encoder, name), encoder)
        if found != known:
            raise ValueError(
                f"`{name}` of the encoder must be {known!r} for it to be saved "
                f"as model_type '{kind}'. Received: {name}={found!r}"
            )


def _comparable(name: str, value: Any, encoder: TransformerEncoderModel) -> Any:
    """Returns a value in which equal options are equal, however written."""
    if name == "activation":
        return make_activation(value)
    if name == "attention":
        each = [
            vars(spec)
            | {
                "position": _of_layer(spec.position),
                "num_key_value_heads": spec.num_key_value_heads
                or encoder.num_heads,
            }
            for spec in specs_in({name: value})
        ]
        return each if any(x != each[0] for x in each) else each[0]
    return _of_layer(value)


def _of_layer(value: Any) -> Any:
    if not isinstance(value, keras.Layer):
        return value
    config = value.get_config().items()
    matter = {key: value for key, value in config if key not in _OF_NO_MATTER}
    return type(value).__name__, matter


@dataclass(frozen=True)
class _Head:
    """The layers after an encoder: of a classifier, as `heads` makes them.

    Attributes:
        pooling: As in `Pooler`; None for a token classifier.
        projection: Of the pooler, or None.
        norm: The norm after it, or None.
        logits: The last projection; None where no layer follows the encoder.
        problem: The kind of scores, as the config names it.
    """

    pooling: str | None = None
    projection: Any = None
    norm: Any = None
    logits: Any = None
    problem: str | None = None


def _head_of(layers: Sequence[Any], kind: str) -> _Head:
    if not layers:
        return _Head()
    left = list(layers)
    activation, pooling = "linear", None
    if type(left[-1]) is keras.layers.Activation:
        activation = left.pop().activation.__name__
    if left and isinstance(left[0], Pooling1D) and left[0].kind in _POOLINGS:
        pooling = left[0].kind
    *before, logits = left[pooling is not None :] or [None]
    kinds = [keras.layers.Dense, keras.layers.LayerNormalization]
    if (
        not isinstance(logits, keras.layers.Dense)
        or len(before) > len(kinds)
        or not all(map(isinstance, before, kinds))
    ):
        raise _unknown_head(layers, kind=kind)
    projection, norm = [*before, None, None][:2]
    if (
        activation not in _PROBLEMS
        or logits.activation is not keras.activations.linear
        or not logits.use_bias
        or (logits.units == 1 and activation == "softmax")
    ):
        raise _unknown_head(layers, kind=kind)
    return _Head(pooling, projection, norm, logits, _PROBLEMS[activation])


def _is_of(head: _Head, pooler: Pooler) -> bool:
    """Returns whether a classifier has the layers of its family."""
    if head.pooling is None and not pooler.of_tokens:
        return head.projection is None
    norm = head.norm
    return (
        head.projection is not None
        and head.pooling in (None, pooler.pooling)
        and head.projection.use_bias == pooler.use_bias
        and head.projection.activation is make_activation(pooler.activation)
        and (norm is None) == (pooler.norm is None)
        and (
            norm is None
            or (
                norm.epsilon == pooler.norm_epsilon
                and norm.scale
                and norm.center
                and not norm.rms_scaling
            )
        )
    )


def _describe_head(
    head: _Head,
    family: Family,
    parts: "WrittenParts",
    labels: Sequence[str] | None,
) -> dict[str, Any]:
    """Writes the layers after the encoder; returns their keys of the config."""
    name = type(family).__name__
    if head.logits is None:
        return {"architectures": [f"{name}Model"]}
    pooler = parts.reading.pooler
    assert pooler is not None
    if head.projection is not None:
        parts.projection(head.projection, pooler.part)
    if head.norm is not None:
        assert pooler.norm is not None
        parts.norm_called(head.norm, pooler.norm)
    parts.projection(head.logits, family.classifier)
    labels = labels or [f"LABEL_{i}" for i in range(head.logits.units)]
    task = "Token" if head.pooling is None else "Sequence"
    return {
        "architectures": [f"{name}For{task}Classification"],
        "problem_type": head.problem,
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _unknown_head(layers: Sequence[Any], *, kind: str) -> ValueError:
    received = ", ".join(
        f"{type(layer).__name__} '{layer.name}'" for layer in layers
    )
    return ValueError(
        f"After the encoder there must be {kind}'s classifier of texts or of "
        "tokens. A sentence encoder cannot be saved; save its encoder: "
        f"save_hugging_face(model.encoder, folder). Received: {received}"
    )


def _describe_tokenizer(
    tokenizer: WordpieceTokenizer, encoder: TransformerEncoderModel
) -> dict[str, str]:
    """Returns the files of a tokenizer, by name."""
    vocabulary = tokenizer.vocabulary
    framing = {
        "pad_token": tokenizer.pad_token,
        "unk_token": tokenizer.unknown_token,
        "cls_token": tokenizer.start_token,
        "sep_token": tokenizer.end_token,
        "mask_token": "[MASK]" if "[MASK]" in vocabulary else None,
    }
    spelled = sorted(token for token in framing.values() if token is not None)
    given = tokenizer.special_tokens
    for name, value, known in (
        ("added_tokens", tokenizer.added_tokens, [()]),
        ("special_tokens", given and sorted(given), [None, spelled]),
        ("normalization", tokenizer.normalization, ["bert"]),
        ("num_separators", tokenizer.num_separators, [None, 1]),
        ("pad_id", tokenizer.pad_id, [encoder.pad_id]),
    ):
        if value not in known:
            raise ValueError(
                f"`{name}` of the tokenizer must be "
                f"{' or '.join(map(repr, known))}, for its ids to be those of "
                f"transformers. Received: {name}={value!r}"
            )
    broken = [token for token in vocabulary if token.splitlines() != [token]]
    if broken:
        raise ValueError(
            f"`vocabulary` of the tokenizer must hold no line breaks, for "
            f"{VOCABULARY} has one token a line. Received: {broken[0]!r}"
        )
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.split_on_cjk,
        **framing,
    }
    longest = tokenizer.max_length or tokenizer.sequence_length
    if longest is not None:
        settings["model_max_length"] = longest
    return {
        VOCABULARY: "".join(f"{token}\n" for token in vocabulary),
        SETTINGS: _json(settings),
    }


def _write(
    folder: Path, files: Mapping[str, str], tensors: Mapping[str, Any]
) -> None:
    """Writes a folder of files: all of them or none."""
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ImportError(
            "Checkpoints need the library safetensors: "
            "pip install 'keras-posenc[checkpoints]'"
        ) from error
    folder = folder.resolve()  # a link stays
    _check_free(folder)
    with staging_in(folder.parent) as staged, writing_to(folder.parent):
        staged.mkdir()
        for name, text in files.items():
            (staged / name).write_text(text, encoding="utf-8", newline="\n")
        try:
            # This tells transformers whose axis order the tensors have.
            save_file(dict(tensors), staged / WHOLE, metadata={"format": "pt"})
        except SafetensorError as error:  # whatever the system reports
            raise OSError(str(error)) from error
        shutil.copymode(staged / "config.json", staged / WHOLE)  # not 0600
        try:
            publish(staged, folder)
        except OSError:
            _check_free(folder)  # another process was faster
            raise


def _check_free(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(
            f"'{folder}' is not empty, and nothing is overwritten: "
            "`folder` must be new or empty"
        )


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


class WrittenParts(Parts):
    """The reverse of `Parts`: each method writes the tensors that it reads.

    Attributes:
        tensors: All tensors, by name.
    """

    def __init__(self, family: Family, reading: Reading, prefix: str) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        super().__init__(family, reading, self.tensors, prefix)

    def first_type(self, width: int, second: Any) -> Any:
        """Writes token types, with zeros for type 0; returns 0.

        The positions (or ids) of a model include its type 0 already.
        """
        if "token_type" in self.reading.names:
            name = f"{self.name('token_type')}.weight"
            rows = np.zeros((self.reading.types or 1, width), "float32")
            if second is not None:
                rows[1] = _array(second.embedding)
            self.tensors[name] = rows
        return 0.0

    def table(self, layer: Any, part: str, **how: Any) -> None:
        """Writes a table; families that scale theirs are not supported."""
        self._put(layer, part, f"{self.name(part)}.weight", layer.embeddings)

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: tuple[int, int] | None = None,
        factors: Any = None,
    ) -> None:
        """Writes a projection; families that scale theirs are not supported."""
        ends = np.cumsum(sizes_of(layer, len(parts), heads))[:-1]
        weights = {"weight": np.split(_array(layer.kernel).T, ends)}
        if layer.bias is not None:
            weights["bias"] = np.split(_array(layer.bias), ends)
        for kind, values in weights.items():
            for part, value in zip(parts, values, strict=True):
                name = f"{self.name(part, number)}.{kind}"
                self._put(layer, part, name, value)

    def halves(self, layers: Sequence[Any], part: str, number: int) -> None:
        """Writes two projections as one tensor."""
        name = self.name(part, number)
        weights = {"weight": [_array(layer.kernel).T for layer in layers]}
        if layers[0].bias is not None:
            weights["bias"] = [_array(layer.bias) for layer in layers]
        for kind, values in weights.items():
            both = np.concatenate(values)
            for layer in layers:
                self._put(layer, part, f"{name}.{kind}", both)

    def norm(
        self, layer: Any, part: str, number: int | None = None, **how: Any
    ) -> None:
        """Writes a norm with an offset."""
        name = self.name(part, number)
        self._put(layer, part, f"{name}.weight", layer.gamma)
        self._put(layer, part, f"{name}.bias", layer.beta)

    def norm_called(self, layer: Any, name: str) -> None:
        """Writes a norm after the encoder, under this name."""
        self._put(layer, name, f"{name}.weight", layer.gamma)
        self._put(layer, name, f"{name}.bias", layer.beta)

    def projection(self, layer: keras.layers.Dense, name: str) -> None:
        """Writes a projection after the encoder, under this name."""
        self._put(layer, name, f"{name}.weight", _array(layer.kernel).T)
        if layer.bias is not None:
            self._put(layer, name, f"{name}.bias", layer.bias)

    def _put(self, layer: Any, part: str, name: str, values: Any) -> None:
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ValueError(
                f"Layer '{layer.path}' is quantized ({mode}), and a checkpoint "
                "holds floats: save the model that it was quantized from"
            )
        values = _array(values)
        if name.endswith(".bias") and part in self.reading.without_bias:
            if np.any(values):
                raise ValueError(
                    f"The offsets of layer '{layer.path}' must be 0, for "
                    f"there is no tensor '{name}'. Received: up to "
                    f"{np.abs(values).max():g}"
                )
            return
        # safetensors writes arrays in memory order: transposed ones wrongly.
        self.tensors[name] = np.ascontiguousarray(values)


def _array(values: Any) -> np.ndarray:
    """Returns an array of floats of at least 32 bits."""
    array = keras.ops.convert_to_numpy(values)
    return array if array.dtype == "float64" else array.astype("float32")
