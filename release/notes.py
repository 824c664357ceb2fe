"""Prints what CHANGELOG.md says of a version, for its release.

    python release/notes.py 0.1.0 https://example.org/blob/v0.1.0

Links to files of the repository lead to the address that is given. A version
that has no section yet is an error, and so is one that is still unreleased.
"""

import argparse
import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def notes(changelog, version, address):
    """The section of a version, without its title."""
    title = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n"
    found = re.search(rf"(?ms){title}(.*?)(?=^## |^\[|\Z)", changelog)
    if found is None:
        raise ValueError(
            f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'."
        )
    return re.sub(r"\]\((?![a-z]+:)", f"]({address}/", found[1]).strip() + "\n"


def main():
    """Prints the notes, or says what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("address", help="where the version's files are")
    options = parser.parse_args()
    text = CHANGELOG.read_text(encoding="utf-8")
    try:
        print(notes(text, options.version, options.address), end="")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
