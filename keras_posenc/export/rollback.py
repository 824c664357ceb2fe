"""Returns to an older version of a model."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.inspect import (
    check_operators,
    inspect_safe,
    size_of,
)
from keras_posenc.export.regular_files import is_hidden
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.versions import (
    check_base,
    check_unchanged,
    check_version,
    publish_version,
    stamp,
    versions,
)
from keras_posenc.export.worker_client import limits_for, run_model
from keras_posenc.progress import progress
from keras_posenc.publish import as_path, staging_in, writing_to


def rollback_export(
    base_path: str | Path,
    version: int,
    *,
    allow_operators: Sequence[str] = (),
    verify: bool = True,
    verbose: int = True,
) -> ExportedModel:
    """Publishes an older version of a model again, as the newest.

    A server takes the highest number, so the older version is copied to the
    next free one. Versions in between stay. A fresh process first loads the
    version with every weight, and replays its warm-up, so that a server can
    load what appears.

    Args:
        base_path: The folder of all versions of the model.
        version: The number of the version to return to.
        allow_operators: As for `export_saved_model`.
        verify: Whether to load the version first. Its outputs are not compared:
            that needs the model, and `kp.verify_export`.
        verbose: Whether to show progress; 2 also shows native logs.

    Returns:
        An `ExportedModel`: its `path` is the new version folder, and its
        `report` None, since no outputs were compared.

    Raises:
        ValueError: There is no such version, or it is the newest, or it has
            links.
        ExportError: The folder cannot be written to.
        ExportVerificationError: The version does not load any more.

    Example:
    >>> import tempfile
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         _ = kp.export_saved_model(model, folder, verbose=False)
    ...     kp.rollback_export(folder, 1, verbose=False).path.name
    '3'
    """
    check_operators(allow_operators)
    base_path = as_path("base_path", base_path)
    check_base(base_path)
    version = check_version(version)
    if not os.path.isdir(base_path):  # Path.is_dir raises for too long names
        raise ValueError(
            "`base_path` must be the folder of a model's versions. "
            f"Received: base_path='{base_path}', which is no folder"
        )
    source, present = base_path / str(version), versions(base_path)
    if not (source / "saved_model.pb").is_file():
        raise ValueError(
            f"`version` must be one that '{base_path}' has "
            f"({', '.join(map(str, present)) or 'it has none'}). "
            f"Received: version={version}"
        )
    if version == present[-1]:
        raise ValueError(
            f"Version {version} is the newest in '{base_path}': there is "
            "nothing to go back from"
        )
    before = stamp(source)
    size_of(source)  # raises for links and too many files

    def hidden(folder: str, names: list[str]) -> set[str]:
        return {x for x in names if folder == str(source) and is_hidden(x)}

    with progress(verbose) as step, staging_in(base_path) as staged:
        if verify:
            step(f"Loading version {version} in a fresh process")
            _check_loads(source, version, allow_operators)
        step("Copying it")
        with writing_to(base_path):
            shutil.copytree(source, staged, ignore=hidden)
            if verify:
                check_unchanged(source, before)
        return ExportedModel(publish_version(staged, base_path, None), None)


def _check_loads(
    source: Path, version: int, allow_operators: Sequence[str]
) -> None:
    """Loads a version, as a server would, and replays its warm-up."""
    try:
        found = inspect_safe(source, allow_operators)
        run_model("saved_model", source, [], limits_for(found.size_bytes))
    except ExportVerificationError as error:
        raise ExportVerificationError(
            f"Version {version} cannot be published again: {error}. "
            "`verify=False` (--no-verify) publishes it all the same"
        ) from error
