"""The layers after an encoder that make one vector of a text.

They are those of sentence-transformers, in its order.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import MODULES, Folder
from keras_posenc.checkpoints.heads import IDENTITY, PROMPTS, _filled
from keras_posenc.checkpoints.parts import array_of
from keras_posenc.checkpoints.pretrained_model import PretrainedModel
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.checkpoints.writing import write_json, write_tensors
from keras_posenc.checks import check_choice, check_positive_int
from keras_posenc.text.files import shown
from keras_posenc.transformer.pooling import Pooling1D
from keras_posenc.transformer.vectors import (
    BinaryQuantization,
    Int8Quantization,
    L2Normalization,
    Truncation,
)

# Modes of pooling, in the order in which their vectors are concatenated where
# a config has a key for each.
_POOLINGS = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_length",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_ACTIVATIONS = {
    IDENTITY: None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
}
OUTPUTS = ("float32", "int8", "binary")
_QUANTIZATIONS = {"int8": Int8Quantization, "binary": BinaryQuantization}
# sentence-transformers gives these prompts to every model, without a text.
_USUAL = ("query", "document")


def sentence_embedding(
    folder: Folder,
    width: int,
    *,
    prompts: Mapping[str, str] | None = None,
    truncate_dim: int | None = None,
    output: str = "float32",
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the layers after the encoder, and what is kept of the prompts."""
    texts, default, own_dim = _prompts(folder, prompts)
    modules = folder.json(MODULES)
    if not isinstance(modules, list) or not all(
        isinstance(each, dict) and isinstance(each.get("type"), str)
        for each in modules
    ):
        raise ValueError(
            f"'{folder.path / MODULES}' must be a list of modules, each with "
            "its type"
        )
    makers: dict[str, Callable[[Folder, str, int, str], Any]] = {
        "Pooling": _pooling,
        "Normalize": _normalization,
        "Dense": _dense,
    }
    kinds = [
        module["type"].rpartition(".")[2]
        if module["type"].startswith("sentence_transformers.")
        else module["type"]
        for module in modules
    ]
    known = ["Transformer", *makers]
    if unknown := [each for each in kinds if each not in known]:
        raise ValueError(
            f"'{folder.path / MODULES}': the module {shown(unknown[0])} is not "
            f"supported, only {', '.join(known)}. Without it, "
            "`encoder_only=True` loads the encoder"
        )
    if (
        kinds[:2] != ["Transformer", "Pooling"]
        or "Transformer" in kinds[2:]
        or modules[0].get("path", "") != ""
    ):
        raise ValueError(
            f"'{folder.path / MODULES}': the modules {', '.join(kinds)} are "
            "not supported. Supported are Transformer, in the folder itself, "
            "then Pooling, then any of Normalize, Dense and Pooling"
        )
    dim = own_dim if truncate_dim is None else truncate_dim
    added: list[tuple[str, Callable[[str], Any]]] = []
    if dim is not None:
        added.append(("Truncation", lambda name: Truncation(dim, name=name)))
        # sentence-transformers leaves the length that its own key makes.
        if kinds[-1] == "Normalize" and truncate_dim is not None:
            added.append(("Normalize", lambda name: L2Normalization(name=name)))
    if output != "float32":
        rounds = _QUANTIZATIONS[output]
        added.append(("Quantization", lambda name: rounds(name=name)))
    # It reads the tokens: what was made of them before is lost.
    last = len(kinds) - 1 - kinds[::-1].index("Pooling")
    paths = [str(module.get("path", "")) for module in modules[last:]]
    names = _names([*kinds[last:], *(kind for kind, _ in added)])
    layers: list[Any] = []
    size = width
    for kind, path, name in zip(kinds[last:], paths, names, strict=False):
        layers.append(makers[kind](folder, path, size, name))
        axes = (None, None, size) if kind == "Pooling" else (None, size)
        size = layers[-1].compute_output_shape(axes)[-1]
    if dim is not None and dim > size:
        raise ValueError(
            f"`truncate_dim` must be at most {size}, the width of the vectors. "
            f"Received: truncate_dim={dim}"
        )
    after = zip(added, names[len(layers) :], strict=True)
    layers += [make(name) for (_, make), name in after]
    return layers, {
        "prompts": texts,
        "default_prompt_name": default,
        "include_prompt": _config_of(folder, paths[0]).take(
            "include_prompt", True
        ),
    }


def written_modules(
    folder: Folder, layers: Sequence[Any], prompts: Mapping[str, str] | None
) -> None:
    """Writes the weights of modules, and the prompts that were given.

    `layers` are those after the encoder.
    """
    modules = folder.json(MODULES)
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    last = len(kinds) - 1 - kinds[::-1].index("Pooling")
    if last > 1:  # what is before the last one has no effect
        write_json(folder.path / MODULES, [modules[0], *modules[last:]])
    found = (each for each in layers if type(each) is keras.layers.Dense)
    for module, kind in zip(modules[last:], kinds[last:], strict=True):
        if kind == "Dense":
            layer = next(found)
            tensors = {"linear.weight": array_of(layer.kernel).T}
            if layer.bias is not None:
                tensors["linear.bias"] = array_of(layer.bias)
            write_tensors(folder.path / module["path"], tensors)
    if prompts:
        values = folder.mapping(PROMPTS) if folder.has(PROMPTS) else {}
        texts = {**(values.get("prompts") or {}), **prompts}
        write_json(folder.path / PROMPTS, {**values, "prompts": texts})


