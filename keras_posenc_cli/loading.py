"""Loads models, checkpoints and samples from files."""

import importlib
import os
import re
import shlex
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from keras_posenc_cli.arguments import Shape
from keras_posenc_cli.process import UsageError, in_options


def is_checkpoint(path: Path) -> bool:
    """Returns whether a path is a checkpoint's folder, or a cache of them."""
    if path.suffix == ".gguf" or any(path.glob("*.gguf")):
        return True
    return any((path / name).exists() for name in ("config.json", "snapshots"))


def load_checkpoint(path: Path, **options: Any) -> Any:
    """Returns the model of a checkpoint, by `load_hugging_face`."""
    import keras_posenc as kp

    try:
        return kp.load_hugging_face(path, **options)
    except (ImportError, OSError, ValueError) as error:
        from keras_posenc_cli.options import option_names
        from keras_posenc_cli.parsing import make_parser

        parser = make_parser().parse_args(["import", "FOLDER"]).parser
        command = f"keras-posenc import {shlex.quote(str(path))}"
        of_other = "" if options else "keras-posenc import "
        names = {}
        for name, option in option_names(parser).items():
            names[name] = f"{of_other}{option}"
            names[f"{name}="] = f"{command} {option}"
        raise UsageError(in_options(str(error), names)) from error


def load_model(path: Path, imports: Sequence[str] = ()) -> Any:
    """Returns the Keras model in a file, or a checkpoint's.

    `imports` are modules that register layers.
    """
    if is_checkpoint(path):
        if imports:
            raise UsageError(
                "--import is not for a checkpoint, which has no layers of its "
                "own"
            )
        return load_checkpoint(path)
    check_exists(path)
    if path.suffix != ".keras":
        raise UsageError(
            f"'{path}' must be a .keras file, or the folder of a checkpoint "
            "with its config.json"
        )
    # Without this folder in the path: nothing in it may run.
    folders = [os.getcwd()] if imports else []
    for name in imports:  # now, not after Keras was imported
        top, *_ = name.split(".")
        if not (find_spec(top) or PathFinder.find_spec(top, folders)):
            raise UsageError(f"--import {name}: No module named '{top}'")
    import keras_posenc  # registers our layers with Keras
    from keras_posenc.progress import progress
    from keras_posenc_cli.keras_file import keras_loader

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
            return load(path)
        except Exception as error:  # any error that Keras met
            raise UsageError(
                f"'{path}' cannot be loaded: {_reason(error)}"
            ) from error


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
    model: Any, given: Mapping[str, Mapping[str, Shape]] | None
) -> Any:
    """Returns `--signature` as exports and `verify` take them."""
    return {
        name: (model, shapes) if shapes else model
        for name, shapes in (given or {}).items()
    } or None


def load_samples(path: Path | None) -> Any:
    """Returns the arrays of the .npz file of --samples, or None without it."""
    if path is None:
        return None
    import numpy as np

    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is a folder, a pipe or a device")
        # Opened here: NumPy does not close a file that is a damaged zip.
        with path.open("rb") as file:
            return dict(np.load(file))
    except Exception as error:  # also those of zip files, and of empty ones
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--samples: '{path}' cannot be read: {reason}. Write an .npz file "
            "in Python, with an array for each input by its name: "
            "np.savez('samples.npz', NAME=[...]). Save texts as "
            "np.array(texts), all of them strings"
        ) from error


def without_keras() -> None:
    """Lets the package be imported without Keras, which takes seconds."""
    if "keras_posenc" not in sys.modules:
        spec = find_spec("keras_posenc")
        assert spec is not None
        package = types.ModuleType("keras_posenc")
        package.__path__ = [*(spec.submodule_search_locations or [])]
        sys.modules["keras_posenc"] = package
