"""LiteRT files answer on Arm, whose kernels are others, as they do on x86.

The aarch64 runtime runs under qemu. `make test-arm` sets it up and runs this,
which is no part of `make test`.
"""

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_posenc as kp
from keras_posenc.artifacts import worker

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).resolve().parents[2] / "build" / "arm"
CORES = ["cortex-a53", "cortex-a76"]
VOCABULARY = 8000
TEXTS = [
    "the student who failed the exam received a warning",
    "a cat sat on the mat (again), and a dog did not",
]
# What rounding may add up to where a kernel sums in another order.
TOLERANCES = {None: 1e-6, "float16": 1e-6, "int8": 1e-5, "int8-static": 1e-5}
# Blocks and width. In 8 bits a rounding can push an activation over to the next
# step, and that one others, the likelier the more there are: two x86
# processors, of which one has AVX-512, give the large model's scores with 3e-3
# between them. There the bound is what the 8 bits themselves cost.
SIZES = {"small": (2, 64), "large": (4, 256)}


@pytest.fixture(scope="module", autouse=True)
def root():
    """The folder of the Arm system; skips where there is none."""
    if (reason := ROOT / "REASON").exists():
        pytest.skip(reason.read_text().strip())
    if not (ROOT / ".installed").exists():
        pytest.skip("no Arm system is set up: make test-arm")
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("qemu-aarch64-static is missing")
    return ROOT


def on_x86(folder):
    return [sys.executable, "-P", worker.__file__, folder]


def on_arm(core, folder):
    system = ROOT / core
    return [
        *("qemu-aarch64-static", "-cpu", core, "-L", system),
        *("-E", f"PYTHONPATH={ROOT / 'site'}"),
        *("-E", f"PYTHONHOME={ROOT / 'root' / 'usr'}"),
        ROOT / "root" / "usr" / "bin" / "python3.11",
        *("-P", worker.__file__, folder),
    ]


def answers(command, folder, artifact, cases):
    """The outputs of each case, as the worker of the exports has them."""
    folder.mkdir()
    arrays = {
        f"{index}/{name}": value
        for index, (_, inputs) in enumerate(cases)
        for name, value in inputs.items()
    }
    np.savez(folder / "inputs.npz", **arrays)
    request = {
        "kind": "litert",
        "artifact": str(artifact),
        "times": 1,
        "cases": [
            {
                "signature": signature,
                "inputs": {name: f"{index}/{name}" for name in inputs},
            }
            for index, (signature, inputs) in enumerate(cases)
        ],
    }
    (folder / "request.json").write_text(json.dumps(request))
    subprocess.run(command(folder), check=True, timeout=300)
    response = json.loads((folder / "response.json").read_text())
    assert "error" not in response, response
    outputs = np.load(folder / "outputs.npz")
    found = []
    for case in response["cases"]:
        assert "error" not in case, case
        found.append({n: outputs[key] for n, key in case["outputs"].items()})
    return found


def ids(rows, length, padding=0):
    rng = np.random.default_rng(length)
    batch = rng.integers(1, VOCABULARY, (rows, length)).astype("int32")
    batch[-1, length - padding :] = 0
    return {"ids": batch}


CASES = [
    *[("serving_default", ids(1, length)) for length in (1, 2, 17, 65, 128)],
    ("serving_default", ids(3, 40, padding=25)),
    ("static", ids(1, 32, padding=8)),
]


def classifier(blocks, width):
    """A model with scores that are far from even."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            layers.Embedding(VOCABULARY, width, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(blocks, 4, 4 * width),
            kp.MaskedAveragePooling1D(),
            layers.Dense(5, activation="softmax", name="scores"),
        ]
    )
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([4 * kernel, bias])
    return model


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """From a size and a quantization to a file, and what it answers here."""
    model = functools.cache(lambda size: classifier(*SIZES[size]))

    @functools.cache
    def export(size, mode):
        folder = tmp_path_factory.mktemp("arm")
        batches = [ids(1, 32), ids(1, 32, 8)]
        path = kp.export_litert(
            model(size),
            folder / "model.tflite",
            signatures={
                "serving_default": model(size),
                "static": (model(size), {"ids": (1, 32)}),
            },
            quantization=mode,
            representative=batches if mode == "int8-static" else None,
            verify=False,
            verbose=False,
        ).path
        return path, answers(on_x86, folder / "x86", path, CASES)

    return export


def differences(some, others):
    """The largest of each case."""
    return np.array(
        [
            np.max(np.abs(one["scores"] - other["scores"]))
            for one, other in zip(some, others, strict=True)
        ]
    )


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("mode", TOLERANCES)
@pytest.mark.parametrize("size", SIZES)
def test_arm_answers_as_x86(export, size, mode, core, tmp_path):
    path, here = export(size, mode)
    there = answers(
        lambda folder: on_arm(core, folder), tmp_path / core, path, CASES
    )
    scores = np.concatenate([case["scores"] for case in here])
    assert np.max(np.ptp(scores, axis=0)) > 0.3  # else all is alike
    found = differences(here, there)
    print(
        f"\n{core}, {size}, {mode or 'float32'}: {np.max(found):.1e} from x86"
    )
    if size == "large" and mode in ("int8", "int8-static"):
        _, exact = export(size, None)
        cost = differences(here, exact)
        assert np.max(found) <= np.max(cost)
        # And Arm's answers are no worse than those here.
        assert np.mean(differences(there, exact)) <= 1.5 * np.mean(cost)
    else:
        assert np.max(found) <= TOLERANCES[mode]


@pytest.mark.parametrize("core", CORES)
def test_mediapipe_file_answers_as_keras(core, tmp_path):
    pytest.importorskip("mediapipe")
    keras.utils.set_random_seed(0)
    tokens = kp.WordpieceTokenizer.learn(TEXTS * 3, 120)
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokens,
            layers.Embedding(tokens.vocabulary_size(), 16, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(1, 2, 32),
            kp.MaskedAveragePooling1D(),
            layers.Dense(3, activation="softmax", name="scores"),
        ]
    )
    path = kp.export_litert(
        model,
        tmp_path / "m.tflite",
        task="text_classifier",
        labels=["bad", "fair", "good"],
        max_length=32,
        verbose=False,
    ).path
    cases = []
    for text in TEXTS:
        row = np.asarray(tokens([text]))
        segments = {"mask": np.ones_like(row), "segment_ids": 0 * row}
        cases.append(("serving_default", {"ids": row, **segments}))
    found = answers(
        lambda folder: on_arm(core, folder), tmp_path / core, path, cases
    )
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    for row, case in zip(expected, found, strict=True):
        (scores,) = case.values()
        np.testing.assert_allclose(scores[0], row, rtol=0, atol=1e-5)
