"""Asks a served model about texts, by REST or gRPC.

    python examples/serving_client.py rest localhost:8501 judge "A text."
    python examples/serving_client.py grpc localhost:8500 judge "A text."

Nothing but requests, and the messages of tensorflow-serving-api (`pip install
'keras-posenc[serving]' requests`): copy what you need. Each call has a
deadline, and is tried again, more and more slowly, while the server cannot be
reached (UNAVAILABLE, 503), as while it starts. Answers go to stdout; what
TensorFlow 2.21 logs as it is imported, which no setting stops, to stderr.
"""

import argparse
import json
import os
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DEADLINE = 5.0  # seconds, for all tries together by gRPC, for each by REST


def predict_by_rest(address, model, texts, signature="serving_default"):
    """The rows of the answer: lists, or dicts where outputs are several."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    retry = Retry(
        total=5,
        read=False,  # what was slow once is not asked again
        backoff_factor=0.2,
        status_forcelist=[503],
        allowed_methods=["POST"],
    )
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retry))
        reply = session.post(
            f"http://{address}/v1/models/{model}:predict",
            json={"instances": texts, "signature_name": signature},
            timeout=DEADLINE,
        )
    if reply.status_code != 200:
        raise ValueError(f"{reply.status_code}: {reply.json()['error']}")
    return reply.json()["predictions"]


SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": "tensorflow.serving.PredictionService"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.3s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


def predict_by_grpc(address, model, inputs, signature="serving_default"):
    """Arrays by the names of the outputs; `inputs` likewise."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import (
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    options = [("grpc.service_config", json.dumps(SERVICE_CONFIG))]
    with grpc.insecure_channel(address, options) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        reply = stub.Predict(request, timeout=DEADLINE)
    return {
        name: tf.make_ndarray(value) for name, value in reply.outputs.items()
    }


def host_and_port(text):
    if not re.fullmatch(r"[^/\s]+:\d+", text):
        raise argparse.ArgumentTypeError(
            f"HOST:PORT is wanted, as localhost:8501, not {text!r}"
        )
    return text


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("protocol", choices=("rest", "grpc"))
    parser.add_argument("address", type=host_and_port, metavar="HOST:PORT")
    parser.add_argument("model", help="the name it is served by")
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument(
        "--input", default="text", help="its name, by grpc (%(default)s)"
    )
    parser.add_argument(
        "--signature", default="serving_default", help="(%(default)s)"
    )
    options = parser.parse_args(arguments)
    target = options.address, options.model
    if options.protocol == "rest":
        try:
            rows = predict_by_rest(*target, options.texts, options.signature)
        except ValueError as error:  # requests' own of a body among them
            sys.exit(f"{options.address} answers {error}")
        except OSError as error:
            sys.exit(f"No answer from {options.address}: {error}")
        for text, row in zip(options.texts, rows, strict=True):
            print(f"{text!r}: {row}")
        return 0
    import grpc

    inputs = {options.input: options.texts}
    try:
        outputs = predict_by_grpc(*target, inputs, options.signature)
    except grpc.RpcError as error:
        code = error.code().name
        is_alone = code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        said = "No answer from {}:" if is_alone else "{} answers"
        sys.exit(f"{said.format(options.address)} {code}: {error.details()}")
    for index, text in enumerate(options.texts):
        row = {name: value.tolist()[index] for name, value in outputs.items()}
        print(f"{text!r}: {row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
