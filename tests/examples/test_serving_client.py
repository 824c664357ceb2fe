"""The example's client, against servers that answer and falter."""

import http.server
import json
import runpy
import threading
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving")

from tensorflow_serving.apis import (  # noqa: E402
    predict_pb2,
    prediction_service_pb2_grpc,
)

CLIENT = Path(__file__).parents[2] / "examples" / "serving_client.py"
TEXTS = ["the student failed", "", "Ünïcödé 🙂"]
LENGTHS = [len(text.encode()) for text in TEXTS]


@pytest.fixture
def client():
    return runpy.run_path(str(CLIENT))


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """TensorFlow Serving's service: the length of each text in bytes."""

    calls, failures = 0, 0

    def Predict(self, request, context):
        self.calls += 1
        if self.calls <= self.failures:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        if request.model_spec.name != "judge":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        name = request.model_spec.signature_name
        texts = tf.make_ndarray(request.inputs["text"])
        reply = predict_pb2.PredictResponse()
        for output, value in ((name, [*map(len, texts)]), ("text", texts)):
            reply.outputs[output].CopyFrom(tf.make_tensor_proto(value))
        return reply


@pytest.fixture
def grpc_server():
    service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        service, server
    )
    service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield service
    server.stop(None).wait()


@pytest.fixture
def rest_server():
    """TensorFlow Serving's REST likewise."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            server.calls += 1
            status, answer = 404, {"error": "no such model"}
            if server.calls <= server.failures:
                status, answer = 503, {"error": "starting"}
            elif self.path == "/v1/models/judge:predict":
                rows = [len(text.encode()) for text in body["instances"]]
                status, answer = 200, {"predictions": rows}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.calls, server.failures = 0, 0
    server.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_protocol_tries_again_while_unavailable(
    client, grpc_server, rest_server
):
    grpc_server.failures = rest_server.failures = 1
    rows = client["predict_by_rest"](rest_server.address, "judge", TEXTS)
    inputs = {"text": np.array(TEXTS, object)}
    outputs = client["predict_by_grpc"](
        grpc_server.address, "judge", inputs, "from_text"
    )
    assert rows == outputs["from_text"].tolist() == LENGTHS
    assert outputs["text"].tolist() == [text.encode() for text in TEXTS]
    assert grpc_server.calls == rest_server.calls == 2


def test_command(client, grpc_server, rest_server, capsys):
    assert client["main"](["rest", rest_server.address, "judge", *TEXTS]) == 0
    assert client["main"](["grpc", grpc_server.address, "judge", *TEXTS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{TEXTS[0]!r}: {LENGTHS[0]}"
    assert f"'serving_default': {LENGTHS[-1]}" in lines[-1]
    assert len(lines) == 2 * len(TEXTS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["grpc", "{grpc}", "other"], "{grpc} answers NOT_FOUND: no such mod"),
        (["rest", "{rest}", "other"], "{rest} answers 404: no such model"),
        (
            ["grpc", "nowhere.invalid:8500", "judge"],
            "errors resolving nowhere.invalid:8500",
        ),
        (["rest", "http://localhost:8501", "judge"], "HOST:PORT is wanted"),
    ],
    ids=["grpc", "rest", "no host", "no address"],
)
def test_what_fails_is_said(
    client, grpc_server, rest_server, capsys, given, said
):
    names = {"grpc": grpc_server.address, "rest": rest_server.address}
    with pytest.raises(SystemExit) as ended:
        client["main"]([*(each.format(**names) for each in given), "a text"])
    assert said.format(**names) in f"{ended.value} {capsys.readouterr().err}"
