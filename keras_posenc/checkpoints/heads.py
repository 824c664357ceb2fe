"""What is behind an encoder: labels, or the vector of a sentence."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import Family
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer._sublayers import make_activation
from keras_posenc.transformer.first_token_pooling import FirstTokenPooling1D
from keras_posenc.transformer.l2_normalization import L2Normalization
from keras_posenc.transformer.masked_average_pooling import (
    MaskedAveragePooling1D,
)
from keras_posenc.transformer.masked_max_pooling import MaskedMaxPooling1D

MODULES = "modules.json"
_SEQUENCE, _TOKEN = "ForSequenceClassification", "ForTokenClassification"
_IMAGE = "ForImageClassification"
_TASKS = (_SEQUENCE, _TOKEN, _IMAGE)
# What encoders are published with that nothing behind them has a use for.
_ENCODERS = ("Model", "ForMaskedLM", "ForPreTraining", "LMHeadModel")
_POOLINGS = {
    "pooling_mode_cls_token": FirstTokenPooling1D,
    "pooling_mode_mean_tokens": MaskedAveragePooling1D,
    "pooling_mode_max_tokens": MaskedMaxPooling1D,
}
_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
}


def labels_of(
    architecture: str | None, values: Mapping[str, Any]
) -> list[str] | None:
    """The names of the classes that a checkpoint tells apart, or None."""
    if architecture is None or not architecture.endswith(_TASKS):
        return None
    names = values.get("id2label") or {
        str(i): f"LABEL_{i}" for i in range(values.get("num_labels", 2))
    }
    try:
        return [str(names[str(i)]) for i in range(len(names))]
    except (KeyError, TypeError):
        raise ValueError(
            "config.json, key 'id2label': it must give the numbers from 0 on "
            f"names, and is {names!r}"
        ) from None


def architecture_of(values: Mapping[str, Any]) -> str | None:
    """The class that the checkpoint was saved from, if it is said.

    Raises:
        ValueError: It answers something that is not supported.
    """
    names = values.get("architectures") or [None]
    name = names[0]
    if name is None or str(name).endswith((*_ENCODERS, *_TASKS)):
        return name
    raise ValueError(
        f"config.json, key 'architectures': '{name}' is not supported. An "
        f"encoder ends in {', '.join((*_ENCODERS, *_TASKS))}"
    )


def classification(
    architecture: str,
    labels: Sequence[str],
    values: Mapping[str, Any],
    family: Family,
    tensors: Tensors,
    width: int,
) -> list[Any]:
    """Layers from contextual embeddings to the scores of labels."""
    is_image = architecture.endswith(_IMAGE)
    if (family.pooling if is_image else family.pooler) is None:
        raise ValueError(
            f"config.json, key 'architectures': '{architecture}' is not "
            "supported; encoder_only=True loads the encoder of it"
        )
    layers: list[Any] = []
    classifier = "classifier"
    if architecture.endswith(_SEQUENCE) and family.pooler is not None:
        part, activation = family.pooler
        classifier = family.classifier
        layers.append(FirstTokenPooling1D(name="pooling"))
        layers.append(
            _filled(tensors, part, width, width, activation, name="pooler")
        )
    if is_image:
        layers.append(family.pooling(name="pooling"))
        _, width = layers[-1].compute_output_shape((None, None, width))
    logits = _filled(
        tensors, classifier, width, len(labels), None, name="logits"
    )
    kind = values.get("problem_type")
    if kind == "regression":
        return [*layers, logits]
    one_by_one = kind == "multi_label_classification" or len(labels) == 1
    return [
        *layers,
        logits,
        keras.layers.Activation(
            "sigmoid" if one_by_one else "softmax", name="scores"
        ),
    ]


def sentence_embedding(folder: Folder, width: int) -> list[Any]:
    """Layers of `sentence_transformers` behind its first one, the encoder.

    Raises:
        ValueError: One that is not known here.
    """
    modules = folder.json(MODULES)
    if not isinstance(modules, list) or not all(
        isinstance(each, dict) and isinstance(each.get("type"), str)
        for each in modules
    ):
        raise ValueError(
            f"'{folder.path / MODULES}' must be a list of modules, each with "
            "its type"
        )
    makers: dict[str, Callable[[str, int], list[Any]]] = {
        "Transformer": lambda path, width: [],
        "Pooling": functools.partial(_pooling, folder),
        "Normalize": _normalization,
        "Dense": functools.partial(_dense, folder),
    }
    layers: list[Any] = []
    for number, module in enumerate(modules):
        kind = module["type"].rpartition(".")[2]
        if kind not in makers or (kind == "Transformer") != (number == 0):
            raise ValueError(
                f"'{folder.path / MODULES}': module {number}, "
                f"{module['type']}, is not supported. First comes Transformer, "
                "then Pooling, and behind it Normalize and Dense may follow"
            )
        made = makers[kind](str(module.get("path", "")), width)
        layers += made
        width = made[-1].units if kind == "Dense" else width
    return layers


def _pooling(folder: Folder, path: str, width: int) -> list[Any]:
    name = f"{path}/config.json"
    config = Config(folder.mapping(name), folder.path / name)
    config.take("word_embedding_dimension", width)
    config.take("embedding_dimension", width)
    config.expect("include_prompt", True)
    mode = config.take("pooling_mode", None)
    chosen = [key for key in _POOLINGS if config.take(key, False)]
    if isinstance(mode, str):
        by_name = {key.split("_")[2]: key for key in _POOLINGS}
        chosen = [by_name.get(mode, mode)]
    for key in ("mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"):
        config.expect(f"pooling_mode_{key}", False)
    config.finish()
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise ValueError(
            f"'{folder.path / name}' must choose one of {', '.join(_POOLINGS)}."
            f" It chooses {', '.join(chosen) or 'none'}"
        )
    return [_POOLINGS[chosen[0]](name="pooling")]


def _normalization(path: str, width: int) -> list[Any]:
    return [L2Normalization(name="normalization")]


def _dense(folder: Folder, path: str, width: int) -> list[Any]:
    name = f"{path}/config.json"
    config = Config(folder.mapping(name), folder.path / name)
    config.expect("in_features", width)
    config.take("module_input_name", None)
    config.take("module_output_name", None)
    units = config.size("out_features")
    has_bias = config.expect("bias", True, False)
    activation = config.choose(
        "activation_function", _ACTIVATIONS, "torch.nn.modules.activation.Tanh"
    )
    config.finish()
    tensors = Tensors(Folder(folder.file(name).parent))
    layer = _filled(
        tensors, "linear", width, units, activation, has_bias, name="dense"
    )
    tensors.finish([])
    return [layer]


def _filled(
    tensors: Tensors,
    part: str,
    width: int,
    units: int,
    activation: str | None,
    use_bias: bool = True,
    *,
    name: str,
) -> keras.layers.Dense:
    """A projection with the weights of a checkpoint."""
    layer = keras.layers.Dense(
        units,
        activation=None if activation is None else make_activation(activation),
        use_bias=use_bias,
        name=name,
    )
    layer.build((None, width))
    layer.kernel.assign(tensors.take(f"{part}.weight", (units, width)).T)
    if use_bias:
        layer.bias.assign(tensors.take(f"{part}.bias", (units,)))
    return layer
