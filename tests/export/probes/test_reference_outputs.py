"""What the model itself answers."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.probes.generate import Probes
from keras_posenc.export.probes.reference import compute_reference
from keras_posenc.export.signatures.resolve import resolve_serving_signatures

pytestmark = pytest.mark.tensorflow


def test_texts_and_ids_fit_the_positions():
    size = 40
    generator = kp.PretrainedGenerator(
        kp.TransformerDecoderModel(
            260, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
        ),
        source_tokenizer=kp.ByteTokenizer(add_start=False, add_end=False),
        max_length=2,
        max_positions=size,
    )
    signatures = resolve_serving_signatures(generator)
    cases = compute_reference(Probes.fit(signatures)).usual
    lengths = {each.name: [] for each in signatures}
    for case in cases:
        for value in case.inputs.values():
            if value.dtype == object:
                found = [len(str(text).encode()) for text in value]
                lengths[case.signature] += found
            elif value.ndim == 2:
                lengths[case.signature].append(value.shape[1])
    assert max(lengths["from_ids"]) == size - 2
    # A graph takes longer texts, as this model computes its positions.
    assert max(lengths["serving_default"]) > size
    assert max(lengths["score"]) > 500  # scores have no such limit


class Whole(layers.Layer):
    """Refuses images that do not consist of tiles of some pixels."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def call(self, inputs):
        if any((known or 0) % self.size for known in inputs.shape[1:-1]):
            raise ValueError("no whole tiles")
        return inputs


@pytest.mark.parametrize(
    ("axes", "layer", "side"),
    [
        (2, layers.Identity(), 64),
        (3, layers.Identity(), 16),
        (2, Whole(21), 63),
        (2, Whole(128), 128),
        (2, layers.Lambda(lambda x: x[:, 70:, 70:]), 128),
    ],
)
def test_images_are_small_and_some_are_oblong(axes, layer, side):
    """Patches of 8 pixels are 4,096 tokens on 512 by 512 pixels."""
    image = keras.Input((*[None] * axes, 1), name="image")
    signatures = resolve_serving_signatures(keras.Model(image, layer(image)))
    cases = compute_reference(Probes.fit(signatures)).usual
    sizes = [case.inputs["image"].shape[1:-1] for case in cases]
    assert max(sizes) == (side,) * axes
    for axis in range(axes):
        oblong = [side // (1 + (each != axis)) for each in range(axes)]
        assert (tuple(oblong) in sizes) != isinstance(layer, Whole)


def windowed(axes, layer):
    """A model that divides by the number of pixels that a layer leaves."""
    pooled = (layers.GlobalAveragePooling1D, layers.GlobalAveragePooling2D)
    image = keras.Input((*[None] * axes, 6), name="image")
    return keras.Model(image, pooled[axes - 1]()(layer(image)))


@pytest.mark.parametrize(
    ("axes", "layer", "smallest"),
    [
        (1, layers.MaxPooling1D(5), 5),
        (1, layers.Conv1D(2, 3, dilation_rate=2), 5),
        (2, layers.MaxPooling2D(3, 2, "valid"), 3),
        (2, layers.Conv2D(6, 3, strides=2, groups=3), 3),
        (2, layers.Cropping2D(10), 21),
        (2, layers.MaxPooling2D(3, 2, "same"), 1),
    ],
)
def test_no_input_is_smaller_than_a_window(axes, layer, smallest):
    """TensorFlow's pooling divides by zero then, which ends the process."""
    model = windowed(axes, layer)
    found = compute_reference(Probes.fit(resolve_serving_signatures(model)))
    sizes = {
        size for x in found.probes for size in x.inputs["image"].shape[1:-1]
    }
    assert min(sizes) == smallest
    assert (f"inputs of {smallest} to " in "".join(found.notes)) == (
        smallest > 1
    )
    for probe in found.usual:
        assert np.isfinite(next(iter(probe.outputs.values()))).all()


def test_a_sample_smaller_than_a_window_is_refused():
    model = windowed(2, layers.MaxPooling2D(3, 2, "valid"))
    samples = np.zeros((1, 1, 5, 6), "float32")
    probes = Probes.fit(resolve_serving_signatures(model), samples)
    with pytest.raises(ValueError, match=r"\(1, 1, 5, 6\).*max_pooling2d"):
        compute_reference(probes)


def test_outputs_are_those_of_predict():
    """Eager code rounds these back to whole numbers, and the graph does not."""
    image = keras.Input((9, 7, 3), dtype="uint8", name="image")
    model = keras.Model(image, layers.Resizing(4, 4)(image))
    found = compute_reference(Probes.fit(resolve_serving_signatures(model)))
    for probe in found.probes:
        (output,) = probe.outputs.values()
        wanted = model.predict(probe.inputs["image"], verbose=0)
        np.testing.assert_array_equal(output, wanted)
    (note,) = found.eager_differences
    assert "called directly, `model(x)`, gives other outputs" in note


def test_samples_replace_inputs_that_the_model_refuses():
    counts = keras.Input((20,), name="counts")
    encoding = layers.CategoryEncoding(9, output_mode="count", name="many")
    signatures = resolve_serving_signatures(
        keras.Model(counts, encoding(counts))
    )
    with pytest.raises(
        ValueError, match=r"(?s)itself does not take counts.*or real inputs"
    ):
        compute_reference(Probes.fit(signatures))
    samples = np.full((1, 20), 8, "float32")
    found = compute_reference(Probes.fit(signatures, samples))
    assert [probe.is_sample for probe in found.usual] == [True]
    assert found.notes
