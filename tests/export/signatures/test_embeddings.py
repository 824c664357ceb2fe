"""The embeddings that a model computes on the way to its answer."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.signatures.resolve import resolve_serving_signatures
from keras_posenc.export.signatures.tracing import trace

pytestmark = pytest.mark.tensorflow


def encode(model):
    found = [
        signature
        for signature in resolve_serving_signatures(model)
        if signature.name == "encode"
    ]
    return found[0] if found else None


IDS = np.array([[4, 7, 2, 0], [3, 0, 0, 0]], "int32")


@pytest.mark.parametrize("nested", [False, True])
def test_embeddings_are_those_before_and_behind_the_pooling(make, nested):
    model = make.classifier()
    x = tf.constant(IDS)
    for layer in model.layers:
        if isinstance(layer, kp.Pooling1D):
            contextual = x
        x = layer(x)
        if isinstance(layer, kp.Pooling1D):
            pooled = x
    if nested:
        inputs = make.ids()
        model = keras.Model(inputs, layers.Dense(2)(model(inputs)))
    signature = encode(model)
    assert list(signature.specs) == ["ids"]
    answer = signature.call({"ids": tf.constant(IDS)})
    assert set(answer) == {"contextual", "pooled", "mask"}
    np.testing.assert_allclose(answer["pooled"], pooled, rtol=0, atol=1e-6)
    real = IDS != 0
    np.testing.assert_array_equal(answer["mask"], real)
    np.testing.assert_allclose(
        answer["contextual"].numpy()[real],
        contextual.numpy()[real],
        rtol=0,
        atol=1e-6,
    )


def test_embeddings_of_text(text_model, served, run_saved_model):
    texts = np.array(["one two", "seven", ""], dtype=object)
    cut = keras.Model(text_model.inputs, text_model.get_layer("pooling").output)
    answer = run_saved_model(served.path, "encode")({"text": texts})
    np.testing.assert_allclose(
        answer["pooled"], cut(tf.constant(texts)), rtol=0, atol=1e-6
    )
    assert answer["contextual"].shape == (3, 4, 8)  # [CLS] one two [SEP]
    np.testing.assert_array_equal(answer["mask"].sum(axis=1), [4, 3, 2])


def first_token(x):
    return layers.Dense(3)(x[:, 0])


def recurrent(x):
    return layers.Dense(3)(layers.GRU(5)(x))


def mean_of_ops(x):
    return layers.Dense(3)(ops.mean(x, axis=1))


@pytest.mark.parametrize(
    ("head", "dim"), [(first_token, 4), (recurrent, 5), (mean_of_ops, 4)]
)
def test_any_way_to_pool(make, head, dim):
    inputs = make.ids()
    vectors = layers.Embedding(50, 4)(inputs)
    signature = encode(keras.Model(inputs, head(vectors)))
    answer = signature.call({"ids": tf.constant(IDS)})
    assert answer["contextual"].shape == (2, 4, 4)
    assert answer["pooled"].shape == (2, dim)
    assert "mask" not in answer  # the model knows of no padding


class Masks(layers.Layer):
    """Says by itself what is padding."""

    def __init__(self, mask):
        super().__init__()
        self.supports_masking = True
        self.mask = mask

    def call(self, x):
        return x + 0.0

    def compute_mask(self, x, previous_mask):
        return self.mask(x, previous_mask)


def mask_in_another_dtype(inputs):
    mask = layers.Lambda(lambda ids: ops.cast(ids != 0, "int32"))(inputs)
    return kp.TransformerEncoder(1, num_heads=2, intermediate_dim=8)(
        layers.Embedding(50, 4)(inputs), mask=mask
    )


def mask_of_a_model(inputs):
    return kp.TransformerEncoderModel(
        50, d_model=4, num_layers=1, num_heads=2, intermediate_dim=8
    )(inputs)


def mask_that_no_graph_has(inputs):
    """One operation of it cannot be a part of a graph."""

    def copy(x, mask):
        return ops.broadcast_to(mask, ops.shape(x)[:2])

    return Masks(copy)(layers.Embedding(50, 4, mask_zero=True)(inputs))


@pytest.mark.parametrize(
    "make_vectors",
    [mask_in_another_dtype, mask_of_a_model, mask_that_no_graph_has],
)
@pytest.mark.parametrize("pool", [mean_of_ops, first_token])
def test_mask_is_what_layers_see(make, make_vectors, pool):
    inputs = make.ids()
    graph = trace(encode(keras.Model(inputs, pool(make_vectors(inputs)))))
    mask = graph(ids=tf.constant(IDS))["mask"]
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, IDS != 0)


@pytest.mark.parametrize(
    "constant", [np.array([[True, False, True, True]]), None]
)
def test_mask_of_all_rows(make, constant):
    inputs = keras.Input((4,), dtype="int32", name="ids")
    vectors = layers.Embedding(50, 4)(inputs)

    def mask(x, previous_mask):
        if constant is None and isinstance(x, keras.KerasTensor):
            return keras.KerasTensor(x.shape[:2], "bool")  # of no operation
        return ops.ones((1, 4), "bool") if constant is None else constant

    signature = encode(keras.Model(inputs, first_token(Masks(mask)(vectors))))
    answer = signature.call({"ids": tf.constant(IDS)})
    expected = np.ones((1, 4), bool) if constant is None else constant
    np.testing.assert_array_equal(
        answer["mask"], np.repeat(expected, len(IDS), axis=0)
    )


def per_token(inputs):
    return layers.Dense(3)(layers.Embedding(50, 4)(inputs))


def two_poolings(inputs):
    vectors = layers.Embedding(50, 4)(inputs)
    return layers.Concatenate()(
        [
            layers.GlobalAveragePooling1D()(vectors),
            layers.GlobalMaxPooling1D()(vectors),
        ]
    )


def no_sequence(inputs):
    return layers.Lambda(
        lambda x: ops.cast(ops.sum(x, axis=1, keepdims=True), "float32"),
        output_shape=(1,),
    )(inputs)


@pytest.mark.parametrize("head", [per_token, two_poolings, no_sequence])
def test_model_without_the_two_has_no_such_signature(make, head):
    inputs = make.ids()
    assert encode(keras.Model(inputs, head(inputs))) is None


def test_model_of_measurements_has_no_such_signature():
    inputs = keras.Input((None, 4), name="frames")
    assert encode(keras.Model(inputs, layers.GRU(3)(inputs))) is None
