"""The tensors of a checkpoint; each must be used, or known not to matter."""

import functools
import hashlib
import math
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (registers bfloat16 with NumPy)
import numpy as np

from keras_posenc.checkpoints.folder import Folder
from keras_posenc.progress import printable
from keras_posenc.text.files import shown

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Formats of weights that can run code when they are loaded.
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# To run in the folder. Reads tensors only; clones those that share memory.
CONVERSION = (
    'python -c "import glob, torch; from safetensors.torch import save_file; '
    "save_file({k: v.contiguous().clone() for f in "
    "glob.glob('pytorch_model*.bin') for k, v in "
    "torch.load(f, 'cpu', weights_only=True).items()}, "
    "'model.safetensors', {'format': 'pt'})\""
)
_RESUMES = (
    "Is its download complete? `hf download NAME --local-dir FOLDER` resumes "
    "one"
)
# Of a dense model of 400 billion weights: some 1,200 tensors in 191 files.
_MOST_TENSORS, _MOST_FILES = 10_000, 1_000
_DTYPES = ("F64", "F32", "F16", "BF16")
_POINTER = b"version https://git-lfs"
_LARGEST = float(np.finfo("float32").max)


class Tensors:
    """The tensors in the safetensors files of a folder, read one at a time."""

    def __init__(self, folder: Folder, weights: str | None = None) -> None:
        self._folder = folder
        self._files: dict[str, Any] = {}
        self._places: dict[str, str] = {}
        for file in [weights] if weights else _files_of(folder):
            path = folder.file(file)
            opened = self._files[file] = _opened(path)
            names = opened.keys()
            _check_count(path, "tensors", len(names), _MOST_TENSORS)
            for name in self._places.keys() & names:
                raise ValueError(
                    f"'{path}' has the tensor {shown(name)}, which "
                    f"{self._places[name]} has too"
                )
            self._places |= dict.fromkeys(names, file)
        self._left = dict(self._places)
        self._not_finite: list[str] = []

    @property
    def names(self) -> Collection[str]:
        """The names of all tensors."""
        return self._places.keys()

    @functools.cached_property
    def largest(self) -> int:
        """How many numbers the largest tensor has."""
        return max(
            (
                math.prod(self._files[file].get_slice(name).get_shape())
                for name, file in self._places.items()
            ),
            default=0,
        )

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """Raises `ValueError` if a tensor of `names` has another shape."""
        file = self._places[name]
        found = tuple(self._files[file].get_slice(name).get_shape())
        if found != tuple(shape):
            raise ValueError(
                f"'{self._folder.path / file}': tensor '{name}' must have "
                f"shape {tuple(shape)}, as config.json has it, and has {found}"
            )

    def take(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Returns a tensor of floats, as float32 (float64 stays float64)."""
        if name not in self._left:
            raise ValueError(
                f"'{self._folder.path}' has no tensor '{name}', of shape "
                f"{tuple(shape)}, which the model needs"
            )
        self.check_shape(name, shape)
        file = self._left.pop(name)
        dtype = self._files[file].get_slice(name).get_dtype()
        if dtype not in _DTYPES:
            raise ValueError(
                f"'{self._folder.path / file}': tensor '{name}' must be of "
                f"{', '.join(_DTYPES)}, and is of {dtype}"
            )
        # A copy: pages of a mapped file would stay in memory with the view.
        tensor = _opened(self._folder.file(file)).get_tensor(name)
        if dtype != "F64":
            tensor = tensor.astype("float32", copy=False)
        # Not `isfinite` of each number: needs memory. The model is float32.
        ends = (tensor.min(), tensor.max()) if tensor.size else ()
        if not all(abs(float(end)) <= _LARGEST for end in ends):
            self._not_finite.append(name)
            with np.errstate(over="ignore"):  # `finish` warns of them
                return tensor.astype("float32", copy=False)
        return tensor

    def finish(self, of_no_matter: Iterable[str]) -> None:
        """Raises `ValueError` for tensors that were not taken."""
        known = [re.compile(pattern) for pattern in of_no_matter]
        left = sorted(
            name
            for name in self._left
            if not any(pattern.fullmatch(name) for pattern in known)
        )
        if left:
            listed = ", ".join(left[:5]) + (", …" if len(left) > 5 else "")
            raise ValueError(
                f"'{self._folder.path}' has {len(left)} tensors that its "
                f"config.json does not account for: {listed}"
            )
        if self._not_finite:
            names = self._not_finite[:5]
            listed = ", ".join(names) + (", …" if self._not_finite[5:] else "")
            warnings.warn(
                printable(
                    f"'{self._folder.path}': {len(self._not_finite)} tensors "
                    f"hold NaN or infinity, as float32: {listed}. The model's "
                    "outputs will not be finite"
                ),
                stacklevel=2,
            )

    def digests(self) -> dict[str, str]:
        """Returns the SHA-256 of each file, by its name."""
        found = {}
        for name in sorted(self._files):
            with open(self._folder.file(name), "rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            found[name] = digest.hexdigest()
        return found


def _files_of(folder: Folder) -> list[str]:
    if folder.has(WHOLE):
        return [WHOLE]
    if folder.has(INDEX):
        places = _weight_map(folder)
        files = sorted(set(places.values()))
        index = folder.path / INDEX
        _check_count(index, "tensors", len(places), _MOST_TENSORS)
        _check_count(index, "files", len(files), _MOST_FILES)
        missing = []
        for file in files:
            try:
                folder.file(file)
            except FileNotFoundError:
                missing.append(file)
        if missing:
            raise FileNotFoundError(
                f"'{folder.path}' lacks {', '.join(map(repr, missing[:5]))}: "
                f"{INDEX} names {len(files)} files, and {len(missing)} are "
                "missing. " + _RESUMES
            )
        return files
    pickled = next((name for name in _PICKLED if folder.has(name)), None)
    if pickled is not None:
        raise ValueError(
            f"'{folder.path}' has its weights in {pickled}, a format that can "
            "run any code when it is read. Convert them once, in that folder "
            f"and with torch: {CONVERSION}"
        )
    refuse_gguf(folder.path)
    raise FileNotFoundError(
        f"'{folder.path}' has neither {WHOLE} nor {INDEX}. {_RESUMES}"
    )


def _check_count(path: Path, kind: str, count: int, most: int) -> None:
    """Raises `ValueError` for more than any model has, which takes minutes."""
    if count > most:
        raise ValueError(
            f"'{path}' has {count:,} {kind}. At most {most:,} are read"
        )


def refuse_gguf(path: Path) -> None:
    """Raises `ValueError` for a file of llama.cpp, or a folder with one."""
    is_file = path.suffix == ".gguf"
    file = path if is_file else min(path.glob("*.gguf"), default=None)
    if file is not None:
        raise ValueError(
            f"'{file}' is a GGUF file, of llama.cpp, whose weights are "
            "quantized. Load the checkpoint that it was made from: a folder "
            "with config.json and *.safetensors"
        )


def _weight_map(folder: Folder) -> dict[str, str]:
    found = folder.mapping(INDEX).get("weight_map")
    if (
        not isinstance(found, dict)
        or not found
        or not all(isinstance(file, str) for file in found.values())
    ):
        raise ValueError(
            f"'{folder.path / INDEX}' must have a `weight_map` from names of "
            "tensors to files, and it is "
            f"{'empty' if found in ({}, None) else repr(found)[:60]}. "
            f"{_RESUMES}"
        )
    return found


def _opened(path: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(
            "Checkpoints need the library safetensors: "
            "pip install 'keras-posenc[checkpoints]'"
        ) from error
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        with open(path, "rb") as file:
            start = file.read(len(_POINTER))
        what = ""
        if start == _POINTER:
            what = "It is a pointer of Git LFS: `git lfs pull` gets the file. "
        raise ValueError(
            f"'{path}' is not a complete safetensors file: {error}. {what}"
            "Delete it and download it again: `hf download NAME "
            f"{path.name} --local-dir FOLDER`"
        ) from error
