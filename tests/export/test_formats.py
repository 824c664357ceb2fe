"""What exported models of every format do alike."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_posenc as kp
from keras_posenc.export import frozen
from keras_posenc.export.graphs import weights
from tests.export.files import EXPORTS, loaded_file, run_file

pytestmark = pytest.mark.tensorflow

# What each runtime says of an id that the embedding does not have.
UNKNOWN_ID = {
    "saved_model": (tf.errors.InvalidArgumentError, r"is not in \[0, 5"),
    "litert": (RuntimeError, "gather index out of bounds"),
    "onnx": (Exception, "indices element out of data bounds"),
}


@pytest.fixture(scope="module", params=EXPORTS)
def exported(request):
    """The format, and the verified export of `model` in it."""
    return request.param, request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def load(exported):
    """Returns a function from ids to scores, of one loaded signature."""
    kind, artifact = exported
    # A SavedModel takes a second.
    opened = (
        functools.cache(loaded_file) if kind == "saved_model" else loaded_file
    )

    def load(signature="serving_default"):
        run = opened(artifact.path, signature)
        return lambda ids: run({"ids": np.array(ids, "int32")})["scores"]

    return load


def test_report_and_names(exported):
    kind, artifact = exported
    assert artifact.report.passed
    assert artifact.report.kind == kind
    found = kp.inspect_export(artifact.path)
    assert found.foreign_operators == []
    sides = found.signatures["serving_default"]
    assert str(sides["inputs"]["ids"]) == "int32 (None, None)"
    assert str(sides["outputs"]["scores"]) == "float32 (None, 3)"
    # An ONNX file has one signature.
    assert ("short" in found.signatures) == (kind != "onnx")


@pytest.fixture(scope="module")
def batches(model):
    """Ids and scores of many lengths, with one row half of padding."""
    rng, found = np.random.default_rng(0), []
    blocks = [64 * k + step for k in (1, 2) for step in (-1, 0, 1)]
    for length in [*range(1, 7), 17, 31, *blocks, 257, 512, 5, 1]:
        ids = rng.integers(1, 50, (2, length), "int32")
        ids[1, (length + 1) // 2 :] = 0
        found.append((ids, model(ids).numpy()))
    nothing = np.zeros((7, 5), "int32")
    return [*found, (nothing, model(nothing).numpy())]


def test_any_batch_and_any_length(exported, load, batches):
    """Through longer and shorter ones, and one of nothing but padding."""
    kind, _ = exported
    run, tolerance = load(), 1e-5 if kind == "litert" else 1e-6
    for ids, expected in batches:
        np.testing.assert_allclose(
            run(ids), expected, rtol=0, atol=tolerance, err_msg=str(ids.shape)
        )


def test_signature_of_static_shape(exported, load, model):
    if exported[0] != "onnx":
        ids = np.array([[5, 6, 0, 0]], "int32")
        found = load("short")(ids)
        np.testing.assert_allclose(found, model(ids), rtol=0, atol=1e-6)


def test_id_beyond_the_vocabulary_is_an_error(exported, load):
    kind, _ = exported
    error, words = UNKNOWN_ID[kind]
    # An ONNX file counts from the end twice.
    below = -101 if kind == "onnx" else -51
    for unknown in (50, 51, 2**31 - 1, below, -(2**31)):
        with pytest.raises(error, match=words):
            load()([[4, unknown, 5]])
        load()([[4, 5]])  # and nothing is broken


def test_no_rows_have_no_outputs(load):
    assert load()(np.zeros((0, 3), "int32")).shape == (0, 3)


@pytest.fixture(params=EXPORTS)
def export(request, tmp_path):
    """Exports a model below a folder of `tmp_path`."""
    function, name = EXPORTS[request.param]

    def export(model, folder=".", **options):
        path = tmp_path / folder / name
        return function(model, path, max_length=2, verbose=False, **options)

    return export


def test_unverified_export_has_no_report(make, export):
    artifact = export(make.embedder(), verify=False)
    assert artifact.path.exists()
    assert artifact.report is None


def test_failed_export_leaves_what_was_there(
    make, export, tmp_path, contents, monkeypatch
):
    # Else the file's own graph is the reference.
    monkeypatch.setattr(frozen, "has_static_shapes", lambda: True)
    version = tmp_path / "model" / "1"
    version.mkdir(parents=True)
    for path in (
        tmp_path / "model.tflite",
        tmp_path / "model.onnx",
        version / "saved_model.pb",
    ):
        path.write_bytes(b"earlier")
    before = contents(tmp_path)
    with pytest.raises(
        kp.ExportVerificationError, match=r"Signature '\w+', ids "
    ) as caught:
        export(make.restless())
    assert "restless[" in str(caught.value)
    assert not caught.value.report.passed
    assert contents(tmp_path) == before
    assert (tmp_path / "model.tflite").read_bytes() == b"earlier"
    assert (tmp_path / "model.onnx").read_bytes() == b"earlier"
    assert (version / "saved_model.pb").read_bytes() == b"earlier"


@pytest.mark.parametrize(
    ("mode", "share", "advice"),
    [
        ({}, 1, "`quantization='int8'` divides them by 4"),
        ({"quantization": "float16"}, 1, "LiteRT files hold"),
        ({"quantization": "int8"}, 4, "LiteRT files hold"),
    ],
)
def test_more_than_a_file_can_hold(
    monkeypatch, tmp_path, make, mode, share, advice
):
    model = make.embedder()
    size = 4 * model.count_params()
    monkeypatch.setattr(weights, "MOST", size // share - 1)
    with pytest.raises(kp.ExportError, match=advice):
        kp.export_litert(model, tmp_path / "m.tflite", verbose=False, **mode)
    with pytest.raises(kp.ExportError, match="ONNX files hold"):
        kp.export_onnx(model, tmp_path / "m.onnx", verbose=False)
    assert not [*tmp_path.iterdir()]


def test_nan_of_the_models_own(exported, tmp_path):
    ids = keras.Input((4,), dtype="int32", name="ids")
    x = keras.layers.Embedding(9, 3, mask_zero=True)(ids)
    x = keras.layers.GlobalAveragePooling1D()(x)  # 0 / 0 without tokens
    model = keras.Model(ids, keras.layers.Dense(2, name="scores")(x))
    assert np.isnan(model(np.zeros((1, 4)))).all()
    export, name = EXPORTS[exported[0]]
    report = export(model, tmp_path / name, verbose=False).report
    assert report.passed
    (note,) = (each for each in report.notes if "NaN" in each)
    assert "the model itself gives NaN for ids=[0, 0, 0, 0]" in note
    assert "kp.Pooling1D('mean')" in note


def from_the_middle():
    """Keras names its input keras_tensor_5CLONE, or another number."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    outputs = keras.layers.Dense(2, name="y")(model.outputs[0])
    return keras.Model(model.outputs[0], outputs)


