"""Loads models, checkpoints and samples from files."""

import importlib
import os
import re
import shlex
import sys
import types
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

from keras_posenc_cli.arguments import Shape, ids
from keras_posenc_cli.process import UsageError, in_options, starting

_MOST_LABELS = 5  # in one line


def is_checkpoint(path: Path) -> bool:
    """Returns whether a path is a checkpoint's folder, or a cache of them."""
    if path.suffix == ".gguf" or any(path.glob("*.gguf")):
        return True
    return any((path / name).exists() for name in ("config.json", "snapshots"))


def load_checkpoint(path: Path, **options: Any) -> Any:
    """Returns the model of a checkpoint, by `load_hugging_face`."""
    with starting():
        import keras_posenc as kp

        load = kp.load_hugging_face  # imports what it needs
    try:
        return load(path, **options)
    except (ImportError, OSError, ValueError) as error:
        command = f"keras-posenc import {shlex.quote(str(path))}"
        options = {
            "from_ids": f"{command} --from-ids",
            "ignore_keys": f"{command} --ignore-keys",
        }
        raise UsageError(in_options(str(error), options)) from error


def describe_outputs(model: Any) -> str:
    """Returns words for the outputs of a checkpoint's model."""
    if hasattr(model, "chat_template"):  # a language model
        kind = "made of" if hasattr(model.model, "encode") else "that continue"
        what = "ids" if model.source_tokenizer is None else "texts"
        chats = ", and chats" if model.chat_template else ""
        return f"{what} {kind} {what}{chats}"
    *each, size = model.outputs[0].shape
    inputs = model.inputs[0]
    of_pairs = inputs.dtype == "string" and len(inputs.shape) == 2
    per = "token" if len(each) == 2 else "pair" if of_pairs else "text"
    if len(inputs.shape) == 4:
        per = "token of an image" if len(each) == 2 else "image"
    if model.labels is None:
        return f"a vector of {size} for each {per}"
    from keras_posenc.progress import printable

    names = printable(", ".join(model.labels[:_MOST_LABELS]))
    more = ", ..." if size > _MOST_LABELS else ""
    return f"scores of {names}{more} for each {per}"


def load_model(
    path: Path,
    imports: Sequence[str] = (),
    inputs: Mapping[str, tuple[str, Shape]] | None = None,
) -> Any:
    """Returns the Keras model in a file, or a checkpoint's.

    `imports` are modules that register layers; `inputs` dtypes and shapes by
    the names given with `--input`, with which a `Sequential` then starts.
    """
    if is_checkpoint(path):
        if imports:
            raise UsageError(
                "--import is not for a checkpoint, which has no layers of its "
                "own"
            )
        model = load_checkpoint(path)
        return _with_inputs(model, path, inputs) if inputs else model
    check_exists(path)
    if path.suffix != ".keras":
        raise UsageError(
            f"'{path}' must be a .keras file, or the folder of a checkpoint "
            "with its config.json"
        )
    # Without this folder in the path: nothing in it may run.
    folders = [os.getcwd()] if imports else []
    with starting():
        import keras_posenc  # registers our layers with Keras
        from keras_posenc.export.keras_file import keras_loader
        from keras_posenc.progress import progress

    with (
        keras_loader(keras_posenc.__name__, imports, folders) as load,
        progress(True) as step,
    ):
        step(f"Loading {path}")
        sys.path.extend(folders)
        for name in imports:
            try:
                importlib.import_module(name)
            except Exception as error:  # any error of the module
                raise UsageError(f"--import {name}: {error}") from error
        try:
            model = load(path)
        except Exception as error:  # any error that Keras met
            raise UsageError(
                f"'{path}' cannot be loaded: {_reason(error)}"
            ) from error
    return _with_inputs(model, path, inputs) if inputs else model


def load_generator(path: Path, imports: Sequence[str] = ()) -> Any:
    """Returns the `Generator` in a file, as `load_model` does."""
    model = load_model(path, imports)
    from keras_posenc import Generator

    if not isinstance(model, Generator):
        raise UsageError(
            f"'{path}' is a {type(model).__name__}, not a Generator. Save "
            "kp.Generator(model, source_tokenizer=..., target_tokenizer=...)"
        )
    return model


def parse_ids(text: str, what: str) -> list[int]:
    """Returns the ids in a text; raises `UsageError` for another text."""
    try:
        return ids(text)
    except ValueError as error:
        raise UsageError(
            f"{what} must be ids, integers above 0 separated by spaces or "
            f"commas. Received: '{text}'"
        ) from error


