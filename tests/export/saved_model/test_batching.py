"""How a server may put requests together in one batch."""

import re

import keras
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from keras import layers

import keras_posenc as kp
from keras_posenc.export.formats.savedmodel_serving import (
    resolve_batching,
    write_batching,
)

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def parse():
    """Parses text as tensorflow.serving.BatchingParameters.

    No package has the message. Its fields, by session_bundle_config.proto of
    TensorFlow Serving:
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=["google/protobuf/wrappers.proto"],
    )
    message = file.message_type.add(name="BatchingParameters")
    for number, name, kind in (
        (1, "max_batch_size", "Int64Value"),
        (2, "batch_timeout_micros", "Int64Value"),
        (3, "max_enqueued_batches", "Int64Value"),
        (4, "num_batch_threads", "Int64Value"),
    ):
        message.field.add(
            name=name,
            number=number,
            label=field.LABEL_OPTIONAL,
            type=field.TYPE_MESSAGE,
            type_name=f".google.protobuf.{kind}",
        )
    message.field.add(
        name="allowed_batch_sizes",
        number=6,
        label=field.LABEL_REPEATED,
        type=field.TYPE_INT64,
    )
    message.field.add(
        name="pad_variable_length_inputs",
        number=7,
        label=field.LABEL_OPTIONAL,
        type=field.TYPE_BOOL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    kind = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters")
    )
    return lambda text: text_format.Parse(text, kind())


@pytest.fixture
def written(parse, tmp_path):
    """Writes parameters and reads them as a server does."""

    def write(batching):
        write_batching(resolve_batching(batching, []), tmp_path)
        return parse((tmp_path / "batching_params.pbtxt").read_text())

    return write


@pytest.mark.parametrize(
    ("batching", "largest", "sizes"),
    [
        (True, 32, [1, 2, 4, 8, 16, 32]),
        ({"max_batch_size": 1}, 1, [1]),
        ({"max_batch_size": 12}, 12, [1, 2, 4, 8, 12]),
        ({"allowed_batch_sizes": [3, 5]}, 5, [3, 5]),
        ({"allowed_batch_sizes": (4,), "max_batch_size": 4}, 4, [4]),
    ],
)
def test_sizes_end_at_the_largest_batch(written, batching, largest, sizes):
    message = written(batching)
    assert message.max_batch_size.value == largest
    assert list(message.allowed_batch_sizes) == sizes
    assert message.pad_variable_length_inputs
    assert message.batch_timeout_micros.value == 1000
    # What was not asked for is the server's to choose.
    assert not message.HasField("num_batch_threads")
    assert not message.HasField("max_enqueued_batches")


def test_every_parameter(written):
    batching = {
        "max_batch_size": 64,
        "batch_timeout_micros": 0,
        "max_enqueued_batches": 100,
    }
    message = written(batching)
    for name, value in batching.items():
        assert message.HasField(name)
        assert getattr(message, name).value == value


def test_a_version_has_them_if_they_are_given(served, saved_model, parse):
    text = (served.path / "batching_params.pbtxt").read_text()
    assert parse(text).max_batch_size.value == 32
    assert not (saved_model.path / "batching_params.pbtxt").exists()


@pytest.mark.parametrize(
    ("batching", "message"),
    [
        *(
            (x, "`batching` must be True, a dict of parameters, or None")
            for x in (3, "on")
        ),
        *(
            ({name: value}, f"a list of such. Received: '{name}': {value!r}")
            for name, value in (
                ("batch_size", 3),
                ("max_batch_size", 0),
                ("max_batch_size", True),
                ("max_enqueued_batches", 1.5),
                ("batch_timeout_micros", -1),
                ("allowed_batch_sizes", []),
                ("allowed_batch_sizes", [0, 4]),
            )
        ),
        *(
            (x, "must increase and end at")
            for x in (
                {"allowed_batch_sizes": [4, 2]},
                {"allowed_batch_sizes": [4], "max_batch_size": 8},
            )
        ),
    ],
)
def test_batching_that_is_none(batching, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_batching(batching, [])


def test_signature_of_one_batch_size_cannot_be_batched(tmp_path):
    inputs = keras.Input((None,), batch_size=2, dtype="int32", name="ids")
    model = keras.Model(inputs, layers.Embedding(9, 4)(inputs))
    with pytest.raises(ValueError, match="needs inputs of any batch size"):
        kp.export_saved_model(model, tmp_path / "base", batching=True)
    assert list(tmp_path.iterdir()) == []
