"""`keras-posenc inspect`: what a file, model or checkpoint contains."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import (
    check_exists,
    describe_outputs,
    is_checkpoint,
    load_checkpoint,
    load_model,
)
from keras_posenc_cli.options import (
    Commands,
    add_command,
    details_or_json,
)
from keras_posenc_cli.process import EXIT_OK, UsageError


def add(commands: Commands) -> None:
    add_command(
        commands,
        "inspect",
        run,
        (
            "exported PATH",
            ".tflite, .litertlm, .onnx or .keras file, SavedModel folder, or "
            "folder of its versions, or of a checkpoint",
            arguments.path,
        ),
        "--import",
        details_or_json("all of these in tables"),
        summary="show what a file contains, and whether it is safe to run",
        description="Shows the signatures, operators and sizes of a SavedModel "
        "folder, LiteRT or ONNX file or LiteRT-LM package (.litertlm), or the "
        "layers of a .keras model or of a Hugging Face checkpoint, without "
        "running it.",
        example="inspect order.tflite --json",
    )


def run(options: argparse.Namespace) -> int:
    if options.exported.suffix == ".keras":
        model = load_model(options.exported, options.imports)
        if options.json:
            print(json.dumps(json.loads(model.to_json()), indent=2))
        elif options.details:
            model.summary(expand_nested=True, print_fn=print)
        else:
            print(_line(model, options.exported))
            if card := getattr(model, "card", ""):  # as a generator has
                print(card)
        return EXIT_OK
    if is_checkpoint(options.exported):
        return _of_checkpoint(options)
    check_exists(options.exported)
    from keras_posenc.export.errors import ExportVerificationError
    from keras_posenc.export.inspect import inspect_export, locate
    from keras_posenc.export.record import changed_files, digests, read_record

    locate(options.exported)  # else the argument is wrong, not the file
    try:
        inspection = inspect_export(options.exported)
    except ValueError as error:
        raise ExportVerificationError(str(error)) from error
    changed, unusable = None, None
    try:
        record = read_record(inspection.path)
        if record is not None:
            changed = changed_files(record, digests(inspection.path))
    except ValueError as error:
        unusable = str(error)
    if options.json:
        result = {
            **dataclasses.asdict(inspection),
            "changed": changed,
        }
        print(json.dumps(result, default=str, indent=2))
    else:
        print(inspection.details() if options.details else inspection)
        print(unusable or _since_verified(changed))
    return EXIT_OK


def _since_verified(changed: list[str] | None) -> str:
    if changed is None:
        return "there is no record that it was verified"
    if not changed:
        return "the files are those that were verified"
    names = ", ".join(name or "the file" for name in changed[:3])
    return f"changed since it was verified: {names}"


def _line(model: Any, path: Path) -> str:
    """Describes a .keras model in one line."""
    from keras_posenc.export import units

    inputs = [
        f"{tensor.name} {tensor.dtype} {tuple(tensor.shape)}"
        for tensor in getattr(model, "inputs", None) or []
    ]
    # A model that was never called has no weights to count.
    parameters = (
        f"{model.count_params():,} parameters"
        if model.built
        else "not built: call it once on data before it is saved"
    )
    return (
        f"{path}: Keras {type(model).__name__} '{model.name}' of "
        f"{', '.join(inputs) or 'inputs that it does not know'}, "
        f"{parameters}, {units.size(path.stat().st_size)}"
    )


def _of_checkpoint(options: argparse.Namespace) -> int:
    """Describes the folder of a checkpoint, with any tokenizer."""
    from keras_posenc.checkpoints.folder import Folder

    folder = options.exported
    lacking = ""
    try:
        model = load_checkpoint(folder)
    except UsageError as error:
        lacking = str(error)
        try:  # whatever the id of padding is
            config = Folder(folder).mapping("config.json")
            model = load_checkpoint(
                folder, from_ids=True, pad_id=config.get("pad_token_id")
            )
        except (OSError, UsageError, ValueError):
            raise error from None
    from keras_posenc.export import units
    from keras_posenc.text._tokenizer import Tokenizer

    if options.details:
        model.summary(expand_nested=True, print_fn=print)
        return EXIT_OK
    sizes = [(folder / name).stat().st_size for name in model.origin["sha256"]]
    tokenizer = next(
        (x for x in model.layers if isinstance(x, Tokenizer)), None
    )
    result = {
        "path": str(folder),
        **model.origin,
        "size_bytes": sum(sizes),
        "parameters": model.count_params(),
        "output": describe_outputs(model),
        "labels": model.labels,
        "tokenizer": tokenizer and tokenizer.get_config(),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return EXIT_OK
    print(
        f"{folder}: checkpoint of {result['model_type']}, {result['output']}, "
        f"{result['parameters']:,} parameters, "
        f"{units.size(result['size_bytes'])}"
    )
    if lacking:
        print(f"no tokenizer: {lacking}")
    elif tokenizer is not None:
        longest = tokenizer.max_length or "any number of"
        kind = type(tokenizer).__name__.removesuffix("Tokenizer")
        print(
            f"tokenizer: {kind} of {len(tokenizer.vocabulary):,} tokens, "
            f"for texts of up to {longest} ids"
        )
    return EXIT_OK
