"""The worker runs an artifact as a stranger to Keras would."""

import ast
import base64
import ctypes
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.processes import worker_path
from keras_posenc_worker import codec, run
from keras_posenc_worker.fresh import ask_fresh
from keras_posenc_worker.memory import give_back

pytestmark = pytest.mark.tensorflow

# Runs the worker in a process of its own, and then looks around in it.
PROBE = """
import json, sys
from keras_posenc_worker import run

folder, *names = sys.argv[1:]
run.main(folder)


def is_blocked(name):
    try:
        __import__(name)
    except ImportError:
        return True
    return False


loaded = {
    name for name, module in sys.modules.items() if module is not None
}
print(json.dumps({
    "loaded": [name for name in names if name in loaded],
    "blocked": [name for name in names if is_blocked(name)],
}))
"""
NAMES = (
    "keras",
    "keras.layers",
    "keras_posenc",
    "keras_posenc.ops.masks",
    "tf_keras",
    "tensorflow",
    "numpy",
)


def write_request(folder, kind, artifact, cases, **arrays):
    folder.mkdir()
    np.savez(folder / "request.npz", **arrays)
    (folder / "request.json").write_text(
        json.dumps(
            {
                "kind": kind,
                "artifact": str(artifact),
                "op_libraries": [],
                "times": 2,
                "cases": cases,
            }
        )
    )


def run_probe(folder):
    """What the worker's process has loaded, and what it cannot load."""
    process = subprocess.run(
        [
            *(sys.executable, "-P", "-c", PROBE),
            *(folder, *NAMES),
        ],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, **worker_path()},
    )
    return json.loads(process.stdout.splitlines()[-1])


def read_response(folder):
    return json.loads((folder / "response.json").read_text())


CASES = [
    {"signature": "serving_default", "inputs": {"ids": "0/ids"}},
    {"signature": "short", "inputs": {"ids": "1/ids"}},
    {"signature": "missing", "inputs": {"ids": "0/ids"}},
    {"signature": "serving_default", "inputs": {"tokens": "0/ids"}},
]
IDS = {
    "0/ids": np.array([[4, 44, 0], [1, 2, 3]], "int32"),
    "1/ids": np.array([[4, 44, 0, 0]], "int32"),
}


@pytest.fixture(scope="module", params=["litert", "saved_model"])
def answered(request, tmp_path_factory):
    """An artifact's kind, the answer's folder, and what the probe saw."""
    artifact = request.getfixturevalue(request.param).path
    folder = tmp_path_factory.mktemp("worker") / "request"
    write_request(folder, request.param, artifact, CASES, **IDS)
    return request.param, folder, run_probe(folder)


def test_keras_and_the_package_cannot_be_imported(answered):
    kind, _, probe = answered
    blocked = list(NAMES[:5])
    if kind == "litert":
        blocked.append("tensorflow")
    assert probe["blocked"] == blocked
    assert "numpy" in probe["loaded"]
    assert not set(probe["loaded"]) & set(blocked)
    assert ("tensorflow" in probe["loaded"]) == (kind == "saved_model")


