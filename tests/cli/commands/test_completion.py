"""`keras-posenc completion`: what a shell makes of it."""

import shutil
import subprocess

import pytest

BASH, ZSH = shutil.which("bash"), shutil.which("zsh")

# Completes its arguments, of which the last is to be completed.
COMPLETE = """
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"$(complete -p keras-posenc | sed 's/.*-F \\([^ ]*\\) .*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(BASH is None, reason="bash is missing")
def test_bash(run, tmp_path):
    pytest.importorskip("shtab")
    result = run("completion", "bash")
    assert result.code == 0, result.err
    (tmp_path / "judge.tflite").touch()

    def complete(*words):
        process = subprocess.run(
            [BASH, "-c", result.out + COMPLETE, "bash", "keras-posenc", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stderr == ""
        return process.stdout.split()

    assert complete("ex") == ["export"]
    assert complete("export", "") == [
        "saved-model",
        "litert",
        "litertlm",
        "onnx",
    ]
    litert = ("export", "litert", "m.keras")
    assert complete(*litert, "--qu") == ["--quantization"]
    kinds = ["float16", "int8", "int8-weights", "int8-static", "int4", "auto"]
    assert complete(*litert, "--quantization", "") == kinds
    onnx = ("export", "onnx", "m.keras", "--quantization", "")
    assert complete(*onnx) == ["int8"]
    assert complete("export", "saved-model", "m.keras", "--qu") == []
    assert complete("inspect", "ju") == ["judge.tflite"]
    assert complete(*litert, "--out", "ju") == ["judge.tflite"]
    assert complete(*litert, "--task", "ju") == []


@pytest.mark.skipif(ZSH is None, reason="zsh is missing")
def test_zsh_reads_it(run):
    pytest.importorskip("shtab")
    result = run("completion", "zsh")
    assert result.code == 0, result.err
    subprocess.run([ZSH, "-fn"], input=result.out, text=True, check=True)


def test_zsh_shows_what_commands_do(run):
    pytest.importorskip("shtab")
    result = run("completion", "zsh")
    assert result.out.startswith("#compdef keras-posenc\n")
    assert "inspect:'show what a file contains, and whether" in result.out