def check_exists(path: Path) -> None:
    """Raises `UsageError` without a file: now, not seconds later."""
    if not os.path.exists(path):  # unlike Path's, for any name
        raise UsageError(f"'{path}' does not exist")


def check_out(out: Path, ending: str = "") -> None:
    """Raises `UsageError` for a path that cannot be a file of this ending."""
    if ending and out.suffix != ending:
        raise UsageError(f"--out must end in '{ending}'. Received: '{out}'")
    if os.path.isdir(out):
        raise UsageError(f"--out must be a file, and '{out}' is a folder")


def _with_inputs(
    model: Any, path: Path, inputs: Mapping[str, tuple[str, Shape]]
) -> Any:
    """Returns a `Sequential` with the inputs of `--input`; others unchanged."""
    if not getattr(model, "inputs", None):
        return model
    import keras

    if not isinstance(model, keras.Sequential):
        names = ", ".join(tensor.name for tensor in model.inputs)
        raise UsageError(
            f"--input: '{path}' knows its inputs: {names}. "
            "--signature fixes their shapes"
        )
    if len(inputs) > 1:
        raise UsageError("--input: a Sequential takes one")
    ((name, (dtype, shape)),) = inputs.items()
    begin = keras.Input(batch_shape=shape, dtype=dtype, name=name)
    try:
        return keras.Sequential([begin, *model.layers], name=model.name)
    except Exception as error:  # of any layer that does not take it
        raise UsageError(
            f"--input: '{path}' does not take {name} of shape "
            f"{shape} and dtype {dtype}: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Returns why Keras does not load a file, in one line."""
    unknown = re.search(r"Could not locate \w+ '([^']+)'", str(error))
    if unknown:
        return (
            f"'{unknown[1]}' is unknown. If it is yours, name the module "
            "that registers it: --import MODULE"
        )
    if "Lambda" in str(error) and "arbitrary code" in str(error):
        return (
            "its Lambda layer is arbitrary code, which the command does not "
            "run. Export the model in Python, where it was made, or after "
            "keras.saving.load_model(path, safe_mode=False) if you trust the "
            "file; or make the layer a registered class"
        )
    # Keras puts a layer's error after where it was, with the layer's whole
    # configuration.
    *_, reason = str(error).split("Exception encountered: ")
    return next(iter(reason.strip().splitlines()), type(error).__name__)


def make_signatures(
    model: Any,
    given: Mapping[str, Mapping[str, Shape]] | None,
    inputs: Mapping[str, tuple[str, Shape]] | None,
) -> Any:
    """Returns `--signature` and `--input` as exports and `verify` take them."""
    given = given or {}
    if not inputs or getattr(model, "inputs", None):
        return {
            name: (model, shapes) if shapes else model
            for name, shapes in given.items()
        } or None
    import keras

    from keras_posenc.export.signatures.signature import DEFAULT

    def specs(shapes: Mapping[str, Shape]) -> dict[str, Any]:
        for name in shapes:
            if name not in inputs:
                raise UsageError(f"--signature: no --input names '{name}'")
        return {
            name: keras.InputSpec(shape=shapes.get(name, shape), dtype=dtype)
            for name, (dtype, shape) in inputs.items()
        }

    given = given or {DEFAULT: {}}
    return {name: (model, specs(shapes)) for name, shapes in given.items()}


def load_arrays(option: str, path: Path | None) -> Any:
    """Returns the arrays in the .npz file of an option, or None without it."""
    if path is None:
        return None
    import numpy as np

    from keras_posenc.export.regular_files import open_regular

    try:
        # Opened here: NumPy does not close a file that is a damaged zip.
        with open_regular(path) as file:
            return dict(np.load(file))
    except Exception as error:  # also those of zip files, and of empty ones
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{option}: '{path}' cannot be read: {reason}. Write an .npz file "
            "in Python, with an array for each input by its name: "
            "np.savez('samples.npz', NAME=[...]). Save texts as "
            "np.array(texts), all of them strings"
        ) from error


def without_keras() -> None:
    """Lets the package be imported without Keras, which takes seconds."""
    if "keras_posenc" not in sys.modules:
        spec = util.find_spec("keras_posenc")
        assert spec is not None
        package = types.ModuleType("keras_posenc")
        package.__path__ = [*(spec.submodule_search_locations or [])]
        sys.modules["keras_posenc"] = package
