"""A real tensorflow_model_server around an export, where there is one.

TENSORFLOW_MODEL_SERVER names its binary; the workflow in .github takes that of
the official image. The server listens on 127.0.0.1, and is ended by its pid.
"""

import os
import runpy
import socket
import subprocess
import threading
import time
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.layers import text_classifier

SERVER = os.environ.get("TENSORFLOW_MODEL_SERVER")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(
        not SERVER,
        reason="TENSORFLOW_MODEL_SERVER names no tensorflow_model_server",
    ),
]
CLIENT = Path(__file__).parents[1] / "examples" / "serving_client.py"
TEXTS = ["the student failed", "", "Ünïcödé 🙂", "word " * 200]
LABELS = ["wrong", "right"]


def export(model, folder):
    return kp.export_saved_model(
        model,
        folder,
        labels=LABELS,
        warmup=True,
        batching=True,
        max_length=17,
        verbose=False,
    ).path


def answers(model, texts=TEXTS):
    import tensorflow as tf

    return model.predict(tf.constant(texts), verbose=0)


def free_ports(count):
    """That is, ports that were free just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    return text_classifier(["the student who failed"] * 3, 40)


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """Its two addresses, its log, and the folder that it looks at."""
    import requests

    folder = tmp_path_factory.mktemp("serving")
    export(model, folder / "judge")
    grpc_port, rest_port = free_ports(2)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                SERVER,
                f"--port={grpc_port}",
                f"--rest_api_port={rest_port}",
                "--model_name=judge",
                f"--model_base_path={folder / 'judge'}",
                "--file_system_poll_wait_seconds=1",
                "--enable_batching=true",
                "--enable_per_model_batching_parameters=true",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    rest = f"127.0.0.1:{rest_port}"
    try:
        for _ in range(600):
            try:
                reply = requests.get(
                    f"http://{rest}/v1/models/judge", timeout=5
                )
                if "AVAILABLE" in reply.text:
                    break
            except requests.ConnectionError:
                pass
            assert process.poll() is None, (folder / "log").read_text()[-4000:]
            time.sleep(0.1)
        else:
            pytest.fail((folder / "log").read_text()[-4000:])
        yield rest, f"127.0.0.1:{grpc_port}", folder
        assert process.poll() is None  # nothing that was sent ended it
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def client():
    return runpy.run_path(str(CLIENT))


def test_rest(server, client, model):
    rows = client["predict_by_rest"](server[0], "judge", TEXTS)
    scores = [row["scores"] for row in rows]
    np.testing.assert_allclose(scores, answers(model), rtol=0, atol=1e-5)
    assert [row["classes"] for row in rows] == [LABELS] * len(TEXTS)


def test_every_signature_by_grpc(server, client, model):
    import tensorflow as tf

    call = client["predict_by_grpc"]
    outputs = call(server[1], "judge", {"text": TEXTS})
    wanted = answers(model)
    np.testing.assert_allclose(outputs["scores"], wanted, rtol=0, atol=1e-5)
    ids = np.asarray(model.layers[0](tf.constant(TEXTS[:1])))
    padded = np.pad(ids, [(0, 0), (0, 3)], constant_values=ids[0, 0])
    lengths = np.array([ids.shape[1]], "int32")
    outputs = call(
        server[1], "judge", {"ids": padded, "lengths": lengths}, "from_ids"
    )
    np.testing.assert_allclose(outputs["scores"], wanted[:1], rtol=0, atol=1e-5)
    outputs = call(server[1], "judge", {"text": TEXTS[:1]}, "encode")
    assert outputs["contextual"].shape == (1, ids.shape[1], 16)
    assert outputs["pooled"].shape == (1, 16)
    assert outputs["mask"].all()


def test_batching_changes_no_answer(server, client, model):
    """Many at once, of different lengths, which the server puts together."""
    texts = [TEXTS[0] + " the" * (index % 7) for index in range(64)]
    wanted, found = answers(model, texts), [None] * len(texts)

    def ask(index):
        found[index] = client["predict_by_rest"](
            server[0], "judge", [texts[index]]
        )[0]["scores"]

    threads = [
        threading.Thread(target=ask, args=(index,))
        for index in range(len(texts))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_warm_up_was_read(server):
    log = (server[2] / "log").read_text()
    assert "warmup" in log.lower()
    assert "Number of warmup records read: " in log


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"instances": ["the',
        b'{"rows": []}',
        b'{"instances": [1]}',
        b'{"instances": [["the"]]}',
        b'{"instances": ["a"], "signature_name": "x"}',
        b'{"inputs": {"ids": [[9999]], "lengths": [1]}, '
        b'"signature_name": "from_ids"}',
    ],
)
def test_bad_request(server, body):
    import requests

    url = f"http://{server[0]}/v1/models/judge:predict"
    reply = requests.post(url, body, timeout=30)
    assert 400 <= reply.status_code < 500
    assert reply.json()["error"]
