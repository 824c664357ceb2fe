"""LoRA adapters in the folders of Hugging Face's library PEFT."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import HEAD
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.parts import Column, Parts, array_of
from keras_posenc.checkpoints.read_back import core_of
from keras_posenc.checkpoints.saving import parts_of
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.checkpoints.writing import write_json, write_tensors
from keras_posenc.checks import check_positive, check_positive_int
from keras_posenc.keras_internals import layers_within
from keras_posenc.progress import printable_errors
from keras_posenc.publish import (
    check_free,
    publish,
    staging_in,
    working_folder,
    writing_to,
)
from keras_posenc.text.files import shown
from keras_posenc.training.lora import forget_traces
from keras_posenc.transformer.transformer import Transformer
from keras_posenc.transformer.transformer_decoder_model import (
    TransformerDecoderModel,
)

_ALONE = "FEATURE_EXTRACTION"
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_WITHOUT = """
    alora_invocation_tokens arrow_config kasa_config layer_replication
    layers_to_transform lora_bias modules_to_save monteclora_config
    target_parameters trainable_token_indices use_bdlora use_dora use_qalora
    velora_config
"""


class _Adapted(Parts):
    """Which projections of the checkpoint each layer has; loads nothing."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.layers: dict[Any, list[Column]] = {}

    def side(self, name: str, reading: Any) -> Any:
        found = super().side(name, reading)
        found.layers = self.layers
        return found

    def columns(self, columns: Sequence[Column]) -> None:
        for column in columns:
            self.layers.setdefault(column.layer, []).append(column)

    def logits(self, model: Any, part: str, scale: float) -> None:
        if model.head is not None:
            rows = model.head.kernel.shape[1]
            whole = slice(0, rows)
            self.columns([Column(model.head, part, part, whole, whole, rows)])

    def absorbed(self, part: str, shape: Any, *given: Any, **of: Any) -> Any:
        neutral, *number = given
        if not number:  # of no projection
            return np.full(shape, neutral, "float32")
        return self.take(part)

    def take(self, part: str, *given: Any, **others: Any) -> Any:
        raise ValueError(
            f"Adapters of {type(self.family).__name__} are not supported: its "
            f"'{part}' is a factor of projections"
        )

    def _nothing(self, *given: Any, **others: Any) -> float:
        return 0.0

    put: Any = take
    pair: Any = _nothing
    rows: Any = _nothing
    table: Any = _nothing
    first_type: Any = _nothing
    _put: Any = _nothing


def _adapted(model: Any) -> _Adapted:
    """Returns the parts of a loaded model, with names without the prefix."""
    kept = getattr(model, "checkpoint", None)
    if not kept:
        raise ValueError(
            "`model` must be one that `load_hugging_face` made, which knows "
            "the names of its checkpoint. Received: model of type "
            f"{type(model).__name__}"
        )
    with working_folder() as folder:
        found, _ = parts_of(model, folder, _Adapted)
    parts = _Adapted(found.family, found.reading, found.tensors, "")
    parts.family.match(core_of(model), parts)
    return parts


def save_lora(model: Any, folder: str | os.PathLike[str]) -> Path:
    """Writes the LoRA of a loaded model as an adapter that PEFT loads.

    >>> import keras_posenc as kp
    >>> model = kp.load_hugging_face("SmolLM2")  # doctest: +SKIP
    >>> kp.training.enable_lora(model.model, rank=8)  # doctest: +SKIP
    >>> kp.training.save_lora(model, "adapter")  # doctest: +SKIP

    The adapter alone, of a few MB: `peft.PeftModel.from_pretrained` adds it to
    the checkpoint that the model was loaded from. `save_hugging_face` writes
    the whole model, with LoRA merged into it.

    Args:
        model: What `load_hugging_face` returned and `enable_lora` changed.
        folder: A folder that does not exist or is empty. It appears complete
            or not at all.

    Returns:
        The path of the folder.

    Raises:
        ExportError: The folder cannot be written to, or the disk is full.
        FileExistsError: The folder is not empty.
        ValueError: The model was not loaded from a checkpoint or has no LoRA.

    References:
        - [PEFT, the checkpoint format](https://huggingface.co/docs/peft/developer_guides/checkpoint)
    """
    path = Path(folder).expanduser()
    check_free(path)
    parts = _adapted(model)
    found = [
        layer
        for layer in layers_within(model)
        if getattr(layer, "lora_enabled", False)
    ]
    if not found:
        raise ValueError(
            "`model` must have LoRA: call kp.training.enable_lora on its "
            "`model` or `encoder`, and train it"
        )
    for layer in found:
        if layer not in parts.layers:
            raise ValueError(
                f"Layer '{layer.path}' has LoRA, and is no projection of a "
                "block: an adapter has no place for it. Enable LoRA of the "
                "`encoder` or of the blocks alone, or save the whole model"
            )
    task = _task_of(model)
    prefix = "" if task == _ALONE else parts.family.prefix
    projections: dict[str, list[tuple[Column, Any]]] = {}
    for layer in found:
        for part in parts.layers[layer]:
            name = part.name if part.name == HEAD else prefix + part.name
            projections.setdefault(name, []).append((part, layer))
    rank = found[0].lora_rank
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": task,
        "r": rank,
        "lora_alpha": rank,  # the scale is part of the matrices
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": parts.family.has_our_kernels,
        "target_modules": sorted({x.rpartition(".")[2] for x in projections}),
        "rank_pattern": {},
        "alpha_pattern": {},
        "base_model_name_or_path": model.checkpoint.get("name", ""),
        "inference_mode": True,
    }
    tensors: dict[str, np.ndarray] = {}
    for name, both in projections.items():
        downs = [array_of(layer.lora_kernel_a).T for _, layer in both]
        down, place = np.concatenate(downs), 0
        up = np.zeros((both[0][0].rows, len(down)), "float32")
        for part, layer in both:
            scale = layer.lora_alpha / layer.lora_rank
            ours = array_of(layer.lora_kernel_b)[:, part.ours].T * scale
            if part.factor is not None:
                ours = (ours.T / part.factor).T
            end = place + layer.lora_rank
            up[part.theirs, place:end] = ours
            place = end
        if len(down) != rank:
            config["rank_pattern"][name] = len(down)
            config["alpha_pattern"][name] = len(down)
        at = f"{_PREFIX}{name}.lora_"
        tensors |= {f"{at}A.weight": down, f"{at}B.weight": up}
    target = path.resolve()
    with staging_in(target.parent) as staged, writing_to(target.parent):
        staged.mkdir()
        write_json(staged / _CONFIG, config)
        write_tensors(staged, tensors, _WEIGHTS)
        publish(staged, target)
    return path


