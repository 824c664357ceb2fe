"""Ordinary models and inputs, each right in all formats or refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.check import compare
from keras_posenc.export.probes.generate import Probes
from keras_posenc.export.probes.reference import compute_reference
from keras_posenc.export.signatures.resolve import resolve_signatures
from tests.export.files import EXPORTS, run_file

pytestmark = pytest.mark.tensorflow


@pytest.fixture(params=EXPORTS, name="kind")
def fixture_kind(request):
    keras.utils.set_random_seed(0)
    return request.param


@pytest.fixture
def export(kind, tmp_path):
    """Exports a model, and checks that nothing of it has changed."""
    function, file = EXPORTS[kind]

    def export(model, **options):
        before = model.get_weights(), model.get_config()
        try:
            return function(
                model, tmp_path / file, **{"verbose": False, **options}
            ).path
        finally:
            for one, other in zip(before[0], model.get_weights(), strict=True):
                np.testing.assert_array_equal(one, other)
            assert model.get_config() == before[1]

    return export


def model_of(*names, layer=None):
    """The sum of inputs of these names, or a layer of it."""
    inputs = [keras.Input((2,), name=name) for name in names]
    outputs = layers.Add()(inputs) if len(inputs) > 1 else inputs[0]
    return keras.Model(inputs, layer(outputs) if layer else outputs)


def by_batch(x):
    flip = layers.Lambda(
        lambda x: x if tf.shape(x)[0] > 3 else -x,
        output_shape=(2,),
        name="by_batch",
    )
    return flip(x)


# The model, and a part of the message.
REFUSED = {
    "names that differ in case": (
        lambda: model_of("x", "X"),
        "To rename inputs, export `keras.models.clone_model(",
    ),
    "a layer's name": (
        lambda: model_of("x", layer=layers.Dense(2, name="my y")),
        "\nRename it",
    ),
    "code that needs a number of a run": (
        lambda: model_of("x", layer=by_batch),
        "in Lambda 'by_batch': its Python code needs a number that only a run "
        "knows\nIf an operation needs sizes that are known, give them in",
    ),
    "steps of any number": (
        lambda: keras.Sequential(
            [
                keras.Input((None, 4), name="x"),
                layers.TimeDistributed(layers.Dense(2), name="steps"),
            ]
        ),
        "Keras computes TimeDistributed 'steps' wrongly in graphs of any",
    ),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *zip(
            REFUSED,
            ("saved_model", "onnx", "saved_model", "litert"),
            strict=True,
        )
    ],
    indirect=["kind"],
)
def test_bad_inputs_are_refused(name, export, tmp_path):
    make, said = REFUSED[name]
    with pytest.raises((ValueError, kp.ExportError)) as caught:
        export(make())
    assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_odd_inputs_are_right(kind, export):
    """Capitals, outputs of one shape, images of 1 x 1, samples of integers."""
    image = keras.Input((None, None, 3), name="Image")
    user = keras.Input((2,), name="user_ID")
    pixels = layers.Conv2D(2, 3, padding="same")(image)
    model = keras.Model(
        [image, user],
        [
            layers.GlobalAveragePooling2D(name="z_first")(pixels),
            layers.Rescaling(3.0, name="A_second")(user),
        ],
    )
    samples = {
        "Image": np.full((2, 1, 1, 3), 200, "uint8"),
        "user_ID": np.array([[1, 2], [2**20, -3]]),
    }
    path = export(model, samples=samples, max_length=9)
    outputs = kp.inspect_export(path).signatures["serving_default"]["outputs"]
    order = sorted if kind == "saved_model" else list
    assert [*outputs] == order(["z_first", "A_second"])
    floats = {name: x.astype("float32") for name, x in samples.items()}
    found = run_file(path, floats)
    wanted = model.predict([*floats.values()], verbose=0)
    for name, value in zip(model.output_names, wanted, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)


def test_grouped_convolutions(export):
    """TensorFlow's CPU computes them by XLA."""
    x = keras.Input((4, 4, 4, 4), name="x")
    model = keras.Model(
        x,
        {
            "one": layers.Conv1D(4, 3, groups=2)(ops.reshape(x, (-1, 64, 4))),
            "two": layers.Conv2D(6, 3, groups=2, strides=2)(x[:, 0]),
        },
    )
    export(model)


def test_quotients_are_rounded_down(export):
    """... in float32: few quotients are whole in float64, as LiteRT's are."""
    x, divisors = keras.Input((3,), name="x"), np.float32([0.7, -0.1, 3.0])
    columns = zip(ops.split(x, 3, axis=-1), divisors.tolist(), strict=True)
    model = keras.Model(x, [ops.floor_divide(*each) for each in columns])
    path = export(model)
    multiples = np.arange(-1000, 1001, dtype="float32")[:, None] * divisors
    found = run_file(path, {"x": multiples})
    wanted = model.predict(multiples, verbose=0)
    for name, value in zip(model.output_names, wanted, strict=True):
        np.testing.assert_array_equal(found[name], value)


def test_numbers_that_are_not_finite_refuse_no_model():
    """The model's own, of an image of one pixel: as in MobileNetV3."""
    image = keras.Input((None, None, 3), name="image")
    model = keras.Model(image, 1.0 / ops.std(image, axis=(1, 2)))
    reference = compute_reference(Probes.fit(resolve_signatures(model)))
    outputs = [value for x in reference.probes for value in x.outputs.values()]
    assert not all(np.isfinite(value).all() for value in outputs)
    for probe in reference.probes:
        response = {"outputs": probe.outputs, "milliseconds": 1.0}
        assert compare(probe, response, reference).is_right


@pytest.mark.parametrize(("margin", "is_right"), [(2.0, True), (30.0, False)])
def test_rounding_that_a_softmax_hides(margin, is_right):
    """1e6 + x less 1e6, which moves by up to 4, and x + `margin`."""
    x = keras.Input((1,), name="x")
    large = layers.Dense(1, name="large")(x)
    both = ops.concatenate([large - 1e6, x + margin], axis=-1)
    model = keras.Model(x, layers.Softmax()(1e4 * both))
    model.get_layer("large").set_weights([np.ones((1, 1)), np.array([1e6])])
    reference = compute_reference(Probes.fit(resolve_signatures(model)))
    probe = next(probe for probe in reference.probes if not probe.extremes)
    outputs = {name: x[:, ::-1] for name, x in probe.outputs.items()}
    case = compare(probe, {"outputs": outputs}, reference)
    assert case.is_right is is_right
