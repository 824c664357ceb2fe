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


@pytest.fixture
def predictor(versions, tmp_path):
    module = runpy.run_path(str(PREDICTOR))
    folder = shutil.copytree(versions, tmp_path / "judge")
    predictor = module["Predictor"]("judge", folder, 1.0, 65536)
    predictor.refresh()
    return predictor


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