def test_answers_are_the_models(answered, model):
    _, folder, _ = answered
    response = read_response(folder)
    assert response["load_seconds"] > 0
    with np.load(folder / "response.npz") as outputs:
        for index in (0, 1):
            case = response["cases"][index]
            assert case["outputs"] == {"scores": f"{index}/scores"}
            assert case["milliseconds"] > 0
            expected = model(IDS[f"{index}/ids"]).numpy()
            actual = outputs[f"{index}/scores"]
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def test_failure_of_a_case_is_an_answer(answered):
    _, folder, _ = answered
    _, _, missing, other_input = read_response(folder)["cases"]
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
            kp.MaskedAveragePooling1D(),
            keras.layers.Dense(2, name="scores"),
        ]
    )
    path = kp.export_litert(
        model, tmp_path / "m.tflite", verify=False, verbose=False
    ).path
    ids = np.random.default_rng(0).integers(1, 20, (1, 500)).astype("int32")
    cases = [
        {"signature": "serving_default", "inputs": {"ids": name}}
        for name in ("none", "ids")
    ]
    folder = tmp_path / "request"
    none = np.zeros((1, 0), "int32")
    write_request(folder, "litert", path, cases, none=none, ids=ids)
    run_probe(folder)
    failed, _ = read_response(folder)["cases"]
    assert "failed to prepare" in failed["error"]
    with np.load(folder / "response.npz") as outputs:
        np.testing.assert_allclose(
            outputs["1/scores"], model(ids), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda y: y + 1, "second answer has other numbers in y"),
        (lambda y: y[:, :1], "second answer has other numbers in y"),
        (lambda y: {}[0], "in a fresh interpreter KeyError: 0"),
    ],
)
def test_fresh_interpreters_are_asked_twice(change, reason):
    """The fourth of them changes its mind, as some of LiteRT's do."""
    count = itertools.count(1)

    def load():
        changes = next(count) == 4
        calls = itertools.count()

        def run(inputs):
            is_first = next(calls) == 0
            y = inputs["x"]
            return {"y": change(y) if changes and not is_first else y}

        return {"f": run}

    x = np.ones((1, 3), "float32")
    known = {"error": "ValueError: known"}
    answers = [{"milliseconds": 0.1, "outputs": {"y": "0/y"}}, {**known}]
    cases = [("f", {"x": x}), ("f", {"x": x})]
    ask_fresh(load, cases, answers, {"0/y": x}, 1.0)
    assert reason in answers[0]["error"]
    if "other numbers" in reason:  # the remedy is of the file's own names
        remedy = (
            "`signatures={'f': (model, {'x': (1, 3)})}` (--signature f=x:1x3)"
        )
        assert answers[0]["error"].endswith(remedy)
    assert answers[1] == known


def test_saved_models_that_were_loaded_ahead(saved_model, model, tmp_path):
    """What does not load then is told when it is asked for."""
    right, wrong = (tmp_path / name for name in ("right", "wrong"))
    for folder in (right, wrong):
        shutil.copytree(saved_model.path, folder / "1")
        write_request(
            folder / "request", "saved_model", folder / "1", CASES[:1], **IDS
        )
    (wrong / "1" / "saved_model.pb").write_bytes(b"no message")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        for name in ("keras", "keras_posenc", "tf_keras"):
            patch.setitem(sys.modules, name, None)  # as the worker does
        for folder in (right, wrong):
            run.prepare("saved_model", str(folder / "1"))
            shutil.rmtree(folder / "1")
        for folder in (right, wrong):
            run.main(str(folder / "request"))
    assert read_response(right / "request")["load_seconds"] > 0
    with np.load(right / "request" / "response.npz") as outputs:
        expected = model(IDS["0/ids"]).numpy()
        actual = outputs["0/scores"]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    error = read_response(wrong / "request")["error"]
    assert "FileNotFoundError" in error


def test_artifact_that_does_not_load_is_an_answer(tmp_path):
    (tmp_path / "broken.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    folder = tmp_path / "request"
    write_request(folder, "litert", tmp_path / "broken.tflite", [])
    run_probe(folder)
    response = read_response(folder)
    assert response["cases"] == []
    assert response["error"].startswith("ValueError: ")


def test_worker_imports_runtimes_alone():
    # Of the package what is isolated, too: see test_architecture.py.
    tree = ast.parse(Path(run.__file__).read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module.partition(".")[0])
    runtimes = {"tensorflow", "ai_edge_litert", "onnxruntime"}
    runtimes |= {"numpy", "tensorflow_serving"}
    assert (
        found - set(sys.stdlib_module_names) - {"keras_posenc_worker"}
        == runtimes
    )


def test_strings_of_any_bytes_and_shape():
    texts = [["one", "Ünïcödé"], ["", "a\0b"]]
    value = {
        "shape": [2, 2],
        "strings": [
            base64.b64encode(text.encode()).decode()
            for row in texts
            for text in row
        ],
    }
    array = codec.decode(value, {})
    assert array.dtype == object
    assert [[text.decode() for text in row] for row in array] == texts


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc alone")
def test_free_memory_goes_back_to_the_system():
    """What was loaded twice is then in memory once."""

    def held():
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    size, count = 60_000, 1000  # each too small to be mapped for itself
    found = [libc.malloc(size) for _ in range(count)]
    for each in found:
        ctypes.memset(each, 1, size)
    for each in found[:-1]:  # the last is above all of them
        libc.free(each)
    before = held()
    give_back()
    given = before - held()
    libc.free(found[-1])
    assert given > 0.8 * size * count
