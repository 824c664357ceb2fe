"""The server's configuration, generated for a model."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "export" / "tf_serving" / "make_configs.py"

pytest.importorskip("tensorflow_serving")


def make(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("serving") / "judge"
    (base / "1").mkdir(parents=True)
    return base


@pytest.mark.parametrize(
    ("options", "name", "path"),
    [
        ((), "judge", "/models/judge"),
        (("--name", "other-1.b"), "other-1.b", "/models/other-1.b"),
        (("--server-path", "/data/x"), "judge", "/data/x"),
    ],
)
def test_server_reads_the_configs(folder, tmp_path, options, name, path):
    from tensorflow_serving.config import model_server_config_pb2

    more = []
    if not options:
        more = [tmp_path / "other" / "3"]
        more[0].mkdir(parents=True)
    given = (each.parent for each in more)
    process = make(folder, *given, *options, "--out", tmp_path / "new")
    assert process.returncode == 0, process.stderr
    config = text_format.Parse(
        (tmp_path / "new" / "models.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    model, *others = config.model_config_list.config
    assert model.name == name
    assert model.base_path == path
    assert model.model_platform == "tensorflow"
    assert [each.base_path for each in others] == [
        f"/models/{each.parent.name}" for each in more
    ]
    monitoring = (tmp_path / "new" / "monitoring.config").read_text()
    assert monitoring.split() == [
        *("prometheus_config", "{", "enable:", "true"),
        *("path:", '"/monitoring/prometheus/metrics"', "}"),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("no_such_folder",), "'no_such_folder' has no versions"),
        (
            ("{folder}/..",),
            "'{folder}/..' has no versions: '{folder}/../judge' has",
        ),
        (
            ("{folder}/1",),
            "'{folder}/1' has no versions: it is one, of '{folder}'",
        ),
        (
            ("{folder}", "--name", "a/b"),
            "--name must be a part of an address, not 'a/b'",
        ),
        (("{folder}", "{folder}"), "Two models cannot both be 'judge'"),
        (
            ("{folder}", "{folder}/.", "--name", "judge"),
            "--name and --server-path are for one BASE_PATH",
        ),
    ],
)
def test_what_no_server_could_serve(folder, tmp_path, arguments, reason):
    arguments = [argument.format(folder=folder) for argument in arguments]
    process = make(*arguments, "--out", tmp_path / "new")
    assert process.returncode == 1
    assert process.stderr == f"{reason.format(folder=folder)}\n"
    assert list(tmp_path.iterdir()) == []
