"""docs/publish.sh puts a built site beside the published ones."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "publish.sh"
pytestmark = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is missing"
)


def git(folder, *arguments):
    me = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    run = subprocess.run(
        ["git", "-C", folder, *me, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout


def test_versions_stand_side_by_side(tmp_path):
    origin, checkout, site = (
        tmp_path / name for name in ("origin", "checkout", "site")
    )
    for folder in (origin, checkout, site):
        folder.mkdir()
    git(origin, "init", "--bare")
    git(checkout, "init")
    (checkout / "code.py").write_text("no part of the site\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-m", "code")
    git(checkout, "remote", "add", "origin", str(origin))

    def publish(version, text):
        (site / "index.html").write_text(text)
        return subprocess.run(
            ["sh", SCRIPT, checkout, site, version], capture_output=True
        ).returncode

    for version in ("latest", "v0.2.0", "v0.10.0"):
        assert publish(version, version) == 0
    assert publish("latest", "newer") == 0
    assert publish("latest", "newer") == 0  # nothing to do
    assert publish("../v1", "wrong") == 2

    def show(path):
        return git(origin, "show", f"gh-pages:{path}")

    versions = ["latest", "v0.10.0", "v0.2.0"]
    assert git(origin, "ls-tree", "--name-only", "gh-pages").split() == [
        ".nojekyll",
        "index.html",
        *versions,
        "versions.json",
    ]
    assert json.loads(show("versions.json")) == versions
    assert show("latest/index.html") == "newer"
    assert show("v0.2.0/index.html") == "v0.2.0"
    assert "url=latest/" in show("index.html")
