"""Models of kinds that are not our own, as people bring them to an export."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.check import check_determined, compare
from keras_posenc.export.probes.generate import Probes
from keras_posenc.export.probes.reference import compute_reference
from keras_posenc.export.signatures.resolve import resolve_signatures
from tests.export.files import EXPORTS, run_file

pytestmark = pytest.mark.tensorflow


def export(function, model, path, **options):
    options = {"max_length": 5, "verbose": False, **options}
    return function(model, path, **options)


def words(name="ids", dtype="int32"):
    return keras.Input((None,), dtype=dtype, name=name)


def by_added_mask(mask_dtype):
    """An encoder as BERT's, whose mask is added to the scores."""
    ids, kinds = words("input_ids"), words("token_type_ids")
    mask = words("attention_mask", mask_dtype)
    x = layers.Embedding(300, 8)(ids) + layers.Embedding(2, 8)(kinds)
    query, key = layers.Dense(8, name="query")(x), layers.Dense(8)(x)
    scores = ops.matmul(query, ops.transpose(key, (0, 2, 1)))
    blocked = (1.0 - ops.cast(mask, "float32")) * -1e4
    weights = ops.softmax(scores + ops.expand_dims(blocked, 1))
    outputs = layers.Dense(2, name="scores")(ops.matmul(weights, x))
    return keras.Model([ids, kinds, mask], outputs)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_attention_behind_a_mask_is_seen(dtype):
    # Masks like ids, or like noise, leave one token to attend to, or all.
    probes = Probes.fit(resolve_signatures(by_added_mask(dtype)), max_length=5)
    masks = [
        x.inputs["attention_mask"] for x in compute_reference(probes).probes
    ]
    assert {*np.unique(np.concatenate(masks, axis=None))} == {0, 1}
    assert max(np.sum(mask, axis=-1).max() for mask in masks) > 1


class Sized(layers.Layer):
    """Multiplies by the height, for which its graph takes another number."""

    def __init__(self, graph_height):
        super().__init__()
        self.graph_height = graph_height

    def call(self, inputs):
        height = inputs.shape[1]
        if height is None:
            height = self.graph_height(inputs)
        if not inputs.shape[1] or inputs.shape[1] % 8 == 0:
            return inputs * ops.cast(height, "float32")
        raise ValueError("patches have 8 pixels")


@pytest.mark.parametrize(
    "graph_height",
    [lambda images: ops.shape(images)[2], lambda images: 64],
    ids=["swapped", "frozen"],
)
def test_height_and_width_are_told_apart(tmp_path, graph_height):
    """On squares, of the one size of whole patches, both are right."""
    image = keras.Input((None, None, 3), name="image")
    model = keras.Model(image, Sized(graph_height)(image))
    with pytest.raises(
        kp.ExportVerificationError, match=r"\(1, (32, 64|8, 8), 3\)"
    ):
        kp.export_onnx(model, tmp_path / "m.onnx", verbose=False)


def test_names_are_those_of_the_loaded_model(tmp_path):
    # Keras numbers tensors anew in every process, and not its input layers.
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(2)(inputs))
    artifact = export(kp.export_litert, model, tmp_path / "a.tflite")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert kp.verify_export(artifact.path, loaded, max_length=5).passed


