"""Models as LiteRT files."""

import gc
import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.keras_internals import layers_within
from keras_posenc_worker.formats import litert_schema, unpack
from tests import reference
from tests.export.files import run_file
from tests.export.kinds import MODELS
from tests.layers import check_sizes_before_a_run

pytestmark = pytest.mark.tensorflow


def export(model, path, **options):
    """A LiteRT file that nobody has verified."""
    return kp.export_litert(
        model, path, verify=False, verbose=False, **options
    ).path


# ---- Size


def test_weights_are_in_the_file_and_in_memory_once(make, tmp_path):
    """TensorFlow packs it again, with three more in Python's memory."""
    ids = make.ids()
    model = keras.Model(ids, layers.Embedding(50_000, 16)(ids))
    signatures = {"any": model, "three": (model, {"ids": (1, 3)})}
    # A search for traces lists all objects that are not frozen: here those of
    # other tests.
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        path = export(model, tmp_path / "m.tflite", signatures=signatures)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size, weights = path.stat().st_size, 4 * model.count_params()
    assert weights <= size <= 1.1 * weights
    assert peak < 2.5 * size


# ---- Operators and sizes


def test_no_vectors_are_copied_number_by_number(tmp_path):
    """As these operators do in LiteRT, where one pass costs a block's time."""
    x = keras.Input((None, 6), name="x")
    encoder = kp.TransformerEncoder(
        1, num_heads=2, intermediate_dim=16, attention=kp.AlibiBias()
    )
    modes = ("add", "concat", None)
    encoded = [kp.PositionalEncoding(merge_mode=mode)(x) for mode in modes]
    path = export(keras.Model(x, [*encoded, encoder(x)]), tmp_path / "m.tflite")
    file = unpack(path.read_bytes())
    schema = litert_schema()
    kinds, types = schema.BuiltinOperator, schema.TensorType
    slow = (kinds.STRIDED_SLICE, kinds.BROADCAST_TO, kinds.TILE)
    copied = [
        graph.tensors[operator.outputs[0]].name
        for graph in file.subgraphs
        for operator in graph.operators
        if file.operatorCodes[operator.opcodeIndex].builtinCode in slow
        and graph.tensors[operator.outputs[0]].type == types.FLOAT32
    ]
    assert copied == []


def test_sizes_are_known_before_a_run(tmp_path):
    """Else CompiledModel crashes, and XNNPACK may err in the second run.

    Positions by segment are counted by sums, and the last projection of Keras's
    attention merges two axes.
    """
    x = keras.Input((None, 8), name="vectors")
    segments = keras.Input((None,), dtype="int32", name="segments")
    encoder = kp.TransformerEncoder(
        2,
        num_heads=4,
        attention=kp.Attention(kp.RotaryEmbedding(), num_key_value_heads=2),
        intermediate_dim=16,
    )
    outputs = {
        "rotary": encoder(x),
        "encoding": layers.Dense(3)(kp.PositionalEncoding()(x)),
        "last": layers.Dense(3)(kp.Pooling1D("last")(x)),
        "segments": kp.PositionalEncoding()(x, segment_ids=segments),
        "keras": layers.MultiHeadAttention(2, 4)(x, x),
        "best": ops.top_k(x, 2)[0],
        "all": x,
    }
    model = keras.Model([x, segments], outputs)
    rng = np.random.default_rng(0)
    check_sizes_before_a_run(
        export(model, tmp_path / "m.tflite"),
        [
            {
                "vectors": rng.normal(size=(*shape, 8)).astype("float32"),
                "segments": np.sort(rng.integers(1, 3, shape)).astype("int32"),
            }
            for shape in ((1, 5), (3, 17), (1, 2), (2, 200))
        ],
    )


