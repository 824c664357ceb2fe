"""Saves a Keras model to a folder that Hugging Face's libraries load."""

import inspect
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import ACTIVATIONS, SIZES, Parts
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
    loaded as: `config.json`, `model.safetensors`, and, where the model starts
    with a tokenizer, `vocab.txt` and `tokenizer_config.json`.
    `load_hugging_face` reads the folder too.

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
    values = _describe(encoder)
    config = Config(values, "config.json")
    family = Bert()
    reading = family.read(config)
    config.finish()
    options = {**reading.options, "separator_id": encoder.separator_id}
    _check(encoder, options)
    parts = WrittenParts(family, reading, family.prefix if after else "")
    family.match(encoder, parts)
    labels = getattr(model, "labels", None)
    values = {
        "model_type": "bert",
        "dtype": "float32",
        **values,
        **_describe_head(after, parts, labels),
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


def _describe(encoder: TransformerEncoderModel) -> dict[str, Any]:
    """Returns the keys of a config whose options an encoder has, if BERT's."""
    position = encoder.input_position
    return {
        **{key: getattr(encoder, name) for name, key in SIZES.items()},
        "hidden_act": _name_of(encoder.activation),
        "layer_norm_eps": encoder.norm_epsilon,
        "hidden_dropout_prob": encoder.dropout,
        "attention_probs_dropout_prob": encoder.dropout,
        "pad_token_id": encoder.pad_id,
        "type_vocab_size": 2,
        "max_position_embeddings": getattr(position, "sequence_length", 1),
    }


def _name_of(activation: Any) -> str:
    for name, ours in ACTIVATIONS.items():
        if make_activation(ours) is activation:
            return name
    known = ", ".join(sorted(set(ACTIVATIONS.values())))
    raise ValueError(
        f"`activation` of the encoder must be one of {known}, for it to be "
        f"saved. Received: activation={activation!r}"
    )


def _check(
    encoder: TransformerEncoderModel, options: Mapping[str, Any]
) -> None:
    """Raises `ValueError` unless an encoder computes what its options say."""
    signature = inspect.signature(TransformerEncoderModel)
    for name, parameter in signature.parameters.items():
        if name in _OF_NO_MATTER:
            continue
        known = options.get(name, parameter.default)
        found = getattr(encoder, name)
        if name == "num_key_value_heads":
            known = known or encoder.num_heads
        elif name == "activation":
            known = make_activation(known)
        if _comparable(found) != _comparable(known):
            raise ValueError(
                f"`{name}` of the encoder must be {known!r} for it to be saved "
                f"as model_type 'bert'. Received: {name}={found!r}"
            )


def _comparable(value: Any) -> Any:
    if not isinstance(value, keras.Layer):
        return value
    config = value.get_config().items()
    matter = {key: value for key, value in config if key not in _OF_NO_MATTER}
    return type(value).__name__, matter


def _describe_head(
    layers: Sequence[Any], parts: "WrittenParts", labels: Sequence[str] | None
) -> dict[str, Any]:
    """Writes the layers after the encoder; returns their keys of the config."""
    if not layers:
        return {"architectures": ["BertModel"]}
    activation, left = "linear", [*layers]
    if type(left[-1]) is keras.layers.Activation:
        activation = left.pop().activation.__name__
    match left:
        case [
            Pooling1D(kind="first"),
            keras.layers.Dense() as pooler,
            keras.layers.Dense() as logits,
        ] if pooler.use_bias and pooler.activation is keras.activations.tanh:
            task = "Sequence"
            parts.projection(pooler, "bert.pooler.dense")
        case [keras.layers.Dense() as logits]:
            task = "Token"
        case _:
            raise _unknown_head(layers)
    if (
        activation not in _PROBLEMS
        or logits.activation is not keras.activations.linear
        or not logits.use_bias
        or (logits.units == 1 and activation == "softmax")
    ):
        raise _unknown_head(layers)
    parts.projection(logits, "classifier")
    labels = labels or [f"LABEL_{i}" for i in range(logits.units)]
    return {
        "architectures": [f"BertFor{task}Classification"],
        "problem_type": _PROBLEMS[activation],
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _unknown_head(layers: Sequence[Any]) -> ValueError:
    received = ", ".join(
        f"{type(layer).__name__} '{layer.name}'" for layer in layers
    )
    return ValueError(
        "After the encoder there must be BERT's classifier of texts or of "
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
    """The reverse of `Parts`: each method writes the tensors that it reads."""

    def __init__(self, family: Bert, reading: Any, prefix: str) -> None:
        self.tensors: dict[str, np.ndarray] = {}  # by name
        super().__init__(family, reading, self.tensors, prefix)

    def first_type(self, width: int, second: Any) -> Any:
        """Writes token types; positions include type 0, which is zeros."""
        rows = np.zeros((self.reading.types, width), "float32")
        if second is not None:
            rows[1] = _array(second.embedding)
        self.tensors[f"{self.name('token_type')}.weight"] = rows
        return 0.0

    def table(self, layer: Any, part: str, **how: Any) -> None:
        self._put(layer, f"{self.name(part)}.weight", layer.embeddings)

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: Any = None,
        factors: Any = None,
    ) -> None:
        count = len(parts)  # of one size each
        kernels = np.split(_array(layer.kernel).T, count)
        biases = np.split(_array(layer.bias), count)
        for part, kernel, bias in zip(parts, kernels, biases, strict=True):
            name = self.name(part, number)
            self._put(layer, f"{name}.weight", kernel)
            self._put(layer, f"{name}.bias", bias)

    def norm(
        self, layer: Any, part: str, number: int | None = None, **how: Any
    ) -> None:
        name = self.name(part, number)
        self._put(layer, f"{name}.weight", layer.gamma)
        self._put(layer, f"{name}.bias", layer.beta)

    def projection(self, layer: keras.layers.Dense, name: str) -> None:
        """Writes a projection after the encoder, under this name."""
        self._put(layer, f"{name}.weight", _array(layer.kernel).T)
        self._put(layer, f"{name}.bias", layer.bias)

    def _put(self, layer: Any, name: str, values: Any) -> None:
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ValueError(
                f"Layer '{layer.path}' is quantized ({mode}), and a checkpoint "
                "holds floats: save the model that it was quantized from"
            )
        # safetensors writes arrays in memory order: transposed ones wrongly.
        self.tensors[name] = np.ascontiguousarray(_array(values))


def _array(values: Any) -> np.ndarray:
    """Returns an array of floats of at least 32 bits."""
    array = keras.ops.convert_to_numpy(values)
    return array if array.dtype == "float64" else array.astype("float32")
