"""Builds the sdist and the wheel of the last commit, the same bytes each time.

    python release/build.py dist
    REPOSITORY=https://github.com/OWNER/NAME python release/build.py dist

What is not committed is left out. The time of all that is in them is the
commit's. With `REPOSITORY`, as in a release, the package's page shows the
address and its links lead there. Needs git, and `build` and setuptools.
"""

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*arguments):
    """What git answers in the checkout."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def fill_in(folder, repository):
    """Writes the address of the repository into the files that show it.

    A checkout has its own files to link to and to install. A released package
    has not: README.md gets links to the release's tag and the package's name,
    pyproject.toml and CITATION.cff the address.
    """
    source = (folder / "keras_posenc" / "__init__.py").read_text("utf-8")
    (version,) = re.findall(r'__version__ = "(.+)"', source)
    readme = (folder / "README.md").read_text("utf-8")
    for old, new in (
        ("In a checkout, with Python", "With Python"),
        (r"pip install \.", "pip install keras-posenc"),
        (r"pip install '\.\[", "pip install 'keras-posenc["),
        (r"\]\((?=\S+\.svg\))", f"]({repository}/raw/v{version}/"),
        (r"\]\((?![a-z]+:)", f"]({repository}/blob/v{version}/"),
    ):
        readme, count = re.subn(old, new, readme)
        assert count, f"README.md has no {old}"
    (folder / "README.md").write_text(readme, "utf-8")
    with open(folder / "pyproject.toml", "a", encoding="utf-8") as file:
        print("\n[project.urls]", file=file)
        print(f'Repository = "{repository}"', file=file)
        print(f'Issues = "{repository}/issues"', file=file)
        changes = f"{repository}/blob/v{version}/CHANGELOG.md"
        print(f'Changelog = "{changes}"', file=file)
    with open(folder / "CITATION.cff", "a", encoding="utf-8") as file:
        print(f"repository-code: {repository}", file=file)


def build(kind, source, folder):
    """The one file of a kind that is built of a folder."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}"]
    subprocess.run(
        [*command, "--outdir", str(folder), str(source)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (found,) = folder.iterdir()
    return found


def settle(sdist, target, epoch):
    """Copies an sdist without who made it, when and under which umask.

    setuptools writes all of these, and heeds SOURCE_DATE_EPOCH in wheels alone.
    """
    with (
        tarfile.open(sdist) as members,
        open(target, "xb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as settled,
    ):
        for member in sorted(members, key=lambda member: member.name):
            same = tarfile.TarInfo(member.name)
            same.type, same.size, same.mtime = member.type, member.size, epoch
            same.mode = (
                0o755 if member.isdir() or member.mode & 0o100 else 0o644
            )
            settled.addfile(same, members.extractfile(member))


def main():
    """Builds both into a folder, in the place of what was built before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if changed := git("status", "--porcelain").decode():
        print(f"Not committed, and left out:\n{changed}", file=sys.stderr)
    epoch = int(git("log", "-1", "--format=%ct"))
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    os.umask(0o022)  # a wheel has the modes of its files
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("*.tar.gz", "*.whl"):
        for earlier in folder.glob(kind):
            earlier.unlink()
    with tempfile.TemporaryDirectory() as place:
        commit, made, wheel = (Path(place, name) for name in "abc")
        archive = Path(place, "commit.tar")
        archive.write_bytes(git("archive", "HEAD"))
        with tarfile.open(archive) as members:
            members.extractall(commit, filter="data")
        if repository := os.environ.get("REPOSITORY"):
            fill_in(commit, repository)
        sdist = build("sdist", commit, made)
        settled = folder / sdist.name
        settle(sdist, settled, epoch)
        # The wheel is of the sdist: what is missing there is missing here.
        with tarfile.open(settled) as members:
            members.extractall(commit, filter="data")
        source = commit / sdist.name.removesuffix(".tar.gz")
        found = build("wheel", source, wheel)
        shutil.move(found, folder)
    for found in sorted(folder.iterdir()):
        print(found)


if __name__ == "__main__":
    main()