@keras.saving.register_keras_serializable(package="tests")
class Sliced(layers.Layer):
    """Slices that add axes, next to an ellipsis or to an axis that goes."""

    def call(self, inputs):
        several = inputs[..., None, 2:6]
        first = inputs[:, 0, None, ..., None, 1:7:2]
        last = inputs[:, None, :, -1, None]
        length = ops.shape(inputs)[1]
        middle = inputs[:, :length, None, 3]
        return [several + 0.0, first + 0.0, last + 0.0, middle + 0.0]


def test_slices_that_add_axes(tmp_path):
    """As KerasHub writes its attention; LiteRT's converter refuses these."""
    model = keras.Sequential([keras.Input((None, 8), name="vectors"), Sliced()])
    report = kp.export_litert(
        model, tmp_path / "m.tflite", max_length=5, verbose=False
    ).report
    assert report.passed


def test_ids_beyond_int32_have_no_class(tmp_path):
    """LiteRT's converter cuts their bits: 2**32 + 1 would be class 1."""
    ids = keras.Input((4,), dtype="int64", name="ids")
    model = keras.Model(ids, ops.one_hot(ids, 5))
    given = np.int64([[1, 5, 2**32 + 1, 2**32 - 1], [-1, 4, 2**63 - 1, -4]])
    kp.export_litert(model, tmp_path / "m.tflite", samples=given, verbose=False)


DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint32")


