"""The example's client, against servers that answer, falter and hang."""

import http.server
import json
import runpy
import threading
from concurrent import futures
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_text")
pytest.importorskip("tensorflow_serving")

from tensorflow_serving.apis import (  # noqa: E402
    predict_pb2,
    prediction_service_pb2_grpc,
)

SCRIPT = Path(__file__).parents[2] / "examples" / "serving_client.py"
TEXTS = ["the student failed", "", "Ünïcödé 🙂"]


@pytest.fixture
def client():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    tokenizer = kp.WordpieceTokenizer.learn(["the student who failed"] * 3, 40)
    return keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            keras.layers.Embedding(
                tokenizer.vocabulary_size(), 8, mask_zero=True
            ),
            kp.PositionalEncoding(),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    """The signatures of its export."""
    artifact = kp.export_saved_model(
        model,
        tmp_path_factory.mktemp("served"),
        labels=["wrong", "right"],
        verify=False,
        verbose=False,
    )
    module = tf.saved_model.load(artifact.path)
    return module.signatures


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """TensorFlow Serving's service, on an exported model."""

    def __init__(self, signatures):
        self.signatures, self.failures, self.calls = signatures, 0, 0

    def Predict(self, request, context):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        name = request.model_spec.signature_name
        if request.model_spec.name != "judge" or name not in self.signatures:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        outputs = self.signatures[name](
            **{
                key: tf.constant(tf.make_ndarray(value))
                for key, value in request.inputs.items()
            }
        )
        reply = predict_pb2.PredictResponse()
        for key, value in outputs.items():
            reply.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return reply


@pytest.fixture
def grpc_server(served):
    service = Service(served)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        service, server
    )
    service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield service
    server.stop(None).wait()


def test_grpc(client, grpc_server, model):
    outputs = client["predict_by_grpc"](
        grpc_server.address, "judge", {"text": TEXTS}
    )
    wanted = model(tf.constant(TEXTS))
    np.testing.assert_allclose(outputs["scores"], wanted, rtol=0, atol=1e-6)
    assert outputs["classes"].tolist() == [[b"wrong", b"right"]] * 3


def test_grpc_from_ids(client, grpc_server, model):
    ids = np.asarray(model.layers[0](tf.constant(TEXTS[:1])))
    inputs = {"ids": ids, "lengths": np.array([ids.shape[1]], "int32")}
    outputs = client["predict_by_grpc"](
        grpc_server.address, "judge", inputs, "from_ids"
    )
    wanted = model(tf.constant(TEXTS[:1]))
    np.testing.assert_allclose(outputs["scores"], wanted, rtol=0, atol=1e-6)


def test_grpc_tries_again_while_unavailable(client, grpc_server):
    grpc_server.failures = 1
    client["predict_by_grpc"](grpc_server.address, "judge", {"text": TEXTS})
    assert grpc_server.calls == 2


@pytest.fixture
def rest_server(served):
    """TensorFlow Serving's REST, as far as rows of one input go."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(
                self.rfile.read(int(self.headers["Content-Length"]))
            )
            server.calls.append((self.path, body))
            if server.failures:
                server.failures -= 1
                return self.answer(503, {"error": "starting"})
            if self.path != "/v1/models/judge:predict":
                return self.answer(404, {"error": "no such model"})
            outputs = served[body["signature_name"]](
                text=tf.constant(body["instances"])
            )
            return self.answer(
                200, {"predictions": outputs["scores"].numpy().tolist()}
            )

        def answer(self, status, content):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.calls, server.failures = [], 0
    server.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_rest(client, rest_server, model):
    rows = client["predict_by_rest"](rest_server.address, "judge", TEXTS)
    wanted = model(tf.constant(TEXTS))
    np.testing.assert_allclose(rows, wanted, rtol=0, atol=1e-6)


def test_rest_tries_again_while_unavailable(client, rest_server):
    rest_server.failures = 1
    client["predict_by_rest"](rest_server.address, "judge", TEXTS)
    assert len(rest_server.calls) == 2


def test_command(client, grpc_server, rest_server, capsys):
    assert client["main"](["rest", rest_server.address, "judge", *TEXTS]) == 0
    assert client["main"](["grpc", grpc_server.address, "judge", *TEXTS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        repr(text) for text in TEXTS * 2
    ]
    assert "'scores': [" in lines[-1]


def test_no_such_host_is_said(client):
    with pytest.raises(SystemExit) as ended:
        client["main"](["grpc", "nowhere.invalid:8500", "judge", "a text"])
    assert "errors resolving nowhere.invalid:8500" in ended.value.code


def test_what_a_server_answers_is_said_to_be_its_answer(
    client, grpc_server, rest_server
):
    for protocol, server, answer in (
        ("grpc", grpc_server, "NOT_FOUND: no such model"),
        ("rest", rest_server, "404: no such model"),
    ):
        with pytest.raises(SystemExit) as ended:
            client["main"]([protocol, server.address, "other", "a text"])
        assert ended.value.code == f"{server.address} answers {answer}"


def test_another_address_is_refused(client, capsys):
    with pytest.raises(SystemExit) as ended:
        client["main"](["rest", "http://localhost:8501", "judge", "a text"])
    assert ended.value.code == 2
    assert "HOST:PORT is wanted" in capsys.readouterr().err
