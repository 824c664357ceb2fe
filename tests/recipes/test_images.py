"""The Dockerfiles, as far as they can be read without Docker."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Of each file, and what its `COPY` finds its sources in.
CONTEXTS = {"export/kserve": "export/kserve", "export/command": "."}
MADE = {"dist"}  # by `make dist`


def instructions(text):
    """Each instruction's name and its words."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, rest = line.split(maxsplit=1)
            yield name, shlex.split(rest)


def faults(text, context):
    """What a Dockerfile has that ours may not have."""
    read = list(instructions(text))
    users = [words[0] for name, words in read if name == "USER"]
    if not users or re.match(r"(root|0)\b", users[-1]):
        yield "runs as root"
    for name, words in read:
        if name == "FROM" and not re.search(
            r":\d+\.\d+\.\d+-[\w-]+$", words[0]
        ):
            yield f"{words[0]} may be another one tomorrow"
        if name in ("ADD", "SHELL"):
            yield f"{name} is not for us"
        if name == "COPY":
            for source in words[:-1]:
                if not (context / source).is_file():
                    yield f"{source} does not exist"
        mounts = [word for word in words if word.startswith("--mount=")]
        for source in re.findall(r"source=([^,]+)", " ".join(mounts)):
            if source not in MADE and not (context / source).exists():
                yield f"{source} does not exist"
        if name == "RUN" and "install" in words:
            hashed = "--require-hashes" in words
            if not (hashed or {"--no-deps", "--no-index"} <= {*words}):
                yield "installs what has no hash"
    if read[-1][0] not in ("ENTRYPOINT", "CMD"):
        yield "starts nothing"


@pytest.mark.parametrize("folder", CONTEXTS)
def test_image(folder):
    text = (ROOT / folder / "Dockerfile").read_text()
    assert list(faults(text, ROOT / CONTEXTS[folder])) == []
