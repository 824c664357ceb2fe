"""The files of a checkpoint, none outside its folder."""

import os
from pathlib import Path, PurePosixPath
from typing import Any

from keras_posenc.text.files import lines_of, read_json, read_text

# Names of files.
CONFIG, MODULES = "config.json", "modules.json"
WHOLE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
SPECIAL, ADDED = "special_tokens_map.json", "added_tokens.json"
VOCABULARY, PAIRED, MERGES = "vocab.txt", "vocab.json", "merges.txt"


class Folder:
    """A local folder, as Hugging Face's libraries save or cache one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ValueError(
                f"`folder` must be a path. Received: folder={path!r}"
            )
        self.path = Path(path).expanduser()
        if not self.path.exists():
            raise FileNotFoundError(
                f"'{path}' does not exist. `folder` must be a local folder, or "
                'the name of a model on the hub, such as "org/name"'
            )
        if not self.path.is_dir():
            hint = (
                ": keras.saving.load_model loads it"
                if self.path.suffix == ".keras"
                else ""
            )
            raise ValueError(f"'{path}' must be a folder, and is a file{hint}")
        snapshots = self.path / "snapshots"
        if snapshots.is_dir():
            found = sorted(str(entry) for entry in snapshots.iterdir())
            raise ValueError(
                f"'{path}' is a cache of revisions: give one of them, of "
                f"{', '.join(found) or 'which there are none'}"
            )

        self._values: dict[str, Any] = {}
        self._allowed = [self.path.resolve()]
        blobs = self.path.parent.parent / "blobs"
        if self.revision is not None and not blobs.is_symlink():
            self._allowed.append(blobs.resolve())

    @property
    def revision(self) -> str | None:
        """The revision, where the folder is one in a cache."""
        is_cached = self.path.parent.name == "snapshots"
        return self.path.name if is_cached else None

    def has(self, name: str) -> bool:
        """Returns whether there is a file; raises for one not regular."""
        if name in self._values:  # read, or given
            return True
        path = self.path / name
        if not os.path.lexists(path):  # unlike Path's, for any name
            return False
        if not os.path.isfile(path):
            is_lost = os.path.islink(path) and not os.path.exists(path)
            raise ValueError(
                f"'{path}' must be a regular file, and is "
                + ("a broken link" if is_lost else "not")
            )
        return True

    def file(self, name: str) -> Path:
        """Returns the path of a file in the folder."""
        parts = PurePosixPath(name).parts
        if not parts or "\\" in name or parts[0] == "/" or ".." in parts:
            raise ValueError(
                f"'{self.path}' names the file {name!r}, which would lie "
                "outside of it"
            )
        path = self.path.joinpath(*parts)
        if not self.has(name):
            raise FileNotFoundError(f"'{self.path}' has no file '{name}'")
        real = path.resolve()
        if not any(real.is_relative_to(root) for root in self._allowed):
            raise ValueError(
                f"'{path}' is a link to '{real}', which lies outside of the "
                "folder"
            )
        return path

    def inner(self, name: str) -> "Folder":
        """Returns a folder inside, with the same rule for links."""
        found = Folder(self.path / name)
        found._allowed = self._allowed
        return found

    def json(self, name: str) -> Any:
        """Returns the content of a JSON file, which is read once."""
        if name not in self._values:
            self._values[name] = read_json(self.file(name))
        return self._values[name]

    def give(self, name: str, values: Any) -> None:
        """Sets the content of a JSON file that the folder does not have."""
        self._values[name] = values

    def lines(self, name: str) -> list[str]:
        """Returns the lines of a text file."""
        return lines_of(read_text(self.file(name)))

    def mapping(self, name: str) -> dict[str, Any]:
        """Returns the content of a JSON file that must be an object."""
        found = self.json(name)
        if not isinstance(found, dict):
            raise ValueError(
                f"'{self.path / name}' must hold a JSON object, and holds a "
                f"{type(found).__name__}"
            )
        return found
