"""An exported SavedModel is served without Python: tests/c/serve.c."""

import shutil
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
tf = pytest.importorskip("tensorflow")
tensorflow_text = pytest.importorskip("tensorflow_text")
pytest.importorskip("tensorflow_serving")

from tensorflow_serving.apis import prediction_log_pb2  # noqa: E402

from tests.layers import text_classifier  # noqa: E402

SOURCE = Path(__file__).parent / "c" / "serve.c"
TEXTS = ["The exam, the student: a warning!", "", "Ünïcödé 🙂", "word " * 200]
LABELS = ["wrong", "right"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The compiled program."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    tensorflow = Path(tf.__file__).parent
    path = tmp_path_factory.mktemp("c") / "serve"
    # The usual linker takes 10 s for TensorFlow's library of 1 GB, gold 2 s.
    gold = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
    subprocess.run(
        [
            *(gcc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", *gold),
            *(SOURCE, "-o", path),
            *("-isystem", tensorflow / "include"),
            *(f"-L{tensorflow}", f"-Wl,-rpath,{tensorflow}"),
            *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        ],
        check=True,
    )
    return path


def operator_libraries():
    """TF-Text's operators, which TensorFlow Serving has built in."""
    folder = Path(tensorflow_text.__file__).parent / "python" / "ops"
    return sorted(folder.glob("_*.so"))


def run(*command, timeout=120):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout
    )


def answers(process, *, returncode=0):
    """What it printed: for each line signature, output and array."""
    assert process.returncode == returncode, process.stderr
    found = []
    for line in process.stdout.splitlines():
        signature, output, shape, *values = line.split(" ")
        if output in ("classes", "label", "text"):
            values = [bytes.fromhex(value).decode() for value in values]
        else:
            values = np.array(values, "float32")
        shape = [int(size) for size in shape.split("x")]
        found.append((signature, output, np.reshape(values, shape)))
    return found


def record(signature, **inputs):
    """A request as the server's warm-up records hold it."""
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = "judge"
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return log.SerializeToString()


def test_every_signature(program, tmp_path):
    """... and requests that are refused, among others that are answered.

    TF-Text's operators end the process where nothing checks the rank.
    """
    keras.utils.set_random_seed(0)
    model = text_classifier(
        ["the student who failed the exam received a warning"]
    )
    version = kp.export_saved_model(
        model, tmp_path / "m", labels=LABELS, max_length=9, verbose=False
    ).path
    layers = model.layers
    ids = np.asarray(layers[0](tf.constant(TEXTS[:1])))
    # Behind its length a server may put anything.
    padded = np.concatenate([ids, np.full((1, 5), ids[0, 0])], 1).astype(
        "int32"
    )
    lengths = np.array([ids.shape[1]], "int32")
    names = set(kp.inspect_export(version).signatures)
    assert names == {"serving_default", "from_ids", "encode"}
    refused = [
        ("serving_default", {}),  # nothing is fed
        ("serving_default", {"text": "a"}),
        ("serving_default", {"text": [["a"]]}),
        ("from_ids", {"ids": [1], "lengths": [1]}),
        ("from_ids", {"ids": [[99]], "lengths": [1]}),
    ]
    records = [
        *(record(name, **inputs) for name, inputs in refused),
        record("", text=TEXTS),
        record("from_ids", ids=padded, lengths=lengths),
        record("encode", text=TEXTS[:1]),
    ]
    file = tmp_path / "requests"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for content in records:
            writer.write(content)
    process = run(program, version, file, *operator_libraries())
    assert process.stderr.count("run: error 3: ") == len(refused)
    rows = answers(process, returncode=1)
    found = {(name, output): value for name, output, value in rows}
    wanted = np.asarray(model(tf.constant(TEXTS)))
    scores = {output: value for _, output, value in rows[:3]}
    np.testing.assert_allclose(scores["scores"], wanted, rtol=0, atol=1e-6)
    assert scores["classes"].tolist() == [LABELS] * 4
    winners = [LABELS[place] for place in np.argmax(wanted, axis=-1)]
    assert scores["label"].tolist() == winners
    # Else this would prove little.
    assert np.abs(np.diff(wanted[:, 0])).min() > 1e-3
    np.testing.assert_allclose(
        found["from_ids", "scores"], wanted[:1], rtol=0, atol=1e-6
    )
    mask = tf.constant(ids > 0)
    contextual = layers[3](layers[2](layers[1](ids)), mask=mask)
    pooled = layers[4](contextual, mask=mask)
    for output, value in (
        ("contextual", contextual),
        ("pooled", pooled),
        ("mask", mask),
    ):
        np.testing.assert_allclose(
            found["encode", output], value, rtol=0, atol=1e-5
        )
