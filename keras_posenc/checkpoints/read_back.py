"""Loads a saved folder in another process, and compares the outputs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator
from keras_posenc.checkpoints.pretrained_model import PretrainedModel
from keras_posenc.export.errors import ExportError
from keras_posenc.publish import working_folder
from keras_posenc.transformer.transformer import Transformer, TwoPassReader
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)
from keras_posenc.transformer.vision_transformer_model import (
    VisionTransformerModel,
)

_TEXTS = (
    "A short text.",
    "Another one, longer: 12 words, or so, and \u00c9T\u00c9!",
)
# Relative to the largest number of an output: of sums of some 10,000 float32
# products, and of weights that a factor changed by their last bit.
_TOLERANCE = {"float32": 1e-5}
_ROUGH = 2e-2  # of dtypes with fewer bits
_CORES = TransformerEncoderModel, VisionTransformerModel, TwoPassReader


def core_of(model: Any) -> Any:
    """Returns the encoder, or the decoder, or both, of a model."""
    if isinstance(model, PretrainedGenerator):
        return model.model
    if isinstance(model, PretrainedModel):
        return next(x for x in model.layers if isinstance(x, _CORES))
    return model


def takes_texts(model: Any) -> bool:
    """Returns whether inputs are strings."""
    is_model = isinstance(model, PretrainedModel)
    return is_model and model.inputs[0].dtype == "string"


def read_back(model: Any, folder: Path, options: Mapping[str, Any]) -> str:
    """Returns how far the outputs of the folder differ.

    `options` are arguments of `load_hugging_face`.

    Raises:
        ExportError: Outputs differ, or the folder cannot be loaded.
    """
    inputs = _inputs(model)
    dtype = keras.dtype_policies.get(options.get("dtype", "float32"))
    most = _TOLERANCE.get(dtype.compute_dtype, _ROUGH)
    outputs = answers(model, inputs)
    with working_folder() as work:
        named: dict[str, Any] = dict(inputs)
        np.savez(work / "inputs.npz", **named)
        answer = work / "outputs.npy"
        command = [sys.executable, "-P", "-m", __name__]
        files = [str(folder), str(work / "inputs.npz"), str(answer)]
        try:
            subprocess.run(
                [*command, json.dumps(dict(options)), *files],
                # This process may hold all memory of a GPU.
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            last = error.stderr.strip().splitlines()[-1:] or ["no message"]
            raise ExportError(
                f"The folder is not written: it cannot be loaded: {last[0]}"
            ) from None
        found = np.load(answer)
    largest = np.abs(outputs).max(initial=0)
    apart = np.inf
    if found.shape == outputs.shape:
        apart = np.abs(found - outputs).max(initial=0)
    if not apart <= most * largest:
        raise ExportError(
            "The folder is not written: what is loaded from it has outputs "
            f"of shape {found.shape} that differ by up to {apart:.2g}; the "
            f"model's, of shape {outputs.shape}, are up to {largest:.2g}. Its "
            "layers must be those that were loaded; verify=False writes it "
            "unread"
        )
    return f"largest difference {apart / max(largest, 1e-30):.1e}"


def answers(model: Any, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the outputs of a model; of a generator those of one step."""
    model = model.model if isinstance(model, PretrainedGenerator) else model
    values = [keras.ops.convert_to_tensor(each) for each in inputs.values()]
    if len(values) == 1:
        outputs = model(values[0])
    else:
        outputs = model(dict(zip(("source", "target"), values, strict=True)))
    return np.asarray(keras.ops.convert_to_numpy(outputs), "float32")


def _inputs(model: Any) -> dict[str, np.ndarray]:
    """Returns inputs of any kind of model, by name."""
    if not takes_texts(model):
        return _ids(core_of(model), model)
    (of,) = model.inputs
    texts = np.array(_TEXTS)
    is_pair = len(of.shape) == 2
    return {"texts": np.stack([texts, texts[::-1]], 1) if is_pair else texts}


def _ids(core: Any, model: Any) -> dict[str, np.ndarray]:
    """Returns ids without special ones, or images, for an encoder or both."""
    rng = np.random.default_rng(0)
    if hasattr(core, "patch_size"):
        size = core.image_size or (2 * core.patch_size,) * 2
        shape = (2, *size, core.num_channels)
        return {"pixel_values": rng.random(shape, "float32")}
    config = getattr(model, "checkpoint", {}).get("config", {})
    special = [x for key, x in config.items() if key.endswith("_token_id")]
    special += [core.pad_id, getattr(core, "separator_id", None)]
    last = config.get("eos_token_id")
    longest = getattr(core.input_position, "sequence_length", None) or 12

    def drawn(size: int) -> np.ndarray:
        known = [x for x in range(size) if x not in special]
        return rng.choice(known, (2, min(longest, 12))).astype("int32")

    ids = drawn(core.vocabulary_size)
    if isinstance(last, int) and hasattr(core, "transformer"):
        ids[:, -1] = last  # whose output is classified
    found = {"input_ids": ids}
    if isinstance(core, Transformer):
        found["decoder_input_ids"] = drawn(core.target_vocabulary_size)
    return found


def _main(options: str, folder: str, inputs: str, answer: str) -> None:
    from keras_posenc.checkpoints.hugging_face import load_hugging_face

    model = load_hugging_face(folder, verbose=False, **json.loads(options))
    with np.load(inputs) as arrays:
        np.save(answer, answers(model, dict(arrays)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
