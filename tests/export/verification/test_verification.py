"""The proof that an artifact gives its model's own answers."""

import dataclasses
import json
import math
import os
import re
import shutil
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export import worker_client
from keras_posenc.export.probes.compare import difference
from keras_posenc.export.probes.samples import fit_samples
from keras_posenc.export.record import record_path
from keras_posenc.export.signatures.resolve import resolve_signatures
from keras_posenc_worker import run

pytestmark = pytest.mark.tensorflow


def export(model, path, **options):
    """A LiteRT file that nobody has verified."""
    return kp.export_litert(
        model, path, verify=False, verbose=False, **options
    ).path


def usual(report):
    """The cases of ordinary sizes: not those in which each id occurs."""
    return [
        each
        for each in report.cases
        if not re.search("each id|large integers", each.inputs)
    ]


def clone(model):
    """The same model with weights of its own."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def with_other_bias(model):
    """A model that differs in one weight, by 3e-4."""
    copy = clone(model)
    kernel, bias = copy.layers[-1].get_weights()
    bias[-1] += 3e-4
    copy.layers[-1].set_weights([kernel, bias])
    return copy


# ---- The report


@pytest.fixture(scope="module", params=["saved_model", "litert"])
def artifact(request):
    return request.getfixturevalue(request.param)


def test_cases_of_an_export(artifact):
    cases = usual(artifact.report)
    dynamic = [(1, 1), (3, 2), (3, 9), (1, 9)]
    assert [(case.signature, case.inputs) for case in cases] == [
        *(("serving_default", f"ids of shape {shape}") for shape in dynamic),
        *[("short", "ids of shape (1, 4)")] * 3,
    ]
    for case in cases:
        assert case.error is None
        assert 0 <= case.largest_difference <= 1e-5
        assert case.where.startswith("scores[")
    took = {case.milliseconds for case in cases}
    assert all(took - {None})
    # A SavedModel's cases that took a second are not run again.
    assert artifact.path.is_dir() or None not in took


def test_verify_finds_what_the_export_found(model, litert):
    report = kp.verify_export(str(litert.path), model, max_length=9)
    assert report.passed
    assert report.unverified == ["short"]
    assert "not verified: short" in str(report)
    assert report.different_weights == []
    assert len(usual(report)) == 4


# ---- What differs


def scale(kernel, name):
    """x to kernel * x."""
    model = keras.Sequential(
        [
            keras.Input((1,), name="x"),
            layers.Dense(1, use_bias=False, name="y"),
        ],
        name=name,
    )
    model.set_weights([np.array([[kernel]], "float32")])
    return model


# The factor in the artifact and in the model; whether that passes at 1e-5.
FACTORS = {
    "near": (0.5, 0.500001, True),  # the inputs are below 4
    "far": (0.5, 0.5001, False),
    "large_near": (1e6, 1e6 * (1 + 5e-6), True),  # relative above 1
    "large_far": (1e6, 1e6 * (1 + 5e-5), False),
    "small_near": (1e-3, 1e-3 + 1e-8, True),  # relative to 0.01 at least
    "small_far": (1e-3, 1e-3 + 1e-6, False),
    "nan": (np.nan, np.nan, True),
    "nan_in_model": (1.0, np.nan, False),
}


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    """The report on models whose weight was changed after the export."""
    models = {
        name: scale(before, name) for name, (before, _, _) in FACTORS.items()
    }
    path = export(
        models["near"],
        tmp_path_factory.mktemp("scaled") / "scaled.tflite",
        signatures=models,
    )
    for name, (_, after, _) in FACTORS.items():
        models[name].set_weights([np.array([[after]], "float32")])
    return kp.verify_export(
        path,
        models["near"],
        signatures=models,
        samples=[np.array([[2.0]], "float32"), {"x": [[-2.0], [1.0]]}],
    )


@pytest.mark.parametrize(
    ("wanted", "got", "worst", "where"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.25, (1,)),  # relative above 1
        ([[0.5, 0.25]], [[0.5, 0.5]], 0.25, (0, 1)),  # absolute below
        ([1.0, np.nan], [1.0, np.nan], 0.0, (0,)),
        ([1.0, np.nan], [1.0, 1.0], math.inf, (1,)),
        ([1.0, 1.0], [np.nan, 1.0], math.inf, (0,)),
        ([np.inf, -np.inf], [np.inf, -np.inf], 0.0, (0,)),
        ([np.inf], [-np.inf], math.inf, (0,)),
        ([3e38], [np.inf], math.inf, (0,)),
        ([7, 8], [7, 9], math.inf, (1,)),
        ([True, False], [True, True], math.inf, (1,)),
        ([b"one"], [b"two"], math.inf, (0,)),
        ([b"one"], [b"one"], 0.0, (0,)),
        ([[1.0, 2.0]], [1.0, 2.0], math.inf, None),
        ([], [], 0.0, None),
    ],
)
def test_difference_of_two_outputs(wanted, got, worst, where):
    def array(values):
        kind = object if values and isinstance(values[0], bytes) else None
        return {"y": np.array(values, kind)}

    apart, found = difference(array(wanted), array(got), {"y": 1.0})
    assert apart == worst
    assert where is None or found == f"y{list(where)}"


def test_difference(scaled):
    for name, (*_, passes) in FACTORS.items():
        found = [case for case in scaled.cases if case.signature == name]
        worst = max(case.largest_difference for case in found)
        assert (worst <= 1e-5) is passes, name
        assert name != "nan" or worst == 0
        errors = [case.error or "" for case in found if case.is_sample]
        assert (name == "nan_in_model") == any(
            "the model itself gives NaN for x=[" in each for each in errors
        )
    assert scaled.largest_difference == math.inf
    report = json.loads(json.dumps(scaled.to_dict(), allow_nan=False))
    assert report["passed"] is False
    assert report["largest_difference"] is None
    assert (
        f"FAILED: {len(scaled.cases)} cases, largest difference inf (allowed"
        in str(scaled).splitlines()[0]
    )


def test_changed_weight_and_where(litert, model, tmp_path):
    changed = with_other_bias(model)
    path = shutil.copy(litert.path, tmp_path)  # without its record
    report = kp.verify_export(path, changed, max_length=9)
    assert not report.passed
    assert not report
    assert 2e-5 < report.largest_difference < 3e-4
    worst = report.worst
    assert worst.largest_difference == report.largest_difference
    with pytest.raises(kp.ExportVerificationError) as caught:
        report.require_success()
    assert caught.value.report is report
    assert (
        f"Signature 'serving_default', {worst.inputs}: largest difference "
        f"{worst.largest_difference:.3g} (allowed 1e-05), relative "
        f"to the output's size, in {worst.where}. If this is rounding"
    ) in str(caught.value)
    assert "trained after the export, export it again" in str(caught.value)
    assert str(caught.value) in str(report).splitlines()


def test_a_failure_leaves_the_record_which_is_of_another_model(
    litert, model, tmp_path
):
    path = tmp_path / "m.tflite"
    for each in (litert.path, record_path(litert.path)):
        shutil.copy(each, tmp_path / each.name.replace("model.", "m."))
    kept = record_path(path).read_bytes()
    for _ in range(2):  # the second time it is known as well
        report = kp.verify_export(path, with_other_bias(model), max_length=2)
        (name,) = report.different_weights
        assert name.endswith("scores/bias")
        assert 2e-5 < report.largest_difference < 1e-3
        assert (
            f"; the file has other weights than the model: {name}. If"
            in str(report)
        )
        assert "tolerance`" not in str(report)
        assert record_path(path).read_bytes() == kept
    assert kp.verify_export(path, verbose=False).passed
    assert kp.verify_export(path, model, max_length=2).passed
    assert record_path(path).read_bytes() != kept


def test_tolerance(tmp_path):
    model = scale(0.5, "m")
    path = tmp_path / "m.tflite"
    kp.export_litert(model, path, verbose=False)
    model.set_weights([np.array([[0.5001]], "float32")])
    report = kp.verify_export(path, model, tolerance=3e-4)
    assert 2e-5 < report.largest_difference <= report.tolerance == 3e-4
    assert report.different_weights == ["m/y/kernel"]  # no tolerance allows it
    assert not report
    assert dataclasses.replace(report, different_weights=[])


def test_nothing_but_nan_proves_nothing(tmp_path, contents):
    model = scale(np.nan, "nothing")
    with pytest.raises(
        kp.ExportVerificationError, match="outputs are all NaN"
    ) as caught:
        kp.export_litert(model, tmp_path / "m.tflite", verbose=False)
    report = caught.value.report
    assert not report.passed
    assert report.largest_difference == 0
    assert all(case.is_nan for case in report.cases)
    json.dumps(report.to_dict(), allow_nan=False)
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    ("inputs", "output", "width", "error"),
    [
        ("ids", "logits", 3, "outputs are scores, and the model's are logits"),
        ("ids", "scores", 4, r"has shape \(1, 3\), the model's \(1, 4\)"),
        (
            "tokens",
            "scores",
            3,
            "of the file takes ids, and the model takes to",
        ),
    ],
)
def test_outputs_and_inputs_that_are_others(
    litert, make, inputs, output, width, error
):
    inputs = make.ids(inputs)
    vectors = layers.Dense(width)(layers.Embedding(50, 8)(inputs))
    other = keras.Model(inputs, {output: ops.mean(vectors, axis=1)})
    with pytest.raises((ValueError, kp.ExportVerificationError), match=error):
        kp.verify_export(litert.path, other, max_length=1).require_success()


# ---- A runtime that does not answer


def test_runtime_that_hangs(make, tmp_path, contents, monkeypatch):
    plain = worker_client.Worker.run

    def run_stopped(worker, *arguments, limits):
        if worker.process.args[-1] == run.__name__:
            os.kill(worker.process.pid, signal.SIGSTOP)
            limits = dataclasses.replace(limits, timeout=0.2)
        return plain(worker, *arguments, limits=limits)

    monkeypatch.setattr(worker_client.Worker, "run", run_stopped)
    with pytest.raises(
        kp.ExportVerificationError, match="The runtime did not respond within"
    ):
        kp.export_litert(
            make.embedder(), tmp_path / "m.tflite", max_length=1, verbose=False
        )
    assert contents(tmp_path) == []


# ---- Isolation


def test_modules_of_the_working_directory_are_not_imported(
    model, litert, tmp_path, monkeypatch, plain_workers
):
    for name in ("numpy", "json", "keras", "ai_edge_litert", "tensorflow"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    path = os.path.relpath(litert.path, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert kp.verify_export(path, model, max_length=1).passed


# ---- Lengths, and another backend


class LearnedPositions(layers.Layer):
    """Has eight positions and no more."""

    def build(self, input_shape):
        self.table = self.add_weight(shape=(8, input_shape[-1]), name="table")

    def call(self, vectors):
        positions = ops.arange(ops.shape(vectors)[1])
        return vectors + ops.take(self.table, positions, axis=0)


def test_length_that_the_model_does_not_take(make, tmp_path, contents):
    inputs = make.ids()
    vectors = layers.Embedding(50, 4)(inputs)
    model = keras.Model(inputs, LearnedPositions()(vectors))
    path = tmp_path / "model.tflite"
    message = (
        "The model itself does not take ids of shape (1, 512) in signature "
        "'serving_default': "
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as caught:
        kp.export_litert(model, path, max_length=512, verbose=False)
    assert "takes as `max_length`, or" in str(caught.value)
    assert contents(tmp_path) == []
    report = kp.export_litert(model, path, verbose=False).report
    assert "of 1 to 8 steps" in str(report)
    assert "the model takes no longer ones" in str(report)


@pytest.mark.parametrize("function", ["verify_export", "export_litert"])
def test_another_backend(function, model, litert, monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    given = (litert.path, model)[:: 1 if function == "verify_export" else -1]
    with pytest.raises(RuntimeError) as caught:
        getattr(kp, function)(*given)
    message = str(caught.value)
    assert message.startswith(f"`{function}` needs the Tens")
    assert "this is 'jax'" in message
    assert "model.save('model.keras')" in message
    assert "keras-posenc export saved-model model.keras --out" in message


# ---- Samples


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (
            {"tokens": np.ones((1, 4))},
            "`samples` must have an array for .* inputs ids",
        ),
        ({}, "`samples` must have an array for .* inputs ids"),
        (np.ones(4), r"\(None, None\)\. Received: \(4,\)$"),
        (np.ones((0, 4)), "at least one example each"),
        ({"ids": [["a", "b"]]}, r"Received: \[\['a', 'b'\]\]$"),
        (np.array([[1.5, 2.0]]), r"\. Received: 1\.5$"),
        ({"ids": [[1, 2], [3]]}, r"Received: \[\[1, 2\], \[3\]\]$"),
        ({1: [[2]]}, r"\. Received: 1$"),
        (object, "must be whole numbers.* Received: <class 'object'"),
        ({"ids": [[2.0**40]]}, r"-2147483648 to .* Received: 1099511627776"),
        (tf.ragged.constant([[1, 2], [3]]), r"Pad it with its \.to_tensor\("),
    ],
    ids=repr,
)
def test_samples_that_do_not_fit(model, sample, message):
    signatures = resolve_signatures(model)
    with pytest.raises(ValueError, match=message) as caught:
        fit_samples(signatures, sample)
    assert str(caught.value).startswith("`samples`")


def test_sample_that_fits_one_of_two_signatures(model, litert):
    """Whose order does not matter."""
    report = kp.verify_export(
        litert.path,
        model,
        signatures={
            "short": (model, {"ids": (1, 4)}),
            "serving_default": model,
        },
        samples={"ids": np.array([[4, 44, 0]])},
        max_length=1,
    )
    assert report.passed
    assert {(case.signature, case.inputs) for case in usual(report)} == {
        ("serving_default", "ids of shape (1, 3)"),
        ("serving_default", "ids of shape (1, 1)"),
        ("serving_default", "ids of shape (3, 1)"),
        ("short", "ids of shape (1, 4)"),
    }


def test_integers_without_an_embedding_need_samples(make, tmp_path, contents):
    inputs = make.ids()
    model = keras.Model(inputs, {"hot": ops.one_hot(inputs, 5)})
    path = tmp_path / "model.tflite"
    with pytest.raises(ValueError, match="no Embedding layer limits them"):
        kp.export_litert(model, path, verbose=False)
    assert contents(tmp_path) == []
    report = kp.export_litert(
        model, path, samples=np.array([[4, 0, 3]]), verbose=False
    ).report
    assert [case.inputs for case in report.cases] == ["ids of shape (1, 3)"]
    assert (
        "run only on the samples, without other lengths and batch sizes: "
        "serving_default"
    ) in str(report)


def column():
    """A table's column: no layer says how large its ids may be."""
    inputs = keras.Input((), dtype="string", name="city")
    ids = layers.StringLookup(vocabulary=["a", "b"])(inputs)
    one_hot = keras.ops.one_hot(ids, 3)
    return keras.Model(inputs, layers.Dense(2)(one_hot))


def test_a_default_signature_that_cannot_be_verified_is_reported(tmp_path):
    artifact = kp.export_saved_model(column(), tmp_path, verbose=False)
    assert [*kp.inspect_export(artifact.path).signatures] == ["serving_default"]
    (note,) = artifact.report.notes
    assert re.fullmatch(
        r"the file has no signature 'from_ids', which takes integers, and no "
        r"Embedding .*: give some, as in `samples={'ids': np.zeros\(\(2,\), "
        r"'int\d+'\)}`",
        note,
    )
    assert note in str(artifact)
