"""An exported SavedModel runs without Python: tests/c/run_saved_model.c."""

import shutil
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
tensorflow_text = pytest.importorskip("tensorflow_text")

from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402

SOURCE = Path(__file__).parent / "c" / "run_saved_model.c"
TEXT = "The exam, the student who failed it: a warning!"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The compiled program."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    tensorflow = Path(tf.__file__).parent
    path = tmp_path_factory.mktemp("c") / "run_saved_model"
    subprocess.run(
        [
            *(gcc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1"),
            *(SOURCE, "-o", path),
            *("-isystem", tensorflow / "include"),
            *(f"-L{tensorflow}", f"-Wl,-rpath,{tensorflow}"),
            *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        ],
        check=True,
    )
    return path


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    tokenizer = kp.WordpieceTokenizer.learn(
        ["the student who failed the exam received a warning"], 60
    )
    return keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            keras.layers.Embedding(
                tokenizer.vocabulary_size(), 16, mask_zero=True
            ),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(2, 2, 32),
            kp.MaskedAveragePooling1D(),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )


@pytest.fixture(scope="module")
def arguments(model, tmp_path_factory):
    """The folder of the SavedModel, and the names of its two tensors."""
    artifact = kp.export_saved_model(
        model,
        tmp_path_factory.mktemp("versions"),
        verify=False,  # by another runtime below
        verbose=False,
    )
    content = (artifact.path / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    signature = graph.signature_def["serving_default"]
    return [
        artifact.path,
        signature.inputs["text"].name,
        signature.outputs["scores"].name,
    ]


def run(*command):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120
    )


def operator_libraries():
    """TF-Text's operators, which TensorFlow Serving has built in."""
    folder = Path(tensorflow_text.__file__).parent / "python" / "ops"
    return sorted(folder.glob("_*.so"))


def test_source_is_short():
    assert len(SOURCE.read_text().splitlines()) < 60


@pytest.mark.parametrize("text", [TEXT, "", "Ünïcödé 🙂", "word " * 200])
def test_program_gives_the_answer_of_keras(program, model, arguments, text):
    process = run(program, *arguments, text, *operator_libraries())
    assert process.returncode == 0, process.stderr
    scores = np.array(process.stdout.split(), "float32")
    wanted = model.predict(tf.constant([text]), verbose=0)[0]
    assert scores.shape == (2,)
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-6)


def test_texts_make_a_difference(model):
    """Else the test above would prove little."""
    scores = model.predict(tf.constant([TEXT, "", "word"]), verbose=0)
    assert np.abs(np.diff(scores[:, 0])).min() > 1e-3


def test_loader_names_the_operator_that_is_missing(program, arguments):
    process = run(program, *arguments, TEXT)
    assert process.returncode == 1
    assert process.stdout == ""
    last = process.stderr.splitlines()[-1]
    assert last.startswith("load: error 5: ")  # TF_NOT_FOUND
    assert "Op type not registered 'Fast" in last


def test_program_names_the_tensor_that_is_missing(program, arguments):
    folder, _, output = arguments
    process = run(
        *(program, folder, "words:0", output, TEXT), *operator_libraries()
    )
    assert process.returncode == 1
    assert "the graph has no tensor words" in process.stderr
