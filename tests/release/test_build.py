"""The same commit gives the same files, whoever builds them and when."""

import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

pytest.importorskip("build")
ROOT = Path(__file__).parents[2]
NAMES = ("pyproject.toml", "setup.cfg", "MANIFEST.in", "README.md")
NAMES += ("LICENSE", "CHANGELOG.md", "CITATION.cff", "keras_posenc")
NAMES += ("keras_posenc_cli", "keras_posenc_worker")
NAMES += ("release", "export/android")


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


def test_a_release_leads_to_its_repository(tmp_path):
    """Every link and address; and there is no checkout to install."""
    for name in ("README.md", "pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "keras_posenc").mkdir()
    (tmp_path / "keras_posenc" / "__init__.py").write_text(
        '__version__ = "1.2.3"\n'
    )
    fill_in = runpy.run_path(str(ROOT / "release" / "build.py"))["fill_in"]
    fill_in(tmp_path, "https://example.org/a")
    readme = (tmp_path / "README.md").read_text("utf-8")
    assert "](https://example.org/a/blob/v1.2.3/docs/faq.md)" in readme
    assert "](https://example.org/a/raw/v1.2.3/docs/export.svg)" in readme
    links = re.findall(r"\]\((.+?)\)", readme)
    assert all(link.startswith("https://") for link in links)
    assert "\nWith Python 3.11 or later." in readme
    assert "\npip install keras-posenc   # installs Keras" in readme
    assert "checkout" not in readme.partition("## A.")[0]
    assert "pip install 'keras-posenc[chat,checkpoints," in readme
    settings = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert settings["project"]["urls"]["Repository"] == "https://example.org/a"
    citation = yaml.safe_load((tmp_path / "CITATION.cff").read_text())
    assert citation["repository-code"] == "https://example.org/a"


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
    # The packages, with what they hold besides modules, and nothing else.
    own = {name for name in packed if ".dist-info/" not in name}
    assert {name for name in own if not name.endswith(".py")} == {
        f"keras_posenc/{name}"
        for name in ("py.typed", "__init__.pyi", "export/operators.toml")
    }
    assert {name.partition("/")[0] for name in own} == {
        *("keras_posenc", "keras_posenc_cli", "keras_posenc_worker")
    }
    assert {*modules, "CHANGELOG.md", "CITATION.cff", "LICENSE"} <= found
    assert "export/android/TextTask.kt" in found
    assert not any(name.startswith(("tests", "release")) for name in found)
