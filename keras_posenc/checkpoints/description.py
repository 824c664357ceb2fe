"""Descriptions of models that were built here, as folders of Hugging Face."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.families.gpt2 import GPT2
from keras_posenc.checkpoints.families.llama import Llama, Mistral, Olmo2
from keras_posenc.checkpoints.families.modernbert import ModernBert
from keras_posenc.checkpoints.families.qwen import Qwen2, Qwen3
from keras_posenc.checkpoints.family import Family, Pooler, specs_in
from keras_posenc.checkpoints.folder import SETTINGS, WHOLE
from keras_posenc.checkpoints.parts import Parts, WrittenTensors
from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator
from keras_posenc.checkpoints.pretrained_model import PretrainedModel
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer
from keras_posenc.transformer._sublayers import make_activation
from keras_posenc.transformer.pooling import Pooling1D
from keras_posenc.transformer.transformer_decoder_model import (
    TransformerDecoderModel,
)
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
_LONGEST = 32_768  # positions, which rotary ones do not limit
_POOLINGS = ("first", "mean")
_PROBLEMS = {
    "linear": "regression",
    "sigmoid": "multi_label_classification",
    "softmax": "single_label_classification",
}


@dataclass(frozen=True)
class Described:
    """The files of a folder.

    Attributes:
        config: Its config.json.
        files: The contents of others, in JSON, by name.
        tensors: The tensors, by name.
    """

    config: dict[str, Any]
    files: dict[str, Any]
    tensors: dict[str, np.ndarray]


def described(model: Any) -> Described:
    """Returns the folder of a model of a known architecture."""
    tokenizer, core, after = _parts_of(model)
    family = _family_of(core)
    kind = next(iter(family.types))
    head = _head_of(after, type(family).__name__)
    # Before the config, which says it in its own words.
    if isinstance(core.intermediate_dim, list):
        raise ValueError(
            "`intermediate_dim` of the model must be one number for it to be "
            f"saved. Received: intermediate_dim={core.intermediate_dim!r}"
        )
    values = {**family.describe(core), **family.written(model)}
    if head.projection is not None:
        values |= family.describe_pooler(head.pooling, head.projection)
    config = Config(values, "config.json")
    reading = family.read(config)
    options = reading.options
    if reading.tells_texts_apart:
        options["separator_id"] = core.separator_id
    _check(core, kind, options)
    config.finish()
    if head.logits is not None and not (
        reading.pooler and _is_of(head, reading.pooler)
    ):
        raise _unknown_head(after, kind=type(family).__name__)
    tensors = WrittenTensors()
    is_decoder = isinstance(core, TransformerDecoderModel)
    prefix = family.prefix if after or is_decoder else ""
    parts = Parts(family, reading, tensors, prefix)
    family.match(core, parts)
    labels = getattr(model, "labels", None)
    names = _describe_head(head, family, parts, labels)
    files = {}
    if is_decoder:
        files = _describe_generator(model)
        end = "LMHeadModel" if isinstance(family, GPT2) else "ForCausalLM"
        names = {
            "architectures": [f"{type(family).__name__}{end}"],
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None if core.pad_id < 0 else core.pad_id,
        }
        if "n_positions" not in values:
            values["max_position_embeddings"] = _LONGEST
    elif tokenizer is not None:
        files = _describe_tokenizer(tokenizer, core)
    values = {"model_type": kind, "dtype": "float32", **values, **names}
    return Described(values, files, tensors.values)


def _family_of(core: Any) -> Family:
    if not isinstance(core, TransformerDecoderModel):
        return Bert() if core.norm.at == "after" else ModernBert()
    spec = specs_in({"attention": core.attention})[0]
    if core.norm.kind == "layer":
        return GPT2()
    if core.norm.at == "output":
        return Olmo2()
    if spec.query_key_norm:
        return Qwen3()
    if spec.use_bias and not core.use_bias:
        return Qwen2()
    return Llama() if spec.window is None else Mistral()


def _describe_generator(model: Any) -> dict[str, Any]:
    tokenizer = getattr(model, "source_tokenizer", None)
    if tokenizer is None:
        return {}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **model.special_tokens,
    }
    if model.chat_template is not None:
        settings["chat_template"] = model.chat_template
    return {WHOLE: tokenizer.tokenizer_json(), SETTINGS: settings}


def _parts_of(
    model: Any,
) -> tuple[Any, Any, Sequence[Any]]:
    """Returns the tokenizer or None, the encoder, and the layers after it."""
    if isinstance(model, TransformerEncoderModel | TransformerDecoderModel):
        return None, model, []
    if isinstance(model, PretrainedGenerator) and isinstance(
        model.model, TransformerDecoderModel
    ):
        return None, model.model, []
    if not isinstance(model, PretrainedModel):
        raise ValueError(
            "`model` must be a PretrainedModel, a PretrainedGenerator of a "
            "decoder, a TransformerEncoderModel or a TransformerDecoderModel. "
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


def _check(encoder: Any, kind: str, options: Mapping[str, Any]) -> None:
    """Raises `ValueError` unless an encoder computes what its options say."""
    is_decoder = isinstance(encoder, TransformerDecoderModel)
    owner = "decoder" if is_decoder else "encoder"
    for name, parameter in inspect.signature(type(encoder)).parameters.items():
        # A decoder has no token where it has padding.
        if name in _OF_NO_MATTER or (is_decoder and name == "pad_id"):
            continue
        value = options.get(name, parameter.default)
        known = _comparable(name, value, encoder)
        found = _comparable(name, getattr(encoder, name), encoder)
        if found != known:
            raise ValueError(
                f"`{name}` of the {owner} must be {known!r} for it to be saved "
                f"as model_type '{kind}'. Received: {name}={found!r}"
            )


def _comparable(name: str, value: Any, encoder: Any) -> Any:
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
                "head_dim": spec.head_dim
                or encoder.d_model // encoder.num_heads,
                "use_bias": encoder.use_bias
                if spec.use_bias is None
                else spec.use_bias,
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
    parts: Parts,
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
) -> dict[str, Any]:
    whole = tokenizer.tokenizer_json()
    for name, value, known in (
        ("num_separators", tokenizer.num_separators, [None, 1]),
        ("pad_id", tokenizer.pad_id, [encoder.pad_id]),
    ):
        if value not in known:
            raise ValueError(
                f"`{name}` of the tokenizer must be "
                f"{' or '.join(map(repr, known))}, for its ids to be those of "
                f"transformers. Received: {name}={value!r}"
            )
    frame = {
        "cls": [tokenizer.start_token, tokenizer.start_id],
        "sep": [tokenizer.end_token, tokenizer.end_id],
    }
    whole["post_processor"] = {"type": "BertProcessing", **frame}
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.split_on_cjk,
        "pad_token": tokenizer.pad_token,
        "unk_token": tokenizer.unknown_token,
        "cls_token": tokenizer.start_token,
        "sep_token": tokenizer.end_token,
        # Else transformers adds one, with an id beyond the table.
        "mask_token": "[MASK]" if "[MASK]" in tokenizer.vocabulary else None,
    }
    longest = tokenizer.max_length or tokenizer.sequence_length
    if longest is not None:
        settings["model_max_length"] = longest
    return {WHOLE: whole, SETTINGS: settings}
