"""Where an artifact is, and which files it is made of."""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from keras_posenc.artifacts.ground.regular_files import is_hidden, open_regular
from keras_posenc.artifacts.ground.staging import as_path
from keras_posenc.artifacts.ground.versions import versions

_MAX_FILES = 10_000

_MAX_DEPTH = 100

# What TensorFlow, Keras and this package write, by the path in the folder, and
# what servers read there.
_PARTS = re.compile(
    r"(saved_model|fingerprint|keras_metadata)\.pb"
    r"|variables/variables\.(index|data-\d{5}-of-\d{5})|assets/.+"
    r"|assets\.extra/(tf_serving_warmup_requests|verification\.json)"
    r"|debug/saved_model_debug_info\.pb|MODEL_CARD\.md|batching_params\.pbtxt",
    re.DOTALL,
)
# Users may keep files of their own there: no runtime reads them.
_OF_USERS = "assets.extra/"


def files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every file of a version folder, however deep.

    What users added to `assets.extra` is left out, and so is what `is_hidden`.

    Raises:
        ValueError: There is anything but files and folders, or no end of them,
            or they cannot be read, or are no part of a SavedModel.
    """
    try:
        for entry in _files(folder):
            name = Path(entry.path).relative_to(folder).as_posix()
            if _PARTS.fullmatch(name):
                yield entry
            elif not name.startswith(_OF_USERS):
                raise ValueError(
                    f"'{folder}' is no readable SavedModel: {_not_a_part(name)}"
                )
    except OSError as error:
        raise ValueError(
            f"'{folder}' is no readable SavedModel: {error.strerror}"
        ) from error


def _not_a_part(name: str) -> str:
    """Why a folder with such a file is refused, in words."""
    return (
        f"'{name}' is no part of one. Move it out of the folder, or to "
        f"{_OF_USERS}, which no runtime reads"
    )


def size_of(folder: Path) -> int:
    """Bytes of all files of a version folder."""
    return sum(entry.stat().st_size for entry in files(folder))


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    remaining, count = [(folder, 1)], 0
    while remaining:
        path, depth = remaining.pop()
        if depth > _MAX_DEPTH:
            raise ValueError(
                f"'{folder}' is no readable SavedModel: its folders are "
                f"nested more than {_MAX_DEPTH} deep"
            )
        with os.scandir(path) as entries:
            for entry in entries:
                if path == folder and is_hidden(entry.name):
                    continue  # whatever it is
                count += 1
                if count > _MAX_FILES:
                    raise ValueError(
                        f"'{folder}' is no readable SavedModel: it holds more "
                        f"than {_MAX_FILES} files"
                    )
                if entry.is_dir(follow_symlinks=False):
                    remaining.append((Path(entry.path), depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    yield entry
                else:
                    kind = "link" if entry.is_symlink() else "device"
                    raise ValueError(
                        f"'{folder}' is no readable SavedModel: it may hold "
                        f"files and folders only, and '{entry.path}' is a "
                        f"{kind}"
                    )


def check_variables(folder: Path, sizes: dict[Path, int]) -> None:
    """Raises `ValueError` where files of variables are missing, or empty."""
    shards = [
        int(found[1])
        for path in sizes
        if path.parent == folder
        and (
            found := re.fullmatch(
                r"variables\.data-\d{5}-of-(\d{5})", path.name
            )
        )
    ]
    count = max(shards, default=1)
    for name in (
        "variables.index",
        *(f"variables.data-{i:05}-of-{count:05}" for i in range(count)),
    ):
        if not sizes.get(folder / name):
            state = "empty" if folder / name in sizes else "missing"
            raise ValueError(f"variables/{name} is {state}")


def check_assets(
    folder: Path, sizes: Collection[Path], known: Collection[str]
) -> None:
    """Raises `ValueError` for an asset that the graph does not name."""
    named = {os.path.normpath(folder / "assets" / name) for name in known}
    for path in sizes:
        place = path.relative_to(folder).as_posix()
        if place.startswith("assets/") and str(path) not in named:
            raise ValueError(_not_a_part(place))


def locate(artifact: str | Path) -> tuple[Path, str]:
    """The path of an artifact, and `"saved_model"`, `"litert"` or `"onnx"`.

    Raises:
        ValueError: There is no artifact at the path.
    """
    path = as_path("artifact", artifact)
    if not os.path.exists(path):  # unlike Path's, for any name
        raise ValueError(f"'{path}' does not exist")
    if path.is_dir():
        if not (path / "saved_model.pb").is_file():
            for number in reversed(versions(path)):
                if (path / str(number) / "saved_model.pb").is_file():
                    path = path / str(number)
                    break
        if not (path / "saved_model.pb").is_file():
            raise ValueError(
                f"'{path}' is no SavedModel: it has no saved_model.pb, and no "
                "numbered version that has one"
            )
        # TensorFlow would read it, and not what was looked at here.
        # Servers that prefer LiteRT would read the last one.
        for other in ("saved_model.cpb", "model.tflite"):
            if os.path.lexists(path / other):
                raise ValueError(
                    f"'{path}' is no readable SavedModel: it has a {other} "
                    "beside its saved_model.pb"
                )
        return path, "saved_model"
    if not path.is_file():
        raise ValueError(f"'{path}' is neither a file nor a folder")
    if path.name == "saved_model.pb":
        raise ValueError(
            f"'{path}' is a part of a SavedModel: give the folder, "
            f"'{path.parent}'"
        )
    try:
        with open_regular(path) as file:
            first = file.read(8)
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read: {error.strerror}"
        ) from error
    if first[:1] == b"\x08":  # the tag of the version, in ONNX's protobuf
        return path, "onnx"
    if first[4:] != b"TFL3":
        raise ValueError(
            f"'{path}' is no LiteRT file, by its first bytes, and no ONNX "
            "file. An artifact is a .tflite or .onnx file, a "
            "SavedModel folder, or the folder of a SavedModel's versions; "
            "a .keras file is a model to export"
        )
    return path, "litert"
