"""How a server may put requests together in one batch."""

import keras
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.formats.savedmodel_serving import (
    resolve_batching,
    write_batching,
)

pytestmark = pytest.mark.tensorflow

FILE = "batching_params.pbtxt"


@pytest.mark.parametrize(
    ("batching", "largest", "sizes"),
    [
        (True, 32, [1, 2, 4, 8, 16, 32]),
        ({"max_batch_size": 1}, 1, [1]),
        ({"max_batch_size": 12, "batch_timeout_micros": 0}, 12, None),
        ({"allowed_batch_sizes": [3, 5]}, 5, [3, 5]),
        ({"allowed_batch_sizes": (4,), "max_batch_size": 4}, 4, [4]),
        ({"max_batch_size": 2, "max_enqueued_batches": 9}, 2, [1, 2]),
    ],
)
def test_sizes_end_at_the_largest_batch(tmp_path, batching, largest, sizes):
    """As session_bundle_config.proto of TensorFlow Serving has the fields."""
    write_batching(resolve_batching(batching, []), tmp_path)
    given = {"batch_timeout_micros": 1000}
    given |= batching if isinstance(batching, dict) else {}
    given |= {"max_batch_size": largest}
    given.pop("allowed_batch_sizes", None)
    assert sorted((tmp_path / FILE).read_text().splitlines()) == sorted(
        [
            *(f"{name} {{ value: {value} }}" for name, value in given.items()),
            *(f"allowed_batch_sizes: {n}" for n in sizes or [1, 2, 4, 8, 12]),
            "pad_variable_length_inputs: true",
        ]
    )


def test_a_version_has_them_if_they_are_given(served, saved_model):
    text = (served.path / FILE).read_text()
    assert "max_batch_size { value: 32 }" in text
    assert not (saved_model.path / FILE).exists()


@pytest.mark.parametrize(
    "batching",
    [
        *(3, "on", {"batch_size": 3}, {"max_batch_size": 0}),
        *({"max_batch_size": True}, {"max_enqueued_batches": 1.5}),
        *({"batch_timeout_micros": -1}, {"allowed_batch_sizes": [0, 4]}),
        *({"allowed_batch_sizes": 4}, {"allowed_batch_sizes": [4, 2]}),
        {"allowed_batch_sizes": [4], "max_batch_size": 8},
    ],
)
def test_batching_that_is_none(batching):
    with pytest.raises(ValueError, match="`batching=True` cho") as caught:
        resolve_batching(batching, [])
    assert f"batching={batching!r}" in str(caught.value)


def test_signature_of_one_batch_size_cannot_be_batched(tmp_path):
    inputs = keras.Input((None,), batch_size=2, dtype="int32", name="ids")
    model = keras.Model(inputs, layers.Embedding(9, 4)(inputs))
    with pytest.raises(ValueError, match="needs inputs of any batch size"):
        kp.export_saved_model(model, tmp_path / "base", batching=True)
    assert list(tmp_path.iterdir()) == []
