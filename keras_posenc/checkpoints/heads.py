"""The layers after an encoder that classify."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import MODULES, Folder
from keras_posenc.checkpoints.parts import keep_zero
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer._sublayers import make_activation, make_norm
from keras_posenc.transformer.pooling import Pooling1D
from keras_posenc.transformer.specs import Norm

PROMPTS = "config_sentence_transformers.json"
_SEVERAL = "multi_label_classification"
SEQUENCE, _TOKEN = "ForSequenceClassification", "ForTokenClassification"
_IMAGE = "ForImageClassification"
TASKS = (SEQUENCE, _TOKEN, _IMAGE)
# Endings of class names whose heads, if any, are not loaded.
_ENCODERS = ("Model", "ForMaskedLM", "ForPreTraining", "LMHeadModel")
IDENTITY = "torch.nn.modules.linear.Identity"
# Last activations of cross-encoders: Keras's names by PyTorch's.
_SCORINGS = {
    IDENTITY: "linear",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Tanh": "tanh",
}


def labels_of(
    architecture: str | None, values: Mapping[str, Any]
) -> list[str] | None:
    """Returns the names of a checkpoint's classes, or None without any."""
    if architecture is None or not architecture.endswith(TASKS):
        return None
    config = Config(values, "config.json")
    names = config.part("id2label", {}).values
    if not names:
        return [f"LABEL_{i}" for i in range(config.size("num_labels", 2))]
    labels = [names.get(str(i)) for i in range(len(names))]
    if not all(isinstance(label, str | int) for label in labels):
        raise config.wrong("id2label", "it must name each number from 0 on")
    return [str(label) for label in labels]


def architecture_of(values: Mapping[str, Any]) -> str | None:
    """Returns the class that the checkpoint was saved from, or None."""
    config = Config(values, "config.json")
    names = config.take("architectures", None, list, type(None))
    name = names[0] if names else None
    known = (*_ENCODERS, *TASKS)
    if name is None or str(name).endswith(known):
        return name
    raise config.wrong(
        "architectures",
        f"'{name}' is not supported; `encoder_only=True` loads the encoder of "
        f"it. Supported names end in {', '.join(known)}",
    )


def scoring_of(folder: Folder, values: Mapping[str, Any]) -> str | None:
    """Returns the activation of a cross-encoder of sentence-transformers."""
    configs, key = [], "activation_fn"
    if folder.has(PROMPTS):
        configs.append(Config(folder.mapping(PROMPTS), folder.path / PROMPTS))
        configs[0].expect("default_prompt_name", None)
    config = Config(values, folder.path / "config.json")
    if "sentence_transformers" in values:
        configs.append(config.part("sentence_transformers"))
    else:  # before version 4 of sentence-transformers
        config.rename("sbert_ce_default_activation_function", key)
        configs.append(config)
    for each in configs:
        activation = each.expect(key, None, *_SCORINGS)
        if activation is not None:
            return _SCORINGS[activation]
    return None


def is_cross_encoder(folder: Folder) -> bool:
    """Returns whether `modules.json` is that of a cross-encoder.

    sentence-transformers writes it so from version 5.4 on.
    """
    if not folder.has(MODULES):
        return False
    modules = folder.json(MODULES)
    return (
        isinstance(modules, list)
        and len(modules) == 1
        and isinstance(modules[0], dict)
        and str(modules[0].get("type")).rpartition(".")[2] == "Transformer"
        and modules[0].get("path", "") == ""
    )


def classification(
    architecture: str,
    labels: Sequence[str],
    loading: Any,
    width: int,
    scoring: str | None = None,
) -> list[Any]:
    """Returns the layers from contextual embeddings to the scores of labels.

    `loading` is a `Loading`; `scoring` is the last activation, None for the
    usual one.
    """
    family, tensors = loading.family, loading.tensors
    is_image = architecture.endswith(_IMAGE)
    pooler = loading.reading.pooler
    if (family.pooling if is_image else pooler) is None:
        raise ValueError(
            f"config.json, key 'architectures': '{architecture}' is not "
            "supported; `encoder_only=True` loads the encoder of it"
        )
    layers: list[Any] = []
    is_sequence = architecture.endswith(SEQUENCE)
    classifier = family.classifier if is_sequence else "classifier"
    if pooler is not None and (is_sequence or pooler.of_tokens):
        part = pooler.part.format(prefix=family.prefix_in(tensors))
        how = pooler.activation, pooler.use_bias
        layers.append(_filled(tensors, part, width, width, *how, name="pooler"))
        if pooler.norm is not None:
            spec = Norm(epsilon=pooler.norm_epsilon)
            norm = make_norm(spec, None, "pooler_norm")
            norm.build((None, width))
            norm.gamma.assign(tensors.take(f"{pooler.norm}.weight", (width,)))
            if pooler.norm in loading.reading.without_bias:
                keep_zero(norm.beta)
            else:
                norm.beta.assign(tensors.take(f"{pooler.norm}.bias", (width,)))
            layers.append(norm)
    if pooler is not None and is_sequence:
        # "late" is the mean of logits, which are linear: those of the mean.
        is_late = pooler.pooling == "late"
        kind = "mean" if is_late else pooler.pooling
        place = len(layers) if is_late else 0
        layers.insert(place, Pooling1D(kind, name="pooling"))
    if is_image and family.pooling is not None:
        layers.append(Pooling1D(family.pooling, name="pooling"))
        _, width = layers[-1].compute_output_shape((None, None, width))
    logits = _filled(
        tensors, classifier, width, len(labels), None, name="logits"
    )
    kind = Config(loading.values, "config.json").expect(
        "problem_type",
        None,
        "single_label_classification",
        _SEVERAL,
        "regression",
    )
    if scoring is None:
        one_by_one = kind == _SEVERAL or len(labels) == 1
        scoring = "sigmoid" if one_by_one else "softmax"
        scoring = "linear" if kind == "regression" else scoring
    if scoring == "linear":
        return [*layers, logits]
    return [*layers, logits, keras.layers.Activation(scoring, name="scores")]


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
    """Returns a projection with the weights of a checkpoint."""
    # Read first, so that a wrong size raises before such a layer is made.
    kernel = tensors.take(f"{part}.weight", (units, width)).T
    layer = keras.layers.Dense(
        units,
        activation=None if activation is None else make_activation(activation),
        use_bias=use_bias,
        name=name,
    )
    layer.build((None, width))
    layer.kernel.assign(kernel)
    if use_bias:
        layer.bias.assign(tensors.take(f"{part}.bias", (units,)))
    return layer
