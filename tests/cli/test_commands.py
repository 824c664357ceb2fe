"""What is so of every command: its answer, as JSON too, and what it refuses."""

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.tensorflow

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "hugging_face"


@pytest.fixture(scope="module")
def copy(folder, tmp_path_factory):
    """A folder with artifacts, a checkpoint, and rows."""
    here = tmp_path_factory.mktemp("commands") / "here"
    shutil.copytree(folder, here)
    shutil.copytree(FIXTURES / "bert", here / "bert")
    (here / "nothing").mkdir()
    (here / "x.keras").mkdir()
    table = pa.table({"ids": [[1, 2], [3]], "name": ["a", "b"]})
    pq.write_table(table, here / "rows.parquet")
    return here


@pytest.fixture
def here(copy, monkeypatch):
    """... as the working directory, with no record of a verification."""
    (copy / "model.tflite.cases.npz").unlink(missing_ok=True)
    monkeypatch.chdir(copy)
    return copy


def names(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


# What no command's own tests say, and a key of it as JSON.
ANSWERS = [
    (
        "verify model.tflite model.keras --max-length 4",
        "model.tflite: verified: ",
        "cases",
    ),
    (
        "bench model.tflite --lengths 3",
        "serving_default, (1, 3): median ",
        "timings",
    ),
]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("line", "said", "key"), ANSWERS)
def test_every_command_answers(run, line, said, key):
    result = run(*line.split())
    assert result.code == 0, result.err
    assert said in result.out
    result = run(*line.split(), "--json")
    assert result.code == 0, result.err
    assert key in json.loads(result.out)


SCORE = "score model.tflite --allow-unverified --out out --in"
SAVED_MODEL = "export saved-model model.keras --max-length 4 --out m"
REFUSED = [
    ("inspect nothing", "no numbered version that has one"),
    ("inspect rows.parquet", "'rows.parquet' is neither a LiteRT"),
    ("verify nothing model.keras", "'nothing' is no SavedModel"),
    ("verify model.keras model.keras", "is a model: give the exported"),
    ("verify bert bert --import json", "--import is not for a checkpoint"),
    ("inspect model.keras", "is a model: keras-posenc inspect takes exported"),
    ("inspect bert", "'bert' is a model: "),
    (f"{SAVED_MODEL} --import nowhere", "--import nowhere: No module named"),
    ("diff model.tflite model.tflite", "verify FILE MODEL.keras"),
    ("bench versions", "must be a LiteRT file"),
    ("import nothing", "'nothing' is no checkpoint of Hugging Face: it has"),
    ("import bert --from-ids --out a.h5", "end in '.keras'. Received: 'a.h5'"),
    ("import bert --from-ids --out x.keras", "and 'x.keras' is a folder"),
    (
        "import bert",
        "Or keras-posenc import bert --from-ids makes a model that needs none",
    ),
    (f"{SAVED_MODEL} --labels yes,no,maybe", "3 labels for scores of"),
    (f"{SAVED_MODEL} --labels no.txt", "'no.txt' cannot be read: No such fi"),
    (f"{SAVED_MODEL} --labels model.keras", "cannot be read: 'utf"),
    (
        f"{SAVED_MODEL} --warmup --no-verify",
        "--warmup cannot be used with --no-verify",
    ),
    (f"{SAVED_MODEL} --batching max_batch_size=1:2", "is not NAME=N"),
    (
        f"{SAVED_MODEL} --batching speed=9",
        "--batching chooses the parameters. By name, max_batch_size, ",
    ),
    ("score bert --in x --out out", "Export it first: keras-posenc export"),
    (f"{SCORE} *.csv", "'*.csv' does not exist"),
    (f"{SCORE} model.tflite", "must be a .parquet, .csv or .jsonl file"),
    (f"{SCORE} out", "--out must be another folder than --in"),
    (
        "score model.tflite --in rows.parquet --out model.keras",
        "--out must be a folder, and 'model.keras' is a file",
    ),
]


@pytest.mark.parametrize(("line", "reason"), REFUSED)
def test_every_command_refuses(run, here, line, reason):
    """... what it cannot do, by an option to change; nothing appears."""
    before = names(here)
    result = run(*line.split())
    assert (result.code, result.out) == (2, "")
    assert reason in result.err.splitlines()[-1]
    assert names(here) == before


@pytest.mark.parametrize(
    ("module", "line", "extra"),
    [
        ("safetensors", "import bert --from-ids", "checkpoints"),
        ("onnx", "inspect m.onnx", "onnx"),
    ],
)
def test_extra_that_a_command_needs(
    run, here, monkeypatch, module, line, extra
):
    (here / "m.onnx").write_bytes(b"\x08\x09")
    for name in list(sys.modules):
        if name.partition(".")[0] == module:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    result = run(*line.split())
    assert result.code == 2
    assert f"pip install 'keras-posenc[{extra}]'" in result.err
