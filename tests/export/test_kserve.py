"""An export behind KServe's model server: the short form of `make soak`."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import keras_posenc as kp
from tests.generation import toy

pytestmark = pytest.mark.tensorflow
pytest.importorskip("kserve")
pytest.importorskip("tensorflow_text")
tf = pytest.importorskip("tensorflow")
InvalidInput = pytest.importorskip("kserve.errors").InvalidInput

SOAK = Path(__file__).with_name("soak.py")
PREDICTOR = Path(__file__).parents[2] / "export" / "kserve" / "predictor.py"
WARMUP = Path("assets.extra", "tf_serving_warmup_requests")


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A folder with version 1, which has a warm-up request."""
    pytest.importorskip("tensorflow_serving")
    folder = tmp_path_factory.mktemp("versions")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    kp.export_saved_model(model, folder, warmup=True, verbose=False)
    return folder


def predictor_of(folder, max_bytes=65536):
    module = runpy.run_path(str(PREDICTOR))
    predictor = module["Predictor"]("judge", folder, 1.0, max_bytes)
    predictor.refresh()
    return predictor


@pytest.fixture
def predictor(versions, tmp_path):
    return predictor_of(shutil.copytree(versions, tmp_path / "judge"))


def test_what_cannot_be_loaded_is_said_once(predictor, caplog):
    broken = Path(predictor.folder, "2")
    broken.mkdir()
    for _ in range(3):
        predictor.try_refresh()
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith("judge: version 2 cannot be loaded: OSError: ")
    assert said.endswith("; version 1 goes on")
    assert "\n" not in said
    assert record.exc_info is None
    (broken / "saved_model.pb").write_bytes(b"no message")
    predictor.try_refresh()
    assert len(caplog.records) == 2
    broken.rename(broken.with_name("3"))
    predictor.try_refresh()
    assert "version 3 cannot be loaded" in caplog.records[2].getMessage()
    assert predictor.version == 1


def test_warmup_is_replayed(predictor, caplog):
    one, two = (Path(predictor.folder, name) for name in "12")
    shutil.copytree(one, two)
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(str(two / WARMUP)) as writer:
        log = prediction_log_pb2.PredictionLog()
        request = log.predict_log.request
        request.model_spec.signature_name = "no_such_signature"
        writer.write(log.SerializeToString())
    predictor.try_refresh()
    assert predictor.version == 1
    (record,) = caplog.records
    assert "no_such_signature" in record.getMessage()
    shutil.copy(one / WARMUP, two / WARMUP)
    predictor.try_refresh()
    assert predictor.version == 2


def test_null_is_nan_of_floats(predictor):
    rows = [[1.0, None, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]
    lost, right = predictor._predict({"instances": rows})["predictions"]
    assert [x != x for x in lost] == [True, True]
    _, alone = predictor._predict({"inputs": rows[1:] * 2})["outputs"]
    assert right == alone
    for other in ("2", [2]):
        rows[0][1] = other
        with pytest.raises(InvalidInput):
            predictor._predict({"instances": rows})


@pytest.fixture(scope="module")
def generator():
    """From texts to texts, of sources of at most 17 characters."""
    position = kp.PositionEmbedding(19)
    return toy.generator(of_model={"input_position": position})


@pytest.fixture(scope="module")
def served(generator, tmp_path_factory):
    """The predictor of its SavedModel."""
    folder = tmp_path_factory.mktemp("dates")
    kp.export_saved_model(generator, folder, verify=False, verbose=False)
    return predictor_of(folder, max_bytes=64)


def test_generator_answers_texts_ids_and_pairs(served, generator):
    texts = ["abc", "", "없다", "abcdefgh" * 2]
    wanted = {
        name: value.numpy()
        for name, value in generator(tf.constant(texts)).items()
    }
    wanted["text"] = [text.decode() for text in wanted["text"]]
    by_row = served._predict({"instances": texts})["predictions"]
    by_column = served._predict({"inputs": texts})["outputs"]
    assert [row["text"] for row in by_row] == wanted["text"]
    assert by_column["text"] == wanted["text"]
    assert by_column["score"] == pytest.approx(wanted["score"], abs=1e-5)
    ids = [[2, 4, 5, 6, 3], [2, 3, 2, 2, 2]]  # as servers pad
    found = served._predict(
        {
            "signature_name": "from_ids",
            "inputs": {"ids": ids, "lengths": [5, 2]},
        }
    )["outputs"]
    assert found["score"] == pytest.approx(wanted["score"][:2], abs=1e-5)
    pair = {"source": "abc", "target": "ab"}
    (found,) = served._predict(
        {"signature_name": "score", "instances": [pair]}
    )["predictions"]
    pair = {name: tf.constant([text]) for name, text in pair.items()}
    score = generator.scorer(pair)["score"]
    assert found["score"] == pytest.approx(float(score[0]), abs=1e-5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"instances": ["abc", "a" * 18]}, "no number for `score`: .*longer"),
        ({"instances": ["a" * 65]}, "`text` may have 64 bytes, and has 65"),
        ({"instances": [20240307]}, "`text` must be a string"),
        ({"instances": [None]}, "`text` must be a string"),
        ({"instances": [["abc"]]}, r"of shape \(None,\), and is of \(1, 1\)"),
        ({"ids": [[4, 12]], "lengths": [2]}, r"= 12 is not in \[0, 12\)"),
        ({"ids": [[4, -1]], "lengths": [2]}, r"is not in \[0, 12\)"),
        ({"ids": [["a"]], "lengths": [1]}, "`ids` must be of int32"),
        ({"ids": [[4.5]], "lengths": [1]}, "`ids` must be of int32"),
        ({"ids": [[2**31]], "lengths": [1]}, "`ids` must be of int32"),
        ({"ids": [[4], [4, 5]], "lengths": [1, 2]}, "rows of one shape"),
        ({"ids": [[4]]}, "`inputs` must have .*lengths"),
        ({"source": ["a"], "target": ["a" * 30]}, "no number for"),
        ({"source": ["a"]}, "`inputs` must have .*target"),
    ],
    ids=str,
)
def test_what_a_generator_does_not_take_is_said(served, body, reason):
    if "instances" not in body:
        name = "from_ids" if "ids" in body else "score"
        body = {"signature_name": name, "inputs": body}
    with pytest.raises(InvalidInput, match=reason):
        served._predict(body)
    assert served._predict({"instances": ["abc"]})["predictions"]


@pytest.mark.slow
def test_soak():
    process = subprocess.run(
        [sys.executable, SOAK, "--requests", "1000", "--swaps", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout + process.stderr[-2000:]
    found = json.loads(process.stdout)
    assert found["problems"] == []
    assert "failed" not in found
    assert "wrong" not in found
    assert found["last_are_of_the_last_version"]
    assert found["model 1"] > 100
    assert found["model 2"] > 100
    assert found["bad: 400"] > 100
    assert found["nan_rows"] == 10