def test_compiled_model_that_differs_is_reported(tmp_path):
    """The file is right, and LiteRT's recommended runtime cannot run it."""
    x = keras.Input((None, 8), name="x")
    half = layers.Lambda(lambda x: x[:, : tf.shape(x)[1] // 2 + 1])
    report = kp.export_litert(
        keras.Model(x, half(x)),
        tmp_path / "m.tflite",
        max_length=5,
        verbose=False,
    ).report
    assert report.passed
    (line,) = str(report).splitlines()[1:]
    assert line.startswith("CompiledModel: different: ")
    assert "or export fixed sizes" in line


def test_compiled_model_takes_each_dtype(tmp_path, capsys):
    """Its Python interface has no name for some of them."""
    ids = {name: np.array([[1], [0]], name) for name in DTYPES}
    inputs = {n: keras.Input((1,), dtype=n, name=n) for n in DTYPES}
    floats = {f"{n}s": ops.cast(x, "float32") for n, x in inputs.items()}
    wide = ops.cast(inputs["int32"], "int64")
    report = kp.export_litert(
        keras.Model(inputs, {**floats, "wide": wide}),
        tmp_path / "m.tflite",
        samples=ids,
    ).report
    assert "CompiledModel: equal" in report.details()
    assert "CompiledModel" not in str(report)
    assert capsys.readouterr().err.splitlines() == [
        "Converting to LiteRT ...",
        "Computing reference outputs ...",
        "Waiting for the converter ...",
        "Verifying it in a fresh process ...",
    ]


# ---- Models of any kind


def test_models_of_any_kind(make, tmp_path):
    """Each as a signature of one file."""
    signatures = {name: build(make) for name, build in MODELS.items()}
    report = kp.export_litert(
        signatures["attention"],
        tmp_path / "models.tflite",
        signatures=signatures,
        max_length=5,
        verbose=False,
    ).report
    assert report.passed
    assert report.foreign_operators == []
    assert "CompiledModel: equal" in report.details()
    interpreter, compiled = kp.verify_export(report.path).runtimes
    assert interpreter.errors == compiled.errors == []
    assert {case.signature for case in report.cases} == set(signatures)


def test_model_of_strings_has_signatures_of_its_ids(text_model, tmp_path):
    signatures = {"any": text_model, "five": (text_model, {"ids": (1, 5)})}
    artifact = kp.export_litert(
        text_model,
        tmp_path / "model.tflite",
        signatures=signatures,
        max_length=9,
        verbose=False,
    )
    assert any(
        x.startswith("any takes no strings: LiteRT has none, and no lookup")
        for x in artifact.report.notes
    )
    found = kp.inspect_export(artifact.path).signatures
    assert {
        name: str(sides["inputs"]["ids"]) for name, sides in found.items()
    } == {"any": "int32 (None, None)", "five": "int32 (1, 5)"}
    texts = tf.constant(["one two three"])
    ids = text_model.layers[0](texts).numpy()
    assert ids.shape == (1, 5)
    for name in signatures:
        actual = run_file(artifact.path, {"ids": ids}, name)["scores"]
        np.testing.assert_allclose(actual, text_model(texts), atol=1e-5)
    with pytest.raises(ValueError, match=r"no input 'text'. Its inputs .+ ids"):
        kp.export_litert(
            text_model,
            tmp_path / "m.tflite",
            signatures={"five": (text_model, {"text": (1,)})},
        )


# ---- Precision


def test_mixed_precision_goes_out_in_float32(make, tmp_path):
    policy = "mixed_bfloat16"
    model = make.classifier(policy)
    before = [layer.dtype_policy.name for layer in layers_within(model)]
    artifact = kp.export_litert(
        model, tmp_path / "model.tflite", max_length=5, verbose=False
    )
    said = "compared with the model in float32"
    assert said in artifact.report.details()
    (signature,) = kp.inspect_export(artifact.path).signatures.values()
    assert str(signature["outputs"]["scores"]) == "float32 (None, 3)"
    twin = make.classifier("float32")
    twin.set_weights(model.get_weights())
    ids = np.array([[4, 44, 7, 0, 0], [49, 1, 2, 3, 4]], "int32")
    actual = run_file(artifact.path, {"ids": ids})["scores"]
    np.testing.assert_allclose(actual, twin(ids), rtol=0, atol=1e-6)
    # The model itself is as it was: verified as such too, and as coarse.
    assert kp.verify_export(artifact.path, model, max_length=3).passed
    after = [layer.dtype_policy.name for layer in layers_within(model)]
    assert after == before
    assert policy in after
    assert model(ids).dtype == policy.removeprefix("mixed_")


@pytest.mark.parametrize("policy", ["bfloat16", "float64"])
def test_weights_of_another_precision(make, tmp_path, contents, policy):
    """The policies of all models stay as they were."""
    model = make.classifier("mixed_float16")
    before = [layer.dtype_policy for layer in layers_within(model)]
    signatures = {"serving_default": model, "pure": make.classifier(policy)}
    path = tmp_path / "new" / "model.tflite"
    message = f"^Layer '.*embedding.*' has the dtype policy '{policy}', and .*"
    with pytest.raises(kp.ExportError, match=message + "or 'float32'$"):
        export(model, path, signatures=signatures)
    after = [layer.dtype_policy for layer in layers_within(model)]
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert contents(tmp_path) == []


# ---- Operators that LiteRT does not have


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: tf.math.cumulative_logsumexp(x, axis=1),
            r"^The model needs operators that LiteRT does not have: "
            r"CumulativeLogsumexp \(Lambda 'f'\)\. export_saved_model keeps "
            "TensorFlow's operators",
        ),
        # Its loop over the batch is of any length, and no recurrent layer's.
        (
            lambda x: tf.map_fn(lambda row: 2 * row, x),
            r"^The model has a loop that LiteRT's converter [^\n]*$",
        ),
        (
            lambda x: ops.arctan2(x, ops.ones(4)),
            "refuses the model: operator atan2 requires",
        ),
    ],
)
def test_what_litert_does_not_have(make, tmp_path, contents, function, message):
    with pytest.raises(kp.ExportError, match=message):
        export(apply(make, function), tmp_path / "new" / "model.tflite")
    assert contents(tmp_path) == []


def apply(make, function):
    inputs = make.ids()
    vectors = layers.Embedding(50, 4)(inputs)
    return keras.Model(inputs, layers.Lambda(function, name="f")(vectors))


