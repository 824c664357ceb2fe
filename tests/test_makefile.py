"""Targets that need what a machine may lack say what to install."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def run(tmp_path):
    """Runs a command with nothing but some programs in its path."""

    def run(command, *programs):
        for name in programs:
            target = shutil.which(name) or shutil.which("true")
            (tmp_path / name).symlink_to(target)
        return subprocess.run(
            [shutil.which(command[0]) or command[0], *command[1:]],
            cwd=ROOT,
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
def test_the_callers_xla_flags_are_kept(run, tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$XLA_FLAGS"\n')
    python.chmod(0o755)
    (tmp_path / "venv" / ".installed").touch()
    command = ["env", "XLA_FLAGS=--own", "make", "test"]
    process = run([*command, f"VENV={tmp_path / 'venv'}"], "make")
    assert process.returncode == 0, process.stderr
    assert "\n--own --xla" in process.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
def test_an_install_that_was_broken_off_is_made_anew(run, tmp_path):
    python, folder = tmp_path / "python", tmp_path / "venv"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;\n'
        f'*" install "*) echo "$*" >> {tmp_path}/said; '
        f"test -f {tmp_path}/network ;;\n"
        "esac\n"
    )
    python.chmod(0o755)
    stamp = folder / ".installed"
    command = ["make", str(stamp), f"VENV={folder}", f"PYTHON={python}"]
    programs = ("make", "rm", "mkdir", "cp", "mv", "touch")
    assert run(command, *programs).returncode == 2
    assert not stamp.exists()
    said = tmp_path / "said"
    assert "--force-reinstall" not in said.read_text()
    (tmp_path / "network").touch()
    process = run(command)
    assert process.returncode == 0, process.stderr
    assert stamp.exists()
    assert "--force-reinstall --no-deps --require-hashes" in said.read_text()
    said.unlink()
    stamp.unlink()
    assert run(command).returncode == 0
    assert "--force-reinstall" not in said.read_text()
    assert [path.name for path in folder.glob(".i*")] == [".installed"]
