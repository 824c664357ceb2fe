"""What errors mean, by `docs/errors.toml`, as the page that says so."""

import itertools
import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from raised import ROOT, Raised, every

ENTRIES = ROOT / "docs" / "errors.toml"
ROOMS = {
    "checks": "Arguments of all layers and functions",
    "ops": "Inputs, positions and masks of all layers",
    "positional": "Positions",
    "transformer": "Transformers",
    "generation": "Generation",
    "training": "Training",
    "text": "Tokenizers",
    "checkpoints": "Checkpoints of other libraries",
    "export": "Exports",
    "scoring": "Scoring",
    "distribution": "Several devices",
    "analysis": "Analysis",
    "keras_posenc": "The package itself",
    "keras_posenc_cli": "The command",
    "keras_posenc_worker": "Exports, in the worker",
}


class Entry(NamedTuple):
    """What errors mean whose message and place match."""

    message: str
    cause: str
    remedy: str
    place: str = ""

    def matches(self, error: Raised) -> bool:
        found = re.search(self.message, error.message)
        return bool(found and re.match(self.place, error.place))


def entries() -> list[Entry]:
    with ENTRIES.open("rb") as file:
        return [Entry(**each) for each in tomllib.load(file)["error"]]


def room_of(error: Raised) -> str:
    package, room, *_ = error.place.removesuffix(".py").split("/")
    return room if room in ROOMS and package == "keras_posenc" else package


def page() -> Iterator[str]:
    """The lines of the page, as Markdown."""
    known = entries()
    errors = every()
    for room, title in ROOMS.items():
        yield f"## {title}"
        there = [error for error in errors if room_of(error) == room]
        by_entry = sorted(
            (next(i for i, each in enumerate(known) if each.matches(error)), n)
            for n, error in enumerate(there)
        )
        for index, group in itertools.groupby(by_entry, lambda pair: pair[0]):
            entry = known[index]
            yield f"\n{entry.cause}\n**What to do:** {entry.remedy}\n"
            for message, kind in sorted(
                {(there[n].message, there[n].kind) for _, n in group}
            ):
                yield f"- `{kind}`: `` {' '.join(message.split())} ``"
        yield ""