def _task_of(model: Any) -> str:
    core = core_of(model)
    if isinstance(core, Transformer):
        return "SEQ_2_SEQ_LM"
    if isinstance(core, TransformerDecoderModel):
        return "CAUSAL_LM"
    architecture = (model.checkpoint["config"].get("architectures") or [""])[0]
    if model.labels is None:
        return _ALONE
    return "TOKEN_CLS" if "ForToken" in architecture else "SEQ_CLS"


@printable_errors()
def load_lora(model: Any, folder: str | os.PathLike[str]) -> None:
    """Adds an adapter of PEFT to a loaded model, to be used or trained.

    >>> import keras_posenc as kp
    >>> model = kp.load_hugging_face("SmolLM2")  # doctest: +SKIP
    >>> kp.training.load_lora(model, "adapter")  # doctest: +SKIP

    Afterwards the model is as `enable_lora` leaves one: its projections have
    the adapter, and all other weights are frozen. The rank of our joined
    projections of queries, keys and values is the sum of theirs.

    Args:
        model: What `load_hugging_face` returned, without LoRA.
        folder: A folder with `adapter_config.json` and
            `adapter_model.safetensors`.

    Raises:
        FileNotFoundError: The folder, or a file of it, is missing.
        ValueError: The model was not loaded from a checkpoint; the adapter is
            not LoRA's, or is of another model; or it changes what LoRA here
            does not have, such as embeddings or biases.

    References:
        - [PEFT, the checkpoint format](https://huggingface.co/docs/peft/developer_guides/checkpoint)
    """
    opened = Folder(folder)
    config = Config(opened.mapping(_CONFIG), opened.path / _CONFIG)
    config.require("peft_type", "LORA")
    # Other kinds of adapters.
    for key in _WITHOUT.split():
        config.expect(key, None, False)
    config.expect("bias", "none")
    # Others change the checkpoint too.
    config.expect("init_lora_weights", True, False, "gaussian")
    rank = config.size("r")
    alpha = config.positive("lora_alpha", 8.0)
    ranks, alphas = (
        _pattern(config, key, check)
        for key, check in (
            ("rank_pattern", check_positive_int),
            ("alpha_pattern", check_positive),
        )
    )
    root = config.expect("use_rslora", False, True)
    tensors = Tensors(opened, _WEIGHTS)
    parts = _adapted(model)
    taken: dict[str, Any] = {}
    for layer, its in parts.layers.items():
        for column in its:
            short, rows = column.name, column.rows
            # Of the class of the task, or of the encoder or decoder alone.
            names = {short: None, parts.family.prefix + short: None}
            found = [
                name
                for name in names
                if f"{_PREFIX}{name}.lora_A.weight" in tensors
            ]
            if not found or short in taken:
                continue
            (name, *_), at = found, f"{_PREFIX}{found[0]}.lora_"
            r = _matching(ranks, name, rank)
            scale = _matching(alphas, name, alpha) / (r**0.5 if root else r)
            down = tensors.take(f"{at}A.weight", (r, layer.kernel.shape[0]))
            up = tensors.take(f"{at}B.weight", (rows, r))
            taken[short] = down, up * scale
    tensors.finish([])
    if not taken:
        raise ValueError(f"'{opened.path}' has no adapter of this model")
    weights = core_of(model).weights
    for layer, its in parts.layers.items():
        adapted = [part for part in its if part.name in taken]
        if not adapted:
            continue
        a = np.concatenate([taken[part.name][0] for part in adapted]).T
        b = np.zeros((a.shape[1], layer.kernel.shape[1]), "float32")
        place = 0
        for part in adapted:
            up = taken[part.name][1].T[:, part.theirs]
            if part.factor is not None:
                up = up * part.factor
            b[place : place + len(up), part.ours] = up
            place += len(up)
        layer.enable_lora(a.shape[1], lora_alpha=a.shape[1])
        layer.lora_kernel_a.assign(a)
        layer.lora_kernel_b.assign(b)
    for weight in weights:
        weight.trainable = False
    forget_traces(model)


def _pattern(config: Config, key: str, check: Any) -> dict[str, Any]:
    """Returns values by the ends of modules' names."""
    found = config.take(key, {}, dict, type(None)) or {}
    for name in found:
        if not re.fullmatch(r"[\w.]+", name):
            raise config.wrong(
                key, f"{shown(name)} is a regular expression, and no name"
            )
    return {name: check(key, value) for name, value in found.items()}


def _matching(pattern: Mapping[str, Any], name: str, usual: Any) -> Any:
    """Returns the value of the module that a key of a pattern names."""
    for key, value in pattern.items():
        if name == key or name.endswith(f".{key}"):
            return value
    return usual