@pytest.mark.parametrize("kind", EXPORTS)
def test_capital_letters_in_the_name_of_an_input(kind, tmp_path):
    """TensorFlow has them in lower case inside."""
    export, name = EXPORTS[kind]
    model = from_the_middle()
    path = export(model, tmp_path / name, verbose=False).path
    (sides,) = kp.inspect_export(path).signatures.values()
    assert [*sides["inputs"]] == [model.inputs[0].name]
    assert kp.verify_export(path, model, verbose=False).passed


@pytest.mark.parametrize("kind", ["litert", "onnx"])
def test_inputs_and_outputs_by_position(kind, tmp_path):
    """Apps run files so, and the names here sort otherwise."""
    x, a = (keras.Input((2,), name=name) for name in "xa")
    model = keras.Model(
        [x, a],
        [
            keras.layers.Rescaling(2.0, name="z_first")(x),
            keras.layers.Rescaling(3.0, name="a_second")(x),
            keras.layers.Add(name="m_third")([x, a]),
        ],
    )
    export, file = EXPORTS[kind]
    path = export(model, tmp_path / file, verify=False, verbose=False).path
    given = [np.float32([[1.0, 2.0]]), np.float32([[-5.0, 7.0]])]
    assert list(
        kp.inspect_export(path).signatures["serving_default"]["outputs"]
    ) == (model.output_names)
    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        names = [each.name for each in session.get_inputs()]
        found = session.run(None, dict(zip(names, given, strict=True)))
    else:
        from ai_edge_litert.interpreter import Interpreter

        run = Interpreter(str(path))
        run.allocate_tensors()
        for each, value in zip(run.get_input_details(), given, strict=True):
            run.set_tensor(each["index"], value)
        run.invoke()
        found = [run.get_tensor(x["index"]) for x in run.get_output_details()]
    for value, want in zip(found, model(given), strict=True):
        np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize("kind", ["litert", "onnx"])
