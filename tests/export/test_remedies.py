"""What messages advise, followed to the letter: it has to work as it stands.

Code to copy stands in backticks: arguments of the same call, or an expression
that gives the model to export. What is `model` there is the user's.
"""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.signatures.resolve import resolve_signatures
from tests.export.files import EXPORTS

pytestmark = pytest.mark.tensorflow


def codes(message):
    """The code in a message that is more than the name of an argument."""
    return [
        code
        for code in re.findall("`([^`]+)`", message)
        if not code.isidentifier()
    ]


def followed(code, model, **scope):
    """The model and the options of the next call, as the code has them."""
    scope = {"keras": keras, "np": np, "model": model, **scope}
    if re.match(r"\w+=", code):
        return model, eval(f"dict({code})", scope)
    found = eval(code, scope)
    return found if isinstance(found, keras.Model) else model, {}


class Subclass(keras.Model):
    def __init__(self, *parts):
        super().__init__()
        self.parts = parts

    def call(self, inputs):
        for part in self.parts:
            inputs = part(inputs)
        return inputs


def called(model, dtype="float32", shape=(2, 3)):
    model(np.ones(shape, dtype))
    return model


def integers():
    inputs = keras.Input((3,), dtype="int32")
    return keras.Model(inputs, keras.ops.cast(inputs, "float32") * 2.0)


# What makes the model, and to which format it goes. Remedies for names and for
# nested outputs are followed in signatures/test_signatures.py.
CASES = {
    "not called": (lambda: Subclass(layers.Dense(2)), "saved_model"),
    "subclass of ids": (
        lambda: called(Subclass(layers.Embedding(9, 2)), "int32"),
        "saved_model",
    ),
    "chain of ids": (
        lambda: called(keras.Sequential([layers.Embedding(9, 2)]), "int32"),
        "litert",
    ),
    "integers": (integers, "onnx"),
}


@pytest.mark.parametrize("name", CASES)
def test_remedy_works_when_copied(name, tmp_path):
    make, kind = CASES[name]
    keras.utils.set_random_seed(0)
    model, (export, file) = make(), EXPORTS[kind]
    fixed = {"verbose": False, "max_length": 5}
    with pytest.raises((ValueError, kp.ExportError)) as caught:
        export(model, tmp_path / file, **fixed)
    code, *_ = codes(str(caught.value))
    x = np.ones((2, 3), "float32")
    model, options = followed(code, model, x=x)
    report = export(model, tmp_path / file, **fixed, **options).report
    assert report.passed


@pytest.mark.parametrize(
    ("make", "name", "shape"),
    [
        (lambda: called(Subclass(layers.Dense(2))), "inputs", (None, 3)),
        (
            lambda: called(keras.Sequential([layers.Dense(2)])),
            "input_layer",
            (None, 3),
        ),
        (
            lambda: called(Subclass(layers.LSTM(2)), shape=(1, 5, 4)),
            "inputs",
            (None, 5, 4),
        ),
    ],
)
def test_a_model_of_floats_has_the_shapes_that_it_was_called_with(
    make, name, shape
):
    keras.utils.clear_session()
    (signature,) = resolve_signatures(make())
    ((found, spec),) = signature.specs.items()
    assert (found, tuple(spec.shape), spec.dtype) == (name, shape, "float32")


def test_models_called_on_a_dict_or_a_list():
    class Sum(keras.Model):
        def call(self, pair):
            one, other = pair.values() if isinstance(pair, dict) else pair
            return one - 2.0 * other

    values = np.float32([[1.0, 2.0]]), np.float32([[3.0, 5.0]])
    for pair, names in (
        ({"b": values[0], "a": values[1]}, ["a", "b"]),
        ([*values], ["pair_0", "pair_1"]),
    ):
        model = Sum()
        model(pair)
        (signature,) = resolve_signatures(model)
        assert sorted(signature.specs) == names
        order = ["b", "a"] if "a" in names else names
        given = dict(zip(order, values, strict=True))
        (found,) = signature.call(given).values()
        np.testing.assert_array_equal(found, [[-5.0, -8.0]])


# ---- Of operators that a format lacks


# Refused of an input (4, 3): the operation, the format, the words, the remedy.
LACKING = {
    "slice_update": (
        lambda x: ops.slice_update(x, (0, 1, 0), x[:, :1] * 2),
        "onnx",
        "XlaDynamicUpdateSlice: .* by keras.ops.concatenate",
        lambda x: ops.concatenate([x[:, :1], x[:, :1] * 2, x[:, 2:]], 1),
    ),
    "median": (
        lambda x: ops.median(x, axis=2),
        "litert",
        r"places of keras\.ops\.sort\(x, axis\)",
        lambda x: ops.sort(x, axis=2)[:, :, 1],
    ),
    "float64": (
        lambda x: ops.ceil(ops.cast(x, "float64")),
        "litert",
        r"keras\.ops\.cast\(x, 'float32'\)",
        lambda x: ops.ceil(ops.cast(x, "float32")),
    ),
    "resizing": (
        lambda x: layers.Resizing(2, 3, interpolation="area")(x[..., None]),
        "onnx",
        r"ResizeArea \(Resizing '\w+'\)\. .* AveragePooling2D\(n\)",
        lambda x: layers.AveragePooling2D((2, 1))(x[..., None]),
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_remedy_for_an_operator_that_a_format_lacks(name, tmp_path):
    refused, kind, said, instead = LACKING[name]
    keras.utils.set_random_seed(0)
    export, file = EXPORTS[kind]
    x = keras.Input((4, 3), name="x")
    model = keras.Model(x, refused(x))
    with pytest.raises(kp.ExportError, match=said):
        export(model, tmp_path / file, verbose=False)
    other = keras.Model(x, instead(x))
    values = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    np.testing.assert_allclose(
        model.predict(values, verbose=0),
        other.predict(values, verbose=0),
        rtol=0,
        atol=1e-6,
    )
    assert export(other, tmp_path / file, verbose=False).report.passed


# ---- Of verify


def test_signatures_that_verify_names(make, tmp_path):
    model = make.embedder()
    path = tmp_path / "m.tflite"
    signatures = {"short": (model, {"ids": (1, 4)})}
    options = {"verify": False, "verbose": False}
    kp.export_litert(model, path, signatures=signatures, **options)
    message = "has no signature 'serving_default'. It has: short. Give those of"
    with pytest.raises(ValueError, match=message):
        kp.verify_export(path, model, verbose=False)
    options = {"signatures": signatures, "verbose": False}
    assert kp.verify_export(path, model, **options).passed


def test_names_that_keras_numbers(tmp_path):
    def build(name=None, outputs="y"):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((4,), name=name)
        return keras.Model(inputs, layers.Dense(2, name=outputs)(inputs))

    path, options = tmp_path / "m.tflite", {"verify": False, "verbose": False}
    kp.export_litert(build(), path, **options)
    message = (
        r"takes input_layer\w*, and .* as in keras.Input\(\(4,\), name='x'"
    )
    with pytest.raises(ValueError, match=message):
        kp.verify_export(path, build(), verbose=False)
    kp.export_litert(build("x"), path, **options)
    assert kp.verify_export(path, build("x"), verbose=False).passed
    kp.export_litert(build("x", None), path, **options)
    report = kp.verify_export(path, build("x", None), verbose=False)
    assert (
        "the output layers, as in keras.Input((4,), name='x') and keras.la"
        in str(report)
    )
