"""The streams, signals and errors of the command."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from keras_posenc_cli import main
from keras_posenc_cli.options import option_names, print_report
from keras_posenc_cli.process import in_options
from tests.cli.words import PARSERS

pytestmark = pytest.mark.tensorflow


class TestStreams:
    def test_an_error_that_is_nobodys_fault_shows_itself(
        self, cli, monkeypatch
    ):
        from keras_posenc.export import inspect as inspection

        def inspect(path):
            raise KeyError("a fault of the package")

        monkeypatch.setattr(inspection, "inspect_export", inspect)
        with pytest.raises(KeyError, match="a fault of the package"):
            cli("inspect", "model.tflite")

    def test_paths_are_no_markup(self, cli, folder, tmp_path):
        # Rich would take these brackets for a style, or stumble over them;
        # and break a line that is longer than a terminal is wide.
        inner = tmp_path / "model=[bold]drafts [" / ("long" * 20)
        inner.mkdir(parents=True)
        (inner / "red]").mkdir()
        path = inner / "red]" / "model[v2].keras"
        shutil.copy(folder / "model.keras", path)
        out = path.with_name("model=1.tflite")
        result = cli("export", "litert", path, "--out", out, "--no-verify")
        assert (result.code, result.out) == (0, f"{out}: not verified\n")
        assert result.err.splitlines()[0] == f"Loading {path} ..."

    @pytest.mark.slow
    def test_script_in_a_shell_of_another_backend(
        self, folder, tmp_path, export, run_script
    ):
        # Exports need TensorFlow, which therefore is the command's choice;
        # and what TensorFlow has to say is not for the terminal.
        out = tmp_path / "m.tflite"
        process = run_script(
            *export("litert", out),
            cwd=folder,
            variables={"KERAS_BACKEND": "jax"},
        )
        assert process.returncode == 0, process.stderr
        assert process.stderr.splitlines() == [
            "Loading model.keras ...",
            "Converting to LiteRT ...",
            "Computing reference outputs ...",
            "Waiting for the converter ...",
            "Verifying it in a fresh process ...",
        ]
        (line,) = process.stdout.splitlines()
        assert line.startswith(f"{out}: verified: 5 cases, largest difference ")

    @pytest.mark.parametrize(
        "arguments", ["--help", "inspect model.tflite --json"]
    )
    def test_reader_that_went_away(self, cli, monkeypatch, arguments):
        # As in `keras-posenc ... | head`. Python flushes its output once more
        # when it ends, as does closing it here.
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            result = cli(*arguments.split())
        assert result.code == 0
        assert "roken pipe" not in result.err

    def test_no_standard_error(self, folder, shell, script):
        command = ("sh", "-c", 'exec "$0" "$@" 2>&-', script)
        process = subprocess.run(
            [*command, "inspect", "missing.tflite"],
            cwd=folder,
            env=shell(),
            check=False,
        )
        assert process.returncode == 2

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("SIGINT", ValueError),
            ("SIGTERM", SystemError),
            ("SIGHUP", KeyError),
        ],
    )
    def test_end_that_comes_out_as_another_error(
        self, cli, monkeypatch, name, error
    ):
        # As from TensorFlow's native code, which calls Python.
        from keras_posenc.export import inspect as inspection

        number = getattr(signal, name)

        def inspect(path):
            try:
                signal.raise_signal(number)
            except BaseException:
                raise error("bad argument to internal function") from None

        monkeypatch.setattr(inspection, "inspect_export", inspect)
        earlier = signal.signal(number, signal.default_int_handler)
        try:
            result = cli("inspect", "model.tflite")
            after = signal.getsignal(number)
        finally:
            signal.signal(number, earlier)
        assert after is signal.default_int_handler
        assert result.code == 128 + number
        reason = "interrupted" if name == "SIGINT" else "ended"
        assert result.err == (f"keras-posenc: {reason} by {name}\n")

    def test_ignored_signals_stay_ignored(self, cli, monkeypatch):
        # As under nohup.
        from keras_posenc.export import inspect as inspection

        def inspect(path):
            signal.raise_signal(signal.SIGHUP)
            raise ValueError("went on")

        monkeypatch.setattr(inspection, "inspect_export", inspect)
        earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            result = cli("inspect", "model.tflite")
        finally:
            signal.signal(signal.SIGHUP, earlier)
        assert (result.code, result.err) == (1, "keras-posenc: went on\n")

    def test_end_of_a_verification_leaves_nothing(
        self, cli, tmp_path, export, monkeypatch
    ):
        from keras_posenc.export import pipeline

        def run_model(*_, **__):
            assert [path.name for path in tmp_path.iterdir()] == ["out"]
            signal.raise_signal(signal.SIGTERM)  # for the main thread
            return {"cases": []}

        monkeypatch.setattr(pipeline, "run_model", run_model)
        earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            result = cli(*export("saved-model", tmp_path / "out"))
        finally:
            signal.signal(signal.SIGTERM, earlier)
        assert result.code == 128 + signal.SIGTERM
        assert result.out == ""
        assert result.err.endswith("\nkeras-posenc: ended by SIGTERM\n")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "module",
        [
            "argparse",
            "keras_posenc_cli.commands.verify",
        ],
    )
    def test_interrupted_while_it_begins(self, tmp_path, module, shell):
        program = (
            "import os, signal, sys\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "module = sys.argv.pop(1)\n"
            "for name in [*sys.modules]:\n"
            "    if name == module: del sys.modules[name]\n"
            "class Finder:\n"
            "    def find_spec(self, name, *_):\n"
            "        if name == module:\n"
            "            os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Finder())\n"
            "from keras_posenc_cli import main\n"
            "sys.exit(main())"
        )
        process = subprocess.run(
            [sys.executable, "-c", program, module, "inspect", "x.tflite"],
            cwd=tmp_path,
            env=shell(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.stderr == "keras-posenc: interrupted by SIGINT\n"
        assert process.returncode == 130
        assert process.stdout == ""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("`tolerance` is. Received: tolerance=1", "--tolerance is. Received: "),
        ("No. Received: limits={'kl': 2.0}. Or", "ved: --limit kl=2.0. Or"),
        ("Received: samples={'x': array([1])}", ": --samples FILE.npz"),
        ("Received: signatures={'x': <m>}", ": --signature={'x': <m>}"),
        ("give `signatures={'a': (model, {'x': (None, 4)})}`", "a=x:?x4"),
        ("`signatures={'a': (1, 2)}`", "--signature 'a=(1, 2)'"),
        *[
            (data, data)
            for data in ("a/model=b/c", "'tolerance=1'", "'`model`'")
        ],
        ("max_length=64/1: verified", "max_length=64/1: verified"),
        ("give `samples`", "samples of kp.export_litertlm"),
    ],
)
def test_arguments_become_options_and_data_stay(message, said, capsys):
    kind = "litertlm" if "litertlm" in said else "onnx"
    parser = PARSERS[f"keras-posenc export {kind}"]
    assert said in in_options(message, option_names(parser))
    print_report(f"`model`=m\n{message}", parser)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "`model`=m"
    assert said in second


def test_only_an_export_calls_its_path_out():
    for name, parser in PARSERS.items():
        assert ("path" in option_names(parser)) == (" export " in name)


@pytest.mark.parametrize(("said", "kept"), [(None, "1"), ("0", "0")])
def test_onednn_is_on_unless_the_user_says_no(cli, monkeypatch, said, kept):
    name = "TF_ENABLE_ONEDNN_OPTS"
    if said is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, said)
    cli("inspect", "missing.tflite")
    assert os.environ[name] == kept


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["verify", "missing.tflite", "missing.keras"], "1"),
        (["export", "onnx", "missing.keras", "--out", "m.onnx"], "1"),
        (["inspect", "missing.tflite"], None),  # as those that compute long
    ],
)
def test_exports_have_onednn_keep_no_memory(run, monkeypatch, arguments, kept):
    """In a process of the command's own: another one is the caller's."""
    name = "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"
    monkeypatch.delenv(name)
    monkeypatch.setattr(
        "keras_posenc_cli.process.run_in_order", lambda *_, **__: 0
    )
    run(*arguments)
    assert name not in os.environ
    monkeypatch.setattr(sys, "argv", ["keras-posenc", *arguments])
    assert main() == 0
    assert os.environ.get(name) == kept
