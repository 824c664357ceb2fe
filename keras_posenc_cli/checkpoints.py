"""Checkpoints of Hugging Face, in place of .keras files."""

import ast
import re
import shlex
from pathlib import Path
from typing import Any

from keras_posenc_cli.process import UsageError, starting

_MOST_LABELS = 5  # in one line


def is_checkpoint(path: Path) -> bool:
    """Returns whether a path is a checkpoint's folder, or a cache of them.

    Files of llama.cpp are refused when they are loaded, with what to do.
    """
    if path.suffix == ".gguf" or any(path.glob("*.gguf")):
        return True
    return any((path / name).exists() for name in ("config.json", "snapshots"))


def load_checkpoint(path: Path, **options: Any) -> Any:
    """Returns the model of a checkpoint, by `keras_posenc.load_hugging_face`.

    Raises:
        UsageError: The checkpoint cannot be loaded.
    """
    with starting():
        import keras_posenc as kp

        load = kp.load_hugging_face  # imports what it needs
    try:
        return load(path, **options)
    except (ImportError, OSError, ValueError) as error:
        raise UsageError(_by_options(str(error), path)) from error


def _by_options(message: str, path: Path) -> str:
    """Returns a message with the options of `import` for arguments."""
    command = f"keras-posenc import {shlex.quote(str(path))}"
    message = message.replace("from_ids=True", f"{command} --from-ids")
    return re.sub(
        r"ignore_keys=(\[.*?\])",
        lambda found: (
            f"{command} --ignore-keys {shlex.join(ast.literal_eval(found[1]))}"
        ),
        message.replace(" pad_id,", " --pad-id,"),
    )


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