def test_where_the_largest_and_smallest_numbers_are(kind, tmp_path):
    """Keras has -0.0 below 0.0 there, by the sign bit."""
    x = keras.Input((4,), name="x")
    ops = keras.ops
    model = keras.Model(
        x,
        {
            "largest": ops.argmax(x, axis=-1),
            "smallest": ops.argmin(x, axis=-1, keepdims=True),
            "negative": ops.signbit(x),
        },
    )
    export, file = EXPORTS[kind]
    exported = export(model, tmp_path / file, verbose=False)
    assert exported.report.passed
    rows = np.float32([[-0.0, 0.0, -0.0, -1.0], [0.0, -0.0, 3.0, np.inf]])
    found = run_file(exported.path, {"x": rows})
    for name, want in model.predict(rows, verbose=0).items():
        np.testing.assert_array_equal(found[name], want, name)


@pytest.mark.parametrize("kind", ["litert", "onnx"])
def test_operators_written_by_others(kind, tmp_path):
    """Those of `decompose`; ONNX keeps all digits near 0."""
    x, ops = keras.Input((8,), name="x"), keras.ops
    cube, inside = ops.reshape(x, (-1, 2, 2, 2, 1)), ops.tanh(x)
    model = keras.Model(
        x,
        {
            "expm1": ops.expm1(x),
            "log1p": ops.log1p(ops.abs(x)),
            "arctan": ops.arctan(x),
            "arcsin": ops.arcsin(inside),
            "arccos": ops.arccos(inside),
            "tan": ops.tan(inside),
            "erf": ops.erf(x),
            "celu": ops.celu(x),
            "rolled": ops.roll(ops.roll(x, 3, axis=1), -1, axis=1),
            "kind": keras.layers.Discretization([-1.0, 0.0, 2.0])(x),
            "max_pool": keras.layers.MaxPooling3D(2, 1, "same")(cube),
            "pool": keras.layers.AveragePooling3D(2, 1, "same")(cube),
        },
    )
    export, file = EXPORTS[kind]
    exported = export(model, tmp_path / file, verbose=False)
    assert exported.report.passed
    near = np.float32([[1e-6, -1e-6, 3e-4, -3e-4, 0.1, -0.1, 0.0, 1e-12]])
    found = run_file(exported.path, {"x": near})
    wanted = model.predict(near, verbose=0)
    # LiteRT's converter simplifies the others: they are right to 1.2e-7.
    others = ["expm1", "log1p"] * (kind == "onnx")
    for name in ["arctan", *others]:
        np.testing.assert_allclose(found[name], wanted[name], 1e-6, 0, name)


@pytest.mark.parametrize("kind", EXPORTS)
def test_python_code_in_a_model(kind, tmp_path, capfd):
    """No file runs it, so allowing its operator is no remedy."""

    def double(x):
        y = tf.numpy_function(lambda y: 2 * y, [x], tf.float32)
        return tf.ensure_shape(y, x.shape)

    x = keras.Input((2,), name="x")
    layer = keras.layers.Lambda(double, output_shape=(2,))
    export, file = EXPORTS[kind]
    with pytest.raises(kp.ExportError, match="write that code with") as caught:
        export(keras.Model(x, layer(x)), tmp_path / file, verbose=False)
    assert "allow_" not in str(caught.value)
    assert capfd.readouterr().err == ""