def test_recurrent_layer_of_any_batch_takes_one(tmp_path):
    """As a tutorial builds it: the first try works, and the report says so."""
    inputs = keras.Input((6, 4), name="frames")
    model = keras.Model(inputs, layers.Bidirectional(layers.GRU(3))(inputs))
    path = tmp_path / "model.tflite"
    samples = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
    report = kp.export_litert(
        model, path, samples=samples, verbose=False
    ).report
    assert "serving_default takes a batch of 1" in str(report)
    assert sum(case.is_sample for case in report.cases) == 2
    (found,) = (
        kp.inspect_export(path).signatures["serving_default"]["inputs"].values()
    )
    assert found.shape == (1, 6, 4)
    assert kp.verify_export(path, model, verbose=False).passed


def test_file_that_the_converter_got_wrong(make, tmp_path, contents):
    # With one unknown size too many this product runs at length 1 alone.
    def scale(x):
        positions = ops.cast(ops.arange(ops.shape(x)[1]), "float32")
        positions = ops.broadcast_to(
            ops.expand_dims(positions, (0, 2)), ops.shape(x)
        )
        return x + ops.einsum("bij,j->bij", positions, ops.ones((4,)))

    with pytest.raises(
        kp.ExportVerificationError,
        match=r"in 4 of 5 cases.* ids of shape \(3, 2\): RuntimeError",
    ):
        kp.export_litert(
            apply(make, scale),
            tmp_path / "model.tflite",
            max_length=3,
            verbose=False,
        )
    assert contents(tmp_path) == []


# ---- The file


def test_path_that_is_no_litert_file(tmp_path, make):
    path = tmp_path / "a.tflite"
    path.mkdir()
    for name, message in (
        ("m.TFLITE", "must end in"),
        ("a.tflite", "a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            export(make.embedder(), tmp_path / name)
    assert [*tmp_path.iterdir()] == [path]


# ---- The encoding in a file of dynamic length

DIM = 64
RNG = np.random.default_rng(0)
EDGES = np.array(
    [0, 1, 63, 64, 65, 4095, 4096, 262143, 262144, 2**24 - 1, 2**24]
)
POSITIONS = {
    "range": np.arange(5000),
    "start": 100_000 + np.arange(130),
    "whole": np.concatenate(
        [EDGES, -EDGES, RNG.integers(-(2**24), 2**24, 300)]
    ),
    "real": np.concatenate(
        [
            [0.5, -0.5, 63.5, 4095.5, -1e-6, 2.0**23 - 0.5],
            RNG.uniform(-5000, 5000, 300),
            RNG.uniform(-(2**24), 2**24, 100),
        ]
    ).astype("float32"),
}


@pytest.fixture(scope="module")
def encodings(tmp_path_factory):
    """A file with the encoding of each kind of positions."""
    encoding = kp.PositionalEncoding(merge_mode=None)
    x = keras.Input((None, DIM), name="x")
    whole = keras.Input((None,), dtype="int32", name="positions")
    real = keras.Input((None,), dtype="float32", name="positions")
    start = keras.Input((), dtype="int32", name="start")
    signatures = {
        "range": keras.Model(x, {"y": encoding(x)}),
        "start": keras.Model([x, start], {"y": encoding(x, start_index=start)}),
        "whole": keras.Model([x, whole], {"y": encoding(x, positions=whole)}),
        "real": keras.Model([x, real], {"y": encoding(x, positions=real)}),
    }
    path = tmp_path_factory.mktemp("encodings") / "m.tflite"
    return export(signatures["range"], path, signatures=signatures)


@pytest.mark.parametrize("kind", POSITIONS)
def test_encoding_of_positions(kind, encodings, encoding_bound, near):
    positions = POSITIONS[kind]
    inputs = {"x": np.zeros((1, len(positions), DIM), "float32")}
    if kind == "start":
        inputs["start"] = positions[:1].astype("int32")
    elif kind != "range":
        dtype = "float32" if kind == "real" else "int32"
        inputs["positions"] = positions[np.newaxis].astype(dtype)
    (actual,) = run_file(encodings, inputs, kind)["y"]
    exact = positions.astype("float64") if kind == "real" else positions
    expected = reference.positional_encoding(exact, DIM)
    near(actual, expected, encoding_bound(exact, expected))
