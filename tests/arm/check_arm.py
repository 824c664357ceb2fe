"""LiteRT files answer as their models on Arm, whose kernels are others.

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
from keras_posenc_worker import run
from tests.generation import toy
from tests.layers import text_classifier

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).resolve().parents[2] / "build" / "arm"
WORKER = ["-P", "-m", "keras_posenc_worker", run.__name__]
FOLDER = Path(run.__file__).parents[1]
CORES = ["x86", "cortex-a53", "cortex-a76"]
VOCABULARY = 8000
TEXTS = [
    "the student who failed the exam received a warning",
    "a cat sat on the mat (again), and a dog did not",
]
TEXTS_OF_LETTERS = ["abc", "", "hello", "gagahahaha"]
MODES = [None, "float16", "int8"]
# Blocks and width.
SIZES = {"small": (2, 64), "large": (4, 256)}


def on(core):
    """The command that runs the worker of the exports on a processor."""
    if core == "x86":
        return [sys.executable, *WORKER]
    assert (ROOT / ".installed").exists(), "no Arm system: make test-arm"
    assert shutil.which("qemu-aarch64-static"), (
        "qemu-aarch64-static is missing: apt-get install qemu-user-static"
    )
    system = ROOT / core
    return [
        *("qemu-aarch64-static", "-cpu", core, "-L", system),
        *("-E", f"PYTHONPATH={ROOT / 'site'}:{FOLDER}"),
        *("-E", f"PYTHONHOME={ROOT / 'root' / 'usr'}"),
        ROOT / "root" / "usr" / "bin" / "python3.11",
        *WORKER,
    ]


def answers(core, folder, artifact, cases):
    """The outputs of each case, as the worker of the exports has them."""
    folder.mkdir()
    arrays = {
        f"{index}/{name}": value
        for index, (_, inputs) in enumerate(cases)
        for name, value in inputs.items()
    }
    np.savez(folder / "request.npz", **arrays)
    request = {
        "kind": "litert",
        "exported": str(artifact),
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
    order = json.dumps(["main", [str(folder)], {}])
    subprocess.run(on(core), input=order, text=True, check=True, timeout=300)
    response = json.loads((folder / "response.json").read_text())
    assert "error" not in response, response
    outputs = np.load(folder / "response.npz")
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


def classifier(blocks, width, dtype=None):
    """A model with scores that are far from even."""
    keras.utils.set_random_seed(0)
    policy = {"dtype": dtype}
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            layers.Embedding(VOCABULARY, width, mask_zero=True, **policy),
            kp.PositionalEncoding(**policy),
            kp.TransformerEncoder(
                blocks, num_heads=4, intermediate_dim=4 * width, **policy
            ),
            kp.Pooling1D("mean", **policy),
            layers.Dense(5, activation="softmax", name="scores", **policy),
        ]
    )
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([4 * kernel, bias])
    return model


class Exact:
    """A model in float64, with the weights of a file."""

    def __init__(self, model, size, mode):
        self.model = classifier(*SIZES[size], "float64")
        weights = model.get_weights()
        if mode == "float16":  # which computes in float32
            weights = [weight.astype("float16") for weight in weights]
        self.weights = [weight.astype("float64") for weight in weights]
        self.scores = self._scores(self.weights)

    def _scores(self, weights):
        self.model.set_weights(weights)
        return [np.asarray(self.model(inputs["ids"])) for _, inputs in CASES]

    def rounding(self):
        """How far float32 may be from these scores.

        A sum of n products in float32, in any order, is the exact one of
        weights each off by a factor 1 + t. |t| is below n u, with u = 2**-24,
        and about sqrt(n) u where roundings are independent (Higham and Mary
        2019); an embedding is off by u. What such weights do to the scores is
        tried with random signs, four times; four times the largest of these
        has room for the signs not tried and for the other roundings: products
        of attention, exponentials and norms, which have no weights, or few.
        """
        rng = np.random.default_rng(0)
        moved = []
        for _ in range(4):
            off = [
                weight
                * (
                    1
                    + rng.choice([-1, 1], weight.shape)
                    * 2.0**-24
                    * np.sqrt(np.prod(weight.shape[:-1]))
                )
                if index and weight.ndim > 1
                else weight * (1 + rng.choice([-1, 1], weight.shape) * 2.0**-24)
                for index, weight in enumerate(self.weights)
            ]
            moved.append(differences(self._scores(off), self.scores).max())
        return 4 * max(moved)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """From a size and a quantization to a file, and what it should answer."""
    model = functools.cache(lambda size: classifier(*SIZES[size]))

    @functools.cache
    def export(size, mode):
        folder = tmp_path_factory.mktemp("arm")
        is_8_bit = mode == "int8"
        artifact = kp.export_litert(
            model(size),
            folder / "model.tflite",
            signatures={
                "serving_default": model(size),
                "static": (model(size), {"ids": (1, 32)}),
            },
            quantization=mode,
            verify=False,
            verbose=False,
        )
        exact = Exact(model(size), size, mode)
        if is_8_bit:
            # A rounding can push an activation over to the next step, on one
            # processor alone: none is nearer to the other than to the model.
            # But the steps are as large on each.
            here = answers("x86", folder / "x86", artifact.path, CASES)
            cost = differences([each["scores"] for each in here], exact.scores)
            return artifact.path, exact, (2 * np.max(cost), 1.5 * np.mean(cost))
        rounding = exact.rounding()
        return artifact.path, exact, (rounding, rounding)

    return export


def differences(some, others):
    """The largest of each case."""
    return np.array(
        [
            np.max(np.abs(one - other))
            for one, other in zip(some, others, strict=True)
        ]
    )


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_processor_answers_as_the_model(export, size, mode, core, tmp_path):
    path, exact, (tolerance, mean) = export(size, mode)
    found = answers(core, tmp_path / core, path, CASES)
    scores = np.concatenate(exact.scores)
    assert np.max(np.ptp(scores, axis=0)) > 0.3  # else all is alike
    found = differences([case["scores"] for case in found], exact.scores)
    print(
        f"\n{core}, {size}, {mode or 'float32'}: {np.max(found):.1e} from the "
        f"model, {tolerance:.1e} is allowed"
    )
    assert np.max(found) <= tolerance
    assert np.mean(found) <= mean


@pytest.mark.parametrize("core", CORES)
def test_mediapipe_file_answers_as_keras(core, tmp_path):
    pytest.importorskip("mediapipe")
    keras.utils.set_random_seed(0)
    model = text_classifier(TEXTS * 3, 120, classes=3)
    tokens = model.layers[0]
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
    found = answers(core, tmp_path / core, path, cases)
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    for row, case in zip(expected, found, strict=True):
        (scores,) = case.values()
        np.testing.assert_allclose(scores[0], row, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """From a number of beams to a generator and its files.

    That of whole loops, of any number of steps, and that of single ones with
    their cache.
    """

    @functools.cache
    def export(beams):
        made = toy.varied(beams=beams)
        folder = tmp_path_factory.mktemp("generator")
        options = {"verify": False, "verbose": False}
        whole = kp.export_litert(made, folder / "whole.tflite", **options)
        steps = kp.export_litert(
            made,
            folder / "steps.tflite",
            signatures=made.step_signatures(),
            **options,
        )
        return made, whole.path, steps.path

    return export


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("beams", [1, 3])
def test_generator_answers_as_keras(generator, core, beams, tmp_path):
    made, path, _ = generator(beams)
    rows = [np.asarray(toy.tokenizer()([text])) for text in TEXTS_OF_LETTERS]
    cases = [("serving_default", {"ids": row}) for row in rows]
    found = answers(core, tmp_path / core, path, cases)
    assert len({float(case["score"][0]) for case in found}) == len(rows)
    for row, case in zip(rows, found, strict=True):
        right = made.from_ids(row)
        np.testing.assert_array_equal(case["ids"], right["ids"])
        np.testing.assert_allclose(case["score"], right["score"], atol=1e-5)


@pytest.mark.parametrize("core", CORES)
def test_steps_of_a_generator_answer_as_keras(generator, core, tmp_path):
    made, _, path = generator(1)
    steps = made.step_signatures()
    ids = np.asarray(toy.tokenizer()(TEXTS_OF_LETTERS[:1]))
    state = {k: np.asarray(v) for k, v in steps["encode"](ids).items()}
    cases = [("encode", {"ids": ids}), ("decode", state)]
    found = answers(core, tmp_path / core, path, cases)
    for right, case in zip([state, steps["decode"](state)], found, strict=True):
        for name, value in case.items():
            np.testing.assert_allclose(
                value, right[name], rtol=1e-5, atol=1e-5, err_msg=name
            )
