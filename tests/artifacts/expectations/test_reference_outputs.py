"""What the model itself answers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from keras_posenc.artifacts.expectations.questions import Questions
from keras_posenc.artifacts.expectations.reference_outputs import expect
from keras_posenc.artifacts.signatures.serving_signatures import (
    resolve_serving_signatures,
)

pytestmark = pytest.mark.tensorflow


def test_two_signatures_of_the_same_questions_ask_their_model_once():
    asked = []

    class Noting(layers.Layer):
        supports_masking = True

        def call(self, inputs):
            asked.append(inputs.shape)
            return inputs

    inputs = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(20, 4, mask_zero=True)(inputs)
    model = keras.Model(inputs, Noting()(embedded))
    signatures = resolve_serving_signatures(model)
    assert [each.name for each in signatures] == ["serving_default", "from_ids"]
    asked.clear()
    cases = expect(Questions.fit(signatures, max_length=4)).cases

    assert len(cases) == 12  # 2 signatures, 2 batches, lengths of 1, 2 and 4
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
