"""The worker runs an exported model without Keras."""

import base64
import itertools
import os
import types

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.worker_client import Limits, run_in_worker
from keras_posenc_worker import codec, run
from keras_posenc_worker.cases import pack

pytestmark = pytest.mark.tensorflow

# Runs `run` in a worker, and then looks around in it.
PROBE = """
import sys
from keras_posenc_worker import run


def is_blocked(name):
    try:
        __import__(name)
    except ImportError:
        return True
    return False


def main(folder, names):
    run.main(folder)
    loaded = {
        name for name, module in sys.modules.items() if module is not None
    }
    return {
        "loaded": [name for name in names if name in loaded],
        "blocked": [name for name in names if is_blocked(name)],
    }
"""
NAMES = (
    *("keras", "keras.layers", "keras_posenc", "keras_posenc.ops.masks"),
    *("tf_keras", "tensorflow", "numpy"),
)


def write_request(folder, kind, exported, cases):
    folder.mkdir()
    request = {"kind": kind, "exported": str(exported), "times": 2}
    codec.write(folder / run.REQUEST, {**request, "cases": cases})


def run_probe(folder):
    """What the worker has loaded, and what it cannot load."""
    (folder / "probe.py").write_text(PROBE)
    limits = Limits(memory=None, seconds=None)
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        return run_in_worker("probe", str(folder), NAMES, limits=limits)


IDS = np.array([[4, 44, 0], [1, 2, 3]], "int32")
SHORT = np.array([[4, 44, 0, 0]], "int32")
CASES = [
    ("serving_default", {"ids": IDS}),
    ("short", {"ids": SHORT}),
    ("missing", {"ids": IDS}),
    ("serving_default", {"tokens": IDS}),
]


# A server forks the workers that run a SavedModel in all other tests: it has
# imported TensorFlow, for seconds, with the same imports forbidden.
@pytest.mark.parametrize(
    "kind", ["litert", pytest.param("saved_model", marks=pytest.mark.slow)]
)
def test_file_runs_without_keras_and_the_package(
    kind, request, model, tmp_path
):
    folder, path = tmp_path / "request", request.getfixturevalue(kind).path
    write_request(folder, kind, path, CASES)
    probe = run_probe(folder)
    blocked = [*NAMES[:5]] + ["tensorflow"] * (kind == "litert")
    assert probe["blocked"] == blocked
    assert "numpy" in probe["loaded"]
    assert not {*probe["loaded"]} & {*blocked}
    assert ("tensorflow" in probe["loaded"]) == (kind == "saved_model")
    response = codec.read(folder / run.RESPONSE)
    *good, missing, other_input = response["cases"]
    for case, ids in zip(good, (IDS, SHORT), strict=True):
        assert case["milliseconds"] > 0
        np.testing.assert_allclose(
            case["outputs"]["scores"], model(ids).numpy(), rtol=0, atol=1e-6
        )
    # The failure of a case is an answer.
    assert missing["error"] == "KeyError: 'missing'"
    assert "tokens" in other_input["error"]
    assert missing["outputs"] == other_input["outputs"] == {}


def test_case_after_one_that_failed_is_the_models(tmp_path):
    """LiteRT keeps what it had begun for a row of length 0."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(20, 64, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(2, num_heads=2, intermediate_dim=64),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, name="scores"),
        ]
    )
    path = kp.export_litert(
        model, tmp_path / "m.tflite", verify=False, verbose=False
    ).path
    ids = np.random.default_rng(0).integers(1, 20, (1, 500)).astype("int32")
    none = np.zeros((1, 0), "int32")
    cases = [("serving_default", {"ids": each}) for each in (none, ids)]
    folder = tmp_path / "request"
    write_request(folder, "litert", path, cases)
    run_probe(folder)
    failed, good = codec.read(folder / run.RESPONSE)["cases"]
    assert "failed to prepare" in failed["error"]
    np.testing.assert_allclose(
        good["outputs"]["scores"], model(ids), rtol=0, atol=1e-5
    )


def test_every_second_case_has_an_interpreter_of_its_own(monkeypatch):
    """Some err from the second run of a shape on: here all but the first."""
    count, x = itertools.count(), np.ones((1, 3), "float32")

    def load(path):
        errs, calls = next(count) > 0, itertools.count()
        return {"f": lambda inputs: {"y": x + errs * (next(calls) > 0)}}

    monkeypatch.setattr(run, "load_litert", load)
    cases = [("f", {"x": x})] * 4
    response = run._respond("litert", "m.tflite", cases, 5)
    wrong = [each["outputs"]["y"][0, 0] for each in response["cases"]]
    assert wrong == [1, 2, 1, 2]


def test_case_that_was_run_ahead_is_not_run_again(monkeypatch):
    """It was while the model computed; not of another file."""
    calls, tries = itertools.count(), []
    runners = {"f": lambda inputs: {"y": np.array(next(calls))}}

    def load(path):
        tries.append(path)
        if path == "damaged":
            raise OSError
        return types.SimpleNamespace(runners=runners, found={})

    monkeypatch.setattr(run, "forbid", lambda *names: None)
    monkeypatch.setattr(run, "SavedModel", load)
    monkeypatch.setattr(run, "_ahead", {})
    monkeypatch.setattr(run, "_LARGE", 0)
    cases = [("f", {"x": IDS}), ("f", {"x": SHORT})]
    ahead = base64.b64encode(pack(cases[1])).decode()
    for path, expected in (("a", [1, 0]), ("b", [3, 4])):
        run.prepare("saved_model", "a", ahead)
        found = run._respond("saved_model", path, cases, 1)["cases"]
        assert [each["outputs"]["y"] for each in found] == expected
        # A time while the model computed says nothing.
        timed = ["milliseconds" in each for each in found]
        assert timed == [True, path == "b"]
    for case in (None, ahead, ahead):
        run.prepare("saved_model", "damaged", case)
    assert tries == ["a", "a", "b", "damaged"]


def test_messages_hold_arrays_of_any_kind_and_shape(tmp_path):
    texts = [["one", "Ünïcödé"], ["", "a\0b"]]
    message = {
        "list": [1, None, "text", {"x": np.arange(6).reshape(2, 3)}],
        # Whatever inputs and outputs are called.
        "names": {"shape": np.float32(0.5), "\0": np.array([True])},
        "marks": {"\0numbers": np.arange(2), "\0texts": np.arange(3)},
        "texts": np.array(texts, object),
        "bytes": np.array([b"\xff", b""], object),
        "empty": np.zeros((0, 2), object),
    }
    codec.write(tmp_path / "m.npz", message)
    found = codec.read(tmp_path / "m.npz")
    *plain, arrays = found["list"]
    assert plain == [1, None, "text"]
    np.testing.assert_array_equal(arrays["x"], message["list"][-1]["x"])
    assert arrays["x"].dtype == message["list"][-1]["x"].dtype
    assert found["names"] == {"shape": 0.5, "\0": [True]}
    assert found["names"]["shape"].dtype == "float32"
    for name, value in message["marks"].items():
        np.testing.assert_array_equal(found["marks"][name], value)
    assert found["texts"].dtype == object
    decoded = [[text.decode() for text in row] for row in found["texts"]]
    assert decoded == texts
    assert found["bytes"].tolist() == [b"\xff", b""]
    assert found["empty"].shape == (0, 2)
