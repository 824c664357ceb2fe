"""The same commit gives the same files, whoever builds them and when."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build")
ROOT = Path(__file__).parents[2]
NAMES = ("pyproject.toml", "setup.cfg", "MANIFEST.in", "README.md")
NAMES += ("LICENSE", "CHANGELOG.md", "CITATION.cff", "keras_posenc")
NAMES += ("keras_posenc_cli", "release", "export/android")


def git(folder, *arguments):
    person = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", folder, *person, *arguments], check=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """What of this one is packed, committed."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in NAMES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / ".gitignore").write_text("__pycache__/\n/dist*/\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_a.py").write_text("assert True\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder


def build(checkout, target, umask, **environment):
    subprocess.run(
        [sys.executable, checkout / "release" / "build.py", target],
        check=True,
        umask=umask,
        env={**os.environ, **environment},
    )
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in target.iterdir()
    }


@pytest.mark.slow
def test_two_builds_are_the_same(checkout, tmp_path):
    one = build(checkout, checkout / "dist", 0o022)
    time.sleep(1.1)  # the clock of archives has seconds, that of zip two
    (checkout / "keras_posenc" / "forgotten.py").touch()
    elsewhere = {
        "TMPDIR": str(tmp_path),
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Seoul",
    }
    other = build(checkout, tmp_path / "dist", 0o077, **elsewhere)
    assert one == other
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as members:
        root, *_ = members.getnames()
        found = {name.removeprefix(f"{root}/") for name in members.getnames()}
    modules = {name for name in packed if name.endswith((".py", "py.typed"))}
    assert "keras_posenc/forgotten.py" not in packed
    assert {*modules, "CHANGELOG.md", "CITATION.cff", "LICENSE"} <= found
    assert "export/android/TextTask.kt" in found
    assert not any(name.startswith(("tests", "release")) for name in found)
