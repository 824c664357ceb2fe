"""What exported files give for zeros, large and tiny numbers, and the like.

Each file is run here, in its runtime, and compared with the model: none of this
relies on what verification finds.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.check import compare
from keras_posenc.export.formats import litert_convert as conversion
from keras_posenc.export.probes.generate import Probes
from keras_posenc.export.probes.reference import compute_reference
from keras_posenc.export.signatures.resolve import resolve_signatures
from tests.export.files import EXPORTS, run_file
from tests.export.operators import SHAPES, table

pytestmark = pytest.mark.tensorflow

TELLING = [
    "layers.Dot(-1, normalize=True)([x, x[:, ::-1]])",
    "layers.Dense(1, 'softplus')(x)",
    "layer_normalization",
    "layers.Activation('softplus')(x)",
    "layers.UnitNormalization()(x)",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "layers.Activation('mish')(x)",
    "normalize",
    "rms_normalization",
    "softmax",
    "softplus",
    "squareplus",
]
TOLERANCE, EXTREME = 1e-5, 1e-2  # which a verification allows
ROUNDING = 2.0**-20  # 16 times of float32's, as what it moves grows inside


def extremes(shape):
    """Rows of numbers, and what they are."""
    rng = np.random.default_rng(1)
    one = np.zeros(shape)
    one.flat[one.size // 3] = 1
    rows = {
        "zeros": np.zeros(shape),
        "equal": np.full(shape, 0.7),
        "30": np.full(shape, 30.0),
        "-30": np.full(shape, -30.0),
        "1e4": np.full(shape, 1e4),
        "-1e4": np.full(shape, -1e4),
        "1e-20": np.full(shape, 1e-20),
        "one 1": one,
        "up to 90": 30 * rng.standard_normal(shape),
        "up to 1e4": 1e4 * rng.uniform(-1, 1, shape),
        "usual": rng.standard_normal(shape),
    }
    return list(rows), np.stack(list(rows.values())).astype("float32")


def differences(wanted, got, moved, names, extreme):
    """Where two outputs differ by more than rounding, in words."""
    found = []
    assert got.shape == wanted.shape
    if wanted.size % len(names):  # one number of all rows
        names = ["all"]
    arrays = (
        np.float64(value).reshape(len(names), -1)
        for value in (wanted, got, moved)
    )
    for name, right, other, near in zip(names, *arrays, strict=True):
        # Where the model itself overflows, nothing is promised.
        if not np.all(np.isfinite(right)) or not np.all(np.isfinite(near)):
            continue
        allowed = TOLERANCE if name in ("equal", "usual") else extreme
        allowed = allowed * np.maximum(1, np.abs(right))
        allowed += 4 * np.max(np.abs(right - near), initial=0)
        wrong = np.flatnonzero(~(np.abs(right - other) <= allowed))
        if wrong.size:
            found.append(
                f"{name}: {other[wrong[0]]:g}, not {right[wrong[0]]:g}"
            )
    return "; ".join(found)


def model_of(shape, operators):
    keras.utils.set_random_seed(3)
    x = keras.Input(shape, name="x")
    return keras.Model(
        x,
        {
            f"output_{index}": operator(x)
            for index, operator in enumerate(operators.values())
        },
    )


def outcomes(kind, shape, operators, folder, extreme=EXTREME):
    """Of each operator "equal", "refused: ..." or "wrong: ...".

    One export holds them all, or, if it is refused, half of them and so on.
    """
    if not operators:
        return {}
    export, file = EXPORTS[kind]
    names, x = extremes(shape)
    model = model_of(shape, operators)
    artifact, reason = None, ""
    # LiteRT has loops of fixed batches alone.
    for fixed in (None, {"serving_default": (model, {"x": x.shape})}):
        if artifact is None and (len(operators) == 1 or fixed is None):
            try:
                artifact = export(
                    model, folder / file, signatures=fixed, verbose=False
                )
            except (
                kp.ExportError,
                kp.ExportVerificationError,
                ValueError,
            ) as error:
                reason = reason or " ".join(f"{error}".split())
            else:
                if "takes a batch of 1" in str(artifact.report):
                    artifact = None  # the loop is tried alone
    if artifact is None:
        items = list(operators.items())
        if len(items) == 1:
            return {items[0][0]: f"refused: {reason}"}
        return {
            name: outcome
            for part in (items[: len(items) // 2], items[len(items) // 2 :])
            for name, outcome in outcomes(
                kind, shape, dict(part), folder, extreme
            ).items()
        }
    got = run_file(artifact.path, {"x": x})
    signs = np.random.default_rng(0).choice([-1, 1], x.shape)
    nearby = (x * (1 + ROUNDING * signs)).astype("float32")
    with tf.device("CPU:0"):
        wanted, moved = model(x, training=False), model(nearby, training=False)
    found = {}
    for index, name in enumerate(operators):
        key = f"output_{index}"
        wrong = differences(
            wanted[key].numpy(), got[key], moved[key].numpy(), names, extreme
        )
        found[name] = f"wrong: {wrong}" if wrong else "equal"
    return found


@pytest.mark.parametrize("kind", EXPORTS)
def test_telling_operators_are_equal(kind, tmp_path):
    shape, operators = table("vectors")
    chosen = {name: operators[name] for name in TELLING}
    found = outcomes(kind, shape, chosen, tmp_path, TOLERANCE)
    assert found == dict.fromkeys(TELLING, "equal")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kind", EXPORTS)
def test_no_operator_is_verified_and_wrong(kind, name, tmp_path):
    shape, operators = table(name)
    found = {}
    for start in range(0, len(operators), 16):
        part = dict([*operators.items()][start : start + 16])
        found |= outcomes(kind, shape, part, tmp_path)
    wrong = {key: value for key, value in found.items() if "wrong" in value}
    assert not wrong
    assert [*found.values()].count("equal") > 0.7 * len(found)


def vectors(*operators, dtype="float32"):
    x = keras.Input((8,), name="x", dtype=dtype)
    y = x
    for operator in operators:
        y = operator(y)
    return keras.Model(x, y)


def expected(model, samples=None, quantization=None):
    signatures = resolve_signatures(model)
    probes = Probes.fit(signatures, samples)
    return compute_reference(probes, quantization=quantization)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [(layers.UnitNormalization(), "zeros"), (ops.softplus, "1e4")],
)
def test_a_file_that_is_wrong_there_is_refused(
    tmp_path, monkeypatch, operator, kind
):
    # As the converter would write these operators, were they left to it.
    monkeypatch.setattr(conversion, "REWRITTEN", {})
    with pytest.raises(
        kp.ExportVerificationError,
        match=r"largest difference .*where the inputs are "
        rf"{kind}\. The runtime computes",
    ):
        kp.export_litert(
            vectors(operator), tmp_path / "model.tflite", verbose=False
        )
    assert not [*tmp_path.iterdir()]


def test_extreme_numbers_are_compared_to_a_hundredth():
    reference = expected(vectors(layers.Dense(4)))
    probe = next(x for x in reference.probes if x.extremes and not x.is_nan)
    ((name, value),) = probe.outputs.items()
    for factor, is_right in ((1.005, True), (1.02, False)):
        response = {"outputs": {name: value * np.float32(factor)}}
        assert compare(probe, response, reference).is_right == is_right


def test_a_quantized_file_must_be_finite_there_and_no_more(tmp_path):
    keras.utils.set_random_seed(0)
    artifact = kp.export_litert(
        vectors(layers.Dense(256), layers.Dense(4)),
        tmp_path / "model.tflite",
        quantization="int8",
        samples=[np.ones((5, 8), "float32")],
        verbose=False,
    )
    report = artifact.report
    (extreme,) = (case for case in report.cases if case.is_extreme)
    assert extreme not in report.required_cases
    assert 1e-5 < extreme.largest_difference < np.inf
    assert (
        "examples of zeros, 1e4, -1e4, 1e-20, one 1 among" in report.details()
    )
    assert "on the 5 samples" in str(report)


def test_nan_is_tried_and_reported(tmp_path):
    x = keras.Input((4, 4, 3), name="x")
    model = keras.Model(x, layers.AveragePooling2D(2)(x))
    report = kp.export_litert(
        model, tmp_path / "model.tflite", verbose=False
    ).report
    assert report.passed
    assert "if an input is NaN, the file gives NaN where the mod" in str(report)


def integers(use, dtype="int64"):
    t = keras.Input((), dtype=dtype, name="t")
    now = keras.Input((), dtype=dtype, name="now")
    return keras.Model([t, now], use(t, now))


def as_ids(t, now):
    return layers.Embedding(9, 2)(t) + ops.expand_dims(
        ops.cast(now, "float32"), -1
    )


@pytest.mark.parametrize(
    ("use", "dtype", "large"),
    [
        (lambda t, now: t > now + 30_000, "int64", {"t", "now"}),
        (lambda t, now: t - now, "int32", {"t", "now"}),
        (as_ids, "int64", {"now"}),
        # As a length, such a number would need all memory.
        (
            lambda t, now: [layers.Lambda(tf.sequence_mask)(t), now + 1],
            "int32",
            {"now"},
        ),
    ],
)
def test_integers_beyond_what_float32_holds(use, dtype, large):
    samples = {name: np.array([3], dtype) for name in ("t", "now")}
    found = expected(integers(use, dtype), samples)
    for name in samples:
        values = {
            int(x) for probe in found.probes for x in probe.inputs[name].ravel()
        }
        edges = {
            2**24 + 1 + 2**15,
            2**31 + 2 if dtype == "int64" else 2**30 + 3,
        }
        assert (name in large) == (edges <= values)
        assert (max(values) > 2**20) == (name in large)


def test_images_of_bytes_need_no_samples(tmp_path):
    inputs = {
        dtype: keras.Input((8, 8, 3), dtype=dtype, name=dtype)
        for dtype in ("uint8", "int8")
    }
    scaled = [layers.Rescaling(1 / 255)(x) for x in inputs.values()]
    y = layers.Conv2D(2, 3)(layers.Concatenate()(scaled))
    model = keras.Model(inputs, ops.mean(y, axis=(1, 2)))
    for dtype in inputs:
        tried = [probe.inputs[dtype] for probe in expected(model).probes]
        assert len({int(x) for each in tried for x in each.flat}) == 256
    for export, name in EXPORTS.values():
        assert export(model, tmp_path / name, verbose=False).report.passed


def with_position():
    """One input cannot be extreme: there is no such column."""
    x = keras.Input((6,), name="x")
    column = keras.Input((1,), name="column")
    rounded = ops.cast(ops.cast(ops.relu(x), "uint8"), "float32")
    taken = ops.take_along_axis(rounded, ops.cast(ops.relu(column), "int32"), 1)
    return keras.Model([x, column], layers.Identity(name="y")(taken))


def with_infinities():
    """At tiny numbers one output is infinite, and the other is not."""
    x = keras.Input((4,), name="x")
    square = ops.square(x)
    far = ops.where(ops.abs(x) < 1e-10, 1 / square, 1.0)
    outputs = {
        "y": layers.Identity(name="y")(ops.sign(square)),
        "far": layers.Identity(name="far")(far),
    }
    return keras.Model(x, outputs)


@pytest.mark.parametrize("make", [with_position, with_infinities])
def test_what_cannot_be_tried_hides_nothing_else(tmp_path, make):
    # ONNX Runtime rounds to uint8, and squares of 1e-20, otherwise.
    with pytest.raises(kp.ExportVerificationError, match=r"where the inputs"):
        kp.export_onnx(make(), tmp_path / "model.onnx", verbose=False)
