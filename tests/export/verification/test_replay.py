"""The cases that are kept with a file prove it again without its model."""

import shutil

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.record import digests, record_path
from keras_posenc.export.replay import diff
from keras_posenc_worker import cases

pytestmark = pytest.mark.tensorflow

NAMES = ("m.tflite", "int8.tflite", "m.onnx", "m")


def build(bias=0.0):
    """Ids of any length, with more output numbers than are kept."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(40, 8)(ids)
    wide = keras.layers.Dense(600, name="wide")(x)
    wide = keras.layers.Dense(3, name="scores", bias_initializer="ones")(wide)
    model = keras.Model(ids, {"scores": wide, "vectors": x})
    model.get_layer("scores").bias.assign([bias, 0.0, 0.0])
    return model


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    keras.utils.set_random_seed(0)
    model, folder = build(), tmp_path_factory.mktemp("files")
    silent = {"verbose": False, "max_length": 600}
    kp.export_litert(model, folder / "m.tflite", **silent)
    kp.export_litert(
        model, folder / "int8.tflite", quantization="int8", **silent
    )
    kp.export_onnx(model, folder / "m.onnx", **silent)
    kp.export_saved_model(model, folder / "m", **silent)
    return folder


def copied(files, name, folder):
    """Copies a file with its cases."""
    path = folder / name
    if (files / name).is_dir():
        shutil.copytree(files / name, path)
        return path / "1"
    shutil.copy(files / name, path)
    shutil.copy(record_path(files / name), record_path(path))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_file_and_its_cases_in_each_runtime(files, tmp_path, name):
    path = copied(files, name, tmp_path)
    report = kp.verify_export(path, verbose=False)
    assert report.passed, str(report)
    wanted = {"m.onnx": {"onnx", "openvino"}, "m": {"saved_model"}}.get(
        name, {"litert", "litert_compiled"}
    )
    assert {each.runtime for each in report.runtimes} == wanted
    record = cases.unpack(record_path(path).read_bytes())
    assert len(record["cases"]) == report.runtimes[0].cases > 4
    assert record_path(path).stat().st_size < 5 * 2**20
    kept = [case["outputs"]["vectors"] for case in record["cases"]]
    assert any("places" in each for each in kept)
    seen = np.concatenate([x["inputs"]["ids"].ravel() for x in record["cases"]])
    assert {*range(40)} <= {*seen.tolist()}  # each row of the table


@pytest.mark.parametrize("name", ["int8.tflite", "m"])
def test_one_row_of_a_table_in_another_version(files, tmp_path, name):
    """The record says that the file is the right one; the numbers differ."""
    path = copied(files, name, tmp_path)
    record = cases.unpack(record_path(path).read_bytes())
    for case in record["cases"]:
        vectors = case["outputs"]["vectors"]
        ids = case["inputs"]["ids"]
        if "places" not in vectors:
            vectors["values"] = (
                vectors["values"] + 0.05 * (ids == 17)[..., None]
            )
    record_path(path).write_bytes(cases.pack(record))
    report = kp.verify_export(path, verbose=False)
    assert not report
    assert "serving_default/vectors: off by " in str(report)
    assert "FAILED" in str(report).splitlines()[0]


def test_file_that_is_another(files, tmp_path):
    path = copied(files, "m.tflite", tmp_path)
    kp.export_litert(
        build(1.0), tmp_path / "other.tflite", verify=False, verbose=False
    )
    shutil.copy(tmp_path / "other.tflite", path)
    with pytest.raises(
        kp.ExportVerificationError, match="is not the file that was verified"
    ):
        kp.verify_export(path, verbose=False)
    record = cases.unpack(record_path(path).read_bytes())
    record["files"] = digests(path)
    record_path(path).write_bytes(cases.pack(record))
    report = kp.verify_export(path, verbose=False)
    assert "serving_default/scores: off by " in str(report)
    assert "vectors" not in str(report.runtimes[0].errors[0])


def test_cases_of_no_use(files, tmp_path):
    path = copied(files, "m.tflite", tmp_path)
    record = cases.unpack(record_path(path).read_bytes())
    for case in record["cases"]:
        case["inputs"]["ids"] = case["inputs"]["ids"].astype("float64")
    record_path(path).write_bytes(cases.pack(record))
    report = kp.verify_export(path, verbose=False)
    assert not report
    assert "Got value of type" in str(report) or "dtype" in str(report)
    content = record_path(path).read_bytes()
    record_path(path).write_bytes(content[:-100])
    with pytest.raises(ValueError, match="cannot be used"):
        kp.verify_export(path, verbose=False)
    record_path(path).unlink()
    with pytest.raises(
        ValueError,
        match=r"has no record .*: `kp.verify_export\(path, model\)`",
    ):
        kp.verify_export(path, verbose=False)


def test_texts_and_choices(tmp_path):
    words = keras.layers.TextVectorization(vocabulary=["a", "bé", "c"])
    text = keras.Input((), dtype="string", name="text")
    ids = words(text)
    x = keras.layers.Embedding(6, 4, mask_zero=True)(ids)
    x = kp.Pooling1D("mean")(x)
    scores = keras.layers.Dense(3, activation="softmax", name="scores")(x)
    path = kp.export_saved_model(
        keras.Model(text, scores),
        tmp_path / "m",
        labels=["x", "y", "z"],
        samples=["a bé", "", "c c"],
        verbose=False,
    ).path
    report = kp.verify_export(path, verbose=False)
    assert report.passed
    record = cases.unpack(record_path(path).read_bytes())
    for case in record["cases"]:
        for output in case["outputs"].values():
            if output["values"].dtype == object:
                output["values"][...] = b"w"
    record_path(path).write_bytes(cases.pack(record))
    assert "off by 1, allowed 0" in str(kp.verify_export(path, verbose=False))


@pytest.mark.parametrize("other", ["m.onnx", "int8.tflite"])
def test_diff_of_two_files(files, other):
    found, notes = diff(files / "m.tflite", files / other, verbose=False)
    assert notes == []
    vectors, scores = sorted(found, key=lambda each: each.output)[::-1]
    assert vectors.output == "serving_default/vectors"
    is_exact = other != "int8.tflite"
    assert (scores.largest_difference <= 1e-5) == is_exact
    assert (scores.quality.sqnr > 100) == is_exact
    assert scores.quality.sqnr > 20
    assert scores.quality.rows > 0


def test_diff_of_files_that_do_not_fit(files, tmp_path):
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.layers.Dense(2)(x))
    kp.export_litert(model, tmp_path / "x.tflite", verbose=False)
    found, notes = diff(
        files / "m.tflite", tmp_path / "x.tflite", verbose=False
    )
    assert found == []
    assert "has no signature of that name with the inputs ids" in notes[0]
