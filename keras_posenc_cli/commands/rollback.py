"""`keras-posenc rollback`: publishes an older version again."""

import argparse
import json

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists
from keras_posenc_cli.options import Commands, add_command
from keras_posenc_cli.process import EXIT_OK


def add(commands: Commands) -> None:
    add_command(
        commands,
        "rollback",
        run,
        ("base BASE", "folder of the versions", arguments.path),
        ("version VERSION", "number to go back to", int),
        ("--no-verify", "copy it without loading it first"),
        "--allow-op",
        "--json",
        summary="publish an older version again, as the newest",
        description="Loads a version of a model in a separate process, and "
        "copies it under the next number. Servers load the highest number. No "
        "version is deleted.",
        example="rollback serving/order 1",
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.base)
    import keras_posenc as kp

    path = kp.rollback_export(
        options.base,
        options.version,
        verify=not options.no_verify,
        allow_operators=options.allow_operators,
    ).path
    if options.json:
        print(json.dumps({"path": str(path), "of": options.version}, indent=2))
    else:
        print(f"{path}: version {options.version} again")
    return EXIT_OK