@keras.saving.register_keras_serializable(package="others")
class ByKey(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(20, 4)

    def call(self, inputs):
        return self.embedding(inputs["ids"])


class ByArgument(ByKey):
    def call(self, ids, factor=None):
        x = self.embedding(ids)
        return x if factor is None else x * ops.expand_dims(factor, -1)


@pytest.mark.parametrize(
    ("make", "names"),
    [(ByKey, ["ids"]), (ByArgument, ["ids"]), (ByArgument, ["ids", "factor"])],
)
def test_subclass_takes_inputs_as_it_calls_them(make, names):
    specs = {
        "ids": keras.InputSpec(shape=(None, None), dtype="int32"),
        "factor": keras.InputSpec(shape=(None, None), dtype="float32"),
    }
    arrays = {"ids": np.array([[3, 19]], "int32"), "factor": [[0.5, 2.0]]}
    tensors = {name: ops.convert_to_tensor(arrays[name]) for name in names}
    model = make()
    expected = model(tensors) if make is ByKey else model(**tensors)
    given = {"serving_default": (model, {name: specs[name] for name in names})}
    (signature,) = resolve_signatures(model, given)
    (found,) = signature.call(tensors).values()
    np.testing.assert_array_equal(found, expected)


def test_input_of_low_precision(tmp_path):
    inputs = keras.Input((3,), dtype="bfloat16", name="x")
    model = keras.Model(inputs, layers.Dense(2, dtype="float32")(inputs))
    with pytest.raises(ValueError, match="the bfloat16 input 'x'; give"):
        export(kp.export_litert, model, tmp_path / "m.tflite")
    assert export(kp.export_saved_model, model, tmp_path).report.passed


def upsampled():
    image = keras.Input((None, None, 2), name="image")
    larger = layers.UpSampling2D(2)(image)
    return keras.Model(image, layers.Conv2D(3, 3, padding="same")(larger))


def masked_attention():
    ids = words()
    x = layers.Embedding(30, 8, mask_zero=True)(ids)
    x = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    return keras.Model(ids, layers.Dense(3)(x))


def signs_of_integers():
    ids = words(dtype="int64")
    return keras.Model(ids, ops.sign(ids - 5) * ops.abs(ids - 7))


def recurrent_texts():
    """Built from data of one text, as TensorFlow's tutorial builds it."""
    split = layers.TextVectorization(max_tokens=20)
    split.adapt(["the movie was cool"])
    encoder = layers.Bidirectional(layers.LSTM(3))
    table = layers.Embedding(20, 4, mask_zero=True)
    model = keras.Sequential([split, table, encoder, layers.Dense(1)])
    model(tf.constant(["the movie was cool"]))
    return model


def sound():
    """Of at least 1,600 samples, which is more than any text has steps."""
    samples = keras.Input((None, 1), name="samples")
    x = layers.Conv1D(4, 100, strides=100, activation="tanh")(samples)
    x = layers.Conv1D(4, 16)(x)
    return keras.Model(samples, layers.GlobalAveragePooling1D()(x))


def resized(kind):
    """The factor 9 / 5, in float32, gives 8 pixels of 5."""
    image = keras.Input((5, 5, 1), name="image")
    larger = ops.image.resize(image, (9, 9), interpolation=kind)
    return keras.Model(image, layers.Conv2D(2, 3)(larger))


def categories():
    """Keras's layer refuses what is no class of it."""
    kind = keras.Input((1,), dtype="int32", name="kind")
    encoding = layers.CategoryEncoding(5, output_mode="one_hot")
    return keras.Model(kind, layers.Dense(2)(encoding(kind)))


def mean_of_integers():
    x = keras.Input((2, 2), dtype="int32", name="x")
    return keras.Model(x, layers.Lambda(lambda x: tf.reduce_mean(x, (1, 2)))(x))


@pytest.mark.parametrize(
    ("kind", "make", "samples"),
    [
        ("litert", upsampled, None),
        ("litert", masked_attention, None),
        ("litert", signs_of_integers, [[3, 5, 9]]),
        ("litert", recurrent_texts, ["cool movie", "was"]),
        ("litert", sound, None),
        ("litert", categories, None),
        ("onnx", categories, None),
        ("onnx", mean_of_integers, [[[1, 2], [2, 3]]]),
        ("onnx", lambda: resized("bilinear"), None),
        ("onnx", lambda: resized("nearest"), None),
    ],
)
def test_ordinary_models_are_exported(kind, make, samples, tmp_path):
    keras.utils.set_random_seed(0)
    function, file = EXPORTS[kind]
    samples = None if samples is None else np.array(samples)
    function(make(), tmp_path / file, samples=samples, verbose=False)


def test_mean_of_an_image_of_one_color_in_onnx(tmp_path):
    """256 roundings in each of two sums, where one has 65,536."""
    image = keras.Input((256, 256, 1), name="image")
    model = keras.Model(image, layers.GlobalAveragePooling2D()(image))
    kp.export_onnx(model, tmp_path / "m.onnx", verbose=False)
    ones = np.full((1, 256, 256, 1), 0.1, "float32")
    (mean,) = run_file(tmp_path / "m.onnx", {"image": ones}).values()
    np.testing.assert_allclose(mean, 0.1, rtol=2 * 256 * 2**-24)


def test_rounding_of_an_ill_conditioned_model_is_measured():
    """1e3 less 1e3 leaves 1e-4 of rounding, in one column of two."""
    x = keras.Input((1,), name="x")
    both = layers.Dense(2, name="both")(x)
    small = layers.Subtract()([both, np.array([[1e3, 0.0]], "float32")])
    model = keras.Model(x, [small, ops.floor(both)])
    model.get_layer("both").set_weights([np.ones((1, 2)), np.array([1e3, 0])])
    signatures = resolve_signatures(model)
    reference = compute_reference(Probes.fit(signatures))
    probe = next(probe for probe in reference.probes if not probe.extremes)
    first, whole = probe.outputs

    def differing(name, column, by):
        outputs = {name: value.copy() for name, value in probe.outputs.items()}
        outputs[name][:, column] += by
        response = {"outputs": outputs, "milliseconds": 1.0}
        return compare(probe, response, reference).largest_difference

    assert differing(first, 0, 2e-4) <= reference.tolerance
    assert "rounding alone" in reference.rounded[-1][1]
    for wrong in ((first, 0, 0.1), (first, 1, 2e-4), (whole, 0, 1.0)):
        assert differing(*wrong) > reference.tolerance


@pytest.mark.parametrize("bound", [0.5, -9.0])
def test_examples_that_rounding_decides_are_not_compared(bound):
    """1e6 + x less 1e6, above a bound; below it x."""
    x = keras.Input((1,), name="x")
    large = layers.Dense(1, name="large")(x)
    values = [x, large]
    model = keras.Model(
        x,
        layers.Lambda(
            lambda x: ops.where(x[0] > bound, x[1] - 1e6, x[0]),
            output_shape=(1,),
        )(values),
    )
    model.get_layer("large").set_weights([np.ones((1, 1)), np.array([1e6])])
    reference = compute_reference(Probes.fit(resolve_signatures(model)))

    def compared(is_wrong):
        cases = []
        for probe in reference.probes:
            ((name, value),) = probe.outputs.items()
            wrong = value + is_wrong(probe.inputs["x"])
            response = {"outputs": {name: wrong}, "milliseconds": 1.0}
            if not probe.extremes:
                cases.append(compare(probe, response, reference))
        return cases

    cases = compared(lambda x: x > bound)
    assert all(case.is_right for case in cases)
    assert 0 < sum(case.undetermined for case in cases)
    if bound < 0:
        with pytest.raises(kp.ExportVerificationError, match="`samples`; else"):
            check_determined(cases, reference)
        return
    check_determined(cases, reference)
    assert "not compared" in reference.notes[-1]
    cases = compared(lambda x: x < bound)
    assert not all(case.is_right for case in cases)


@pytest.mark.parametrize(
    ("lookup", "name", "values"),
    [
        (layers.StringLookup, "texts", ["a", "b"]),
        (layers.IntegerLookup, "values", [50, 7]),
    ],
    ids=["strings", "integers"],
)
def test_code_of_a_lookup_makes_what_the_file_takes(
    lookup, name, values, tmp_path
):
    values = tf.constant([values])
    kind = keras.Input((2,), dtype=values.dtype.name, name="kind")
    table = lookup(vocabulary=values[0].numpy(), output_mode="multi_hot")
    scaled = layers.Dense(2)(layers.Rescaling(2.0)(table(kind)))
    model = keras.Model(kind, scaled)
    path = tmp_path / "m.tflite"
    options = {} if name == "texts" else {"samples": values}
    report = export(kp.export_litert, model, path, **options).report
    said = r"must make (\w+) \(.*\), the output of layer '(\w+)'"
    given, layer = re.search(said, str(report)).groups()
    made = tf.cast(model.get_layer(layer)(values), "float32")
    (found,) = run_file(path, {given: made.numpy()}).values()
    np.testing.assert_allclose(found, model(values), rtol=1e-5)