def _names(kinds: Sequence[str]) -> list[str]:
    """Returns the names of layers, the last one as exports call the output."""
    usual = {"Normalize": "normalization"}
    names = [usual.get(kind, kind.lower()) for kind in kinds]
    return [
        f"{name}_{names[:place].count(name)}" if name in names[:place] else name
        for place, name in enumerate(names[:-1])
    ] + ["embedding"]


def _prompts(
    folder: Folder, given: Any
) -> tuple[dict[str, str], str | None, int | None]:
    values = folder.mapping(PROMPTS) if folder.has(PROMPTS) else {}
    config = Config(values, folder.path / PROMPTS)
    found = config.take("prompts", {}, dict, type(None)) or {}
    texts = {name: text for name, text in found.items() if text is not None}
    if not all(isinstance(text, str) for text in texts.values()):
        raise config.wrong("prompts", "it must have a string for each name")
    texts |= given or {}
    default = config.take("default_prompt_name", None, str, type(None))
    if default is not None and default not in {*texts, *_USUAL}:
        raise config.wrong(
            "default_prompt_name",
            f"there is no prompt '{default}'. Prompts are: "
            f"{', '.join(texts) or 'none'}",
        )
    dim = None
    if config.values.get("truncate_dim") is not None:
        dim = config.size("truncate_dim")
    return texts, default, dim


def check_options(
    prompts: Any, truncate_dim: Any, output: Any
) -> dict[str, Any]:
    """Returns the arguments of sentence encoders that are not the default."""
    if truncate_dim is not None:
        check_positive_int("truncate_dim", truncate_dim)
    check_choice("output", output, OUTPUTS)
    if prompts is not None and not (
        isinstance(prompts, Mapping)
        and all(isinstance(each, str) for x in prompts.items() for each in x)
    ):
        raise ValueError(
            "`prompts` must be a dict of texts by name, such as "
            "{'query': 'query: ', 'document': 'passage: '}. Received: "
            f"prompts={prompts!r}"
        )
    given = {"prompts": prompts, "truncate_dim": truncate_dim}
    found = {name: value for name, value in given.items() if value is not None}
    return found if output == "float32" else {**found, "output": output}


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raises `ValueError` if there are arguments of sentence encoders."""
    for name, value in options.items():
        usual = "'float32'" if name == "output" else "None"
        raise ValueError(
            f"`{name}` must be {usual} for a model that makes no vector of a "
            "text: it needs a folder with `modules.json` of "
            "sentence-transformers, and no `encoder_only`. Received: "
            f"{name}={value!r}"
        )


def with_default_prompt(
    model: PretrainedModel, folder: Folder
) -> PretrainedModel:
    """Returns the model with the prompt that it puts before every text."""
    text = model.prompts.get(model.default_prompt_name or "", "")
    if model.inputs[0].dtype == "string":
        return model.with_prompt(text) if text else model
    if not model.include_prompt and any(model.prompts.values()):
        raise ValueError(
            f"'{folder.path}' pools no tokens of prompts ('include_prompt'), "
            "and in ids they are not known. Load it without `from_ids`"
        )
    if text:
        warnings.warn(
            f"'{folder.path}' puts the prompt {text!r} before every text "
            "('default_prompt_name'): make the ids of the prompt and the text "
            "together",
            UserWarning,
            stacklevel=4,
        )
    return model


def _pooling(folder: Folder, path: str, width: int, name: str) -> Any:
    config = _config_of(folder, path)
    config.expect("word_embedding_dimension", width)
    config.expect("embedding_dimension", width)
    config.take("include_prompt", True, bool)
    chosen = [
        mode for mode in _POOLINGS if config.take(_KEYS[mode], False, bool)
    ]
    given = config.take("pooling_mode", None, str, list, type(None))
    modes = chosen if given is None else given
    modes = [modes] if isinstance(modes, str) else list(modes)
    for mode in modes:
        if mode not in [*_POOLINGS]:  # also lists, which have no hash
            raise config.wrong(
                "pooling_mode",
                f"{shown(mode)} is not supported, only {', '.join(_POOLINGS)}",
            )
    config.finish()
    if not modes or (chosen and {*chosen} != {*modes}):
        raise ValueError(
            f"'{config.path}' must choose one or several of "
            f"{', '.join(_POOLINGS)}, and all keys the same ones. By "
            f"'pooling_mode' it chooses {shown(given)}, by other keys "
            f"{', '.join(_KEYS[mode] for mode in chosen) or 'none'}"
        )
    kinds = [_POOLINGS[mode] for mode in modes]
    return Pooling1D(kinds[0] if len(kinds) == 1 else kinds, name=name)


def _config_of(folder: Folder, path: str) -> Config:
    name = f"{path}/config.json"
    return Config(folder.mapping(name), folder.path / name)


def _normalization(folder: Folder, path: str, width: int, name: str) -> Any:
    return L2Normalization(name=name)


def _dense(folder: Folder, path: str, width: int, name: str) -> Any:
    config = _config_of(folder, path)
    config.expect("in_features", width)
    for side in ("module_input_name", "module_output_name"):
        config.expect(side, None, "sentence_embedding")
    units = config.size("out_features")
    has_bias = config.expect("bias", True, False)
    activation = config.choose(
        "activation_function", _ACTIVATIONS, "torch.nn.modules.activation.Tanh"
    )
    config.finish()
    tensors = Tensors(folder.inner(path))
    layer = _filled(
        tensors, "linear", width, units, activation, has_bias, name=name
    )
    tensors.finish([])
    return layer
