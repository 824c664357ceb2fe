"""What the model itself answers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_posenc as kp
from keras_posenc.artifacts.expectations.questions import Questions
from keras_posenc.artifacts.expectations.reference_outputs import expect
from keras_posenc.artifacts.graphs.shared_layers import remembered_layers
from keras_posenc.artifacts.signatures.serving_signatures import (
    resolve_serving_signatures,
)

pytestmark = pytest.mark.tensorflow


def test_what_several_signatures_compute_of_the_same_is_computed_once():
    asked = []

    class Noting(layers.Layer):
        supports_masking = True

        def call(self, inputs):
            asked.append(inputs.shape)
            return inputs

    inputs = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(20, 4, mask_zero=True)(inputs)
    pooled = kp.MaskedAveragePooling1D()(Noting()(embedded))
    model = keras.Model(inputs, pooled)
    signatures = resolve_serving_signatures(model)
    names = ["serving_default", "from_ids", "encode"]
    assert [each.name for each in signatures] == names
    asked.clear()
    cases = expect(Questions.fit(signatures, max_length=4)).cases

    assert len(cases) == 18  # 3 signatures, 2 batches, lengths of 1, 2 and 4
    # And three rows by themselves, to see whether padding behind them matters.
    assert len(asked) == 6 + 3
    for case in cases:
        if case.signature == "from_ids":
            ids = np.where(
                np.arange(case.inputs["ids"].shape[1])
                < case.inputs["lengths"][:, None],
                case.inputs["ids"],
                0,
            )
            (answer,) = case.answers.values()
            wanted = model(tf.constant(ids))
            np.testing.assert_array_equal(answer, wanted)
        if case.signature == "encode":
            ids = case.inputs["ids"]
            vectors = model.get_layer(index=1).embeddings.numpy()[ids]
            real = ids != 0
            np.testing.assert_array_equal(case.answers["contextual"], vectors)
            np.testing.assert_array_equal(case.answers["mask"], real)
            count = np.maximum(real.sum(1), 1)[:, None]
            mean = (vectors * real[..., None]).sum(1) / count
            np.testing.assert_allclose(case.answers["pooled"], mean, atol=1e-6)


def test_masks_of_one_signature_are_not_anothers():
    class FirstColumn(layers.Layer):
        """Passes on the very tensor that it is given, with a mask."""

        supports_masking = True

        def call(self, inputs):
            return inputs

        def compute_mask(self, inputs, previous_mask):
            return inputs[..., 0] > 0

    keras.utils.set_random_seed(0)
    inputs = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(20, 4)(inputs)
    pooling = layers.GlobalAveragePooling1D(name="mean")
    masked = keras.Model(inputs, pooling(FirstColumn()(embedded)))
    plain = keras.Model(inputs, pooling(embedded))
    signatures = resolve_serving_signatures(
        masked, {"serving_default": masked, "plain": plain}
    )
    for case in expect(Questions.fit(signatures, max_length=4)).cases:
        if case.signature == "plain":
            (answer,) = case.answers.values()
            wanted = plain(tf.constant(case.inputs["ids"]))
            np.testing.assert_array_equal(answer, wanted)


def test_layers_remember_by_which_name_they_were_given_it():
    class Signed(layers.Layer):
        def call(self, named):
            return named.get("plus", 0.0) - named.get("minus", 0.0)

    inputs = keras.Input((1,), name="x")
    layer = Signed()
    models = [keras.Model(inputs, layer({"plus": inputs})) for _ in range(2)]
    signatures = [
        s for each in models for s in resolve_serving_signatures(each)
    ]
    x = tf.constant([[2.0]])
    with remembered_layers(signatures):
        answers = [layer({name: x}) for name in ("plus", "minus", "plus")]
    assert [answer.numpy().item() for answer in answers] == [2.0, -2.0, 2.0]
    assert answers[0] is answers[2]


def test_layers_remember_what_they_were_given_with_its_mask():
    inputs = keras.Input((3, 1), name="x")
    pooling = layers.GlobalAveragePooling1D()
    signatures = [
        signature
        for _ in range(2)
        for signature in resolve_serving_signatures(
            keras.Model(inputs, pooling(inputs))
        )
    ]
    x = tf.constant([[[1.0], [2.0], [6.0]]])
    with remembered_layers(signatures):
        answers = [
            pooling(x, mask=tf.constant([mask]))
            for mask in ([True, True, False], [True, True, False], [True] * 3)
        ]
    assert answers[0] is answers[1]
    assert [answer.numpy().item() for answer in answers] == [1.5, 1.5, 3.0]
