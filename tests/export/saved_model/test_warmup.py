"""Requests that a server answers to itself before it answers others."""

import re
import sys

import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow

WARMUP = "assets.extra/tf_serving_warmup_requests"


def read(folder):
    """The requests in a version folder, as a server parses them."""
    records = tf.data.TFRecordDataset(str(folder / WARMUP))
    return [
        PredictionLog.FromString(record).predict_log.request
        for record in records.as_numpy_iterator()
    ]


def inputs_of(request):
    return {
        name: tf.make_ndarray(value) for name, value in request.inputs.items()
    }


def test_requests_are_the_samples_for_each_signature_that_takes_them(served):
    requests = read(served.path)
    assert {request.model_spec.name for request in requests} == {"judge"}
    found = [
        (
            request.model_spec.signature_name,
            {k: v.tolist() for k, v in inputs_of(request).items()},
        )
        for request in requests
    ]
    assert found == [
        ("serving_default", {"text": [b"one two", b"x"]}),
        ("from_ids", {"ids": [[2, 5, 3]], "lengths": [3]}),
    ]
    for request in requests:
        dtypes = {value.dtype for value in request.inputs.values()}
        assert dtypes <= {tf.int32.as_datatype_enum, tf.string.as_datatype_enum}
    assert "replayed 2 warm-up requests" in served.report.checks
    assert "replayed 2 warm-up requests" in served.report.details()


def test_true_is_the_inputs_of_the_verification(make, tmp_path):
    artifact = kp.export_saved_model(
        make.embedder(), tmp_path, warmup=True, max_length=3, verbose=False
    )
    requests = read(artifact.path)
    cases = [x for x in artifact.report.cases if "each id" not in x.inputs]
    assert len(cases) == len(requests)
    text = f"replayed {len(requests)} warm-up requests"
    assert text in artifact.report.checks
    shapes = [
        {name: value.shape for name, value in inputs_of(request).items()}
        for request in requests
        if request.model_spec.signature_name == "from_ids"
    ]
    assert {"ids": (3, 2), "lengths": (3,)} in shapes


def test_with_batching_no_request_has_more_rows_than_a_batch(make, tmp_path):
    artifact = kp.export_saved_model(
        make.embedder(),
        tmp_path,
        signatures={"serving_default": make.embedder()},
        warmup=[{"ids": [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]}],
        batching={"max_batch_size": 2},
        max_length=1,
        verbose=False,
    )
    requests = map(inputs_of, read(artifact.path))
    found = [request["ids"].tolist() for request in requests]
    assert found == [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10]]]


def test_bad_record_is_found_as_the_server_would(make, tmp_path):
    model, options = make.embedder(), {"max_length": 1, "verbose": False}
    folder = kp.export_saved_model(
        model, tmp_path, warmup=[{"ids": [[1, 2]]}], **options
    ).path
    file = folder / WARMUP
    logs_of = [PredictionLog() for _ in range(2)]
    for log, request in zip(logs_of, read(folder), strict=True):
        log.predict_log.request.CopyFrom(request)
    inputs = logs_of[1].predict_log.request.inputs
    inputs["ids"].CopyFrom(tf.make_tensor_proto([[99, 99]], "int32"))
    with tf.io.TFRecordWriter(str(file)) as writer:
        for log in logs_of:
            writer.write(log.SerializeToString())
    for message in ("its warm-up request 1 fails", ""):
        with pytest.raises(
            kp.ExportVerificationError, match="1' does not load: "
        ) as caught:
            kp.verify_export(folder, model, **options)
        assert message in str(caught.value)
        file.write_bytes(file.read_bytes()[:-7])  # torn


@pytest.mark.parametrize(
    ("warmup", "message"),
    [
        *(
            (x, "`warmup` must be True, for the inputs that the export is")
            for x in ("yes", [], [{"ids": [[1]]}] * 1001)
        ),
        # Each is for two signatures.
        (
            [{"ids": [[i % 50, i // 50]]} for i in range(501)],
            "`warmup` makes 1002 requests, and TensorFlow Serving reads 1000",
        ),
        (
            [{"words": [[1]]}],
            "`warmup` must have an array for each of the inputs ids",
        ),
        ([{"ids": [[50]]}], "The model itself does not take ids of shape"),
    ],
)
def test_warmup_that_is_none(make, tmp_path, warmup, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kp.export_saved_model(
            make.embedder(),
            tmp_path / "base",
            warmup=warmup,
            max_length=1,
            verbose=False,
        )
    assert list(tmp_path.iterdir()) == []


def test_warmup_is_replayed_or_not_written(make, tmp_path):
    with pytest.raises(ValueError, match="`warmup` cannot be used with `ver"):
        kp.export_saved_model(
            make.embedder(), tmp_path / "base", warmup=True, verify=False
        )


def test_without_the_package_the_error_names_the_extra(
    make, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match=r"pip install 'keras-posenc\[serv"):
        kp.export_saved_model(make.embedder(), tmp_path / "base", warmup=True)
    assert list(tmp_path.iterdir()) == []


def test_artifact_has_no_warmup_by_default(saved_model):
    assert not (saved_model.path / WARMUP).exists()
    assert saved_model.report.checks == []
    assert "warm-up" not in str(saved_model.report)
