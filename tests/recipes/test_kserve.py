"""An export behind KServe's model server."""

import asyncio
import collections
import concurrent.futures
import contextlib
import http.client
import json
import runpy
import shutil
import socket
import threading
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import yaml

import keras_posenc as kp
from tests.generation import toy
from tests.recipes import kserve_server

pytestmark = pytest.mark.tensorflow
pytest.importorskip("kserve")
pytest.importorskip("tensorflow_text")
tf = pytest.importorskip("tensorflow")
requests = pytest.importorskip("requests")
InvalidInput = pytest.importorskip("kserve.errors").InvalidInput

PREDICTOR = kserve_server.PREDICTOR
WARMUP = Path("assets.extra", "tf_serving_warmup_requests")
TOLERANCE = 1e-5
IDS = [[3, 4, 5, 0], [19, 1, 0, 0]]


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A folder with version 1, which has a warm-up request."""
    pytest.importorskip("tensorflow_serving")
    folder = tmp_path_factory.mktemp("versions")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    kp.export_saved_model(model, folder, warmup=True, verbose=False)
    return folder


def predictor_of(folder, max_bytes=65536, max_rows=8):
    module = runpy.run_path(str(PREDICTOR))
    predictor = module["Predictor"]("judge", folder, 1.0, max_bytes, max_rows)
    predictor.refresh()
    return predictor


def ask(predictor, body):
    """What one request is answered."""
    return predictor._predict(predictor.validate(body))


@pytest.fixture
def predictor(versions, tmp_path):
    return predictor_of(shutil.copytree(versions, tmp_path / "judge"))


def test_warmup_is_replayed(predictor, caplog):
    one, two = (Path(predictor.path, name) for name in "12")
    shutil.copytree(one, two)
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(str(two / WARMUP)) as writer:
        log = prediction_log_pb2.PredictionLog()
        request = log.predict_log.request
        request.model_spec.signature_name = "no_such_signature"
        writer.write(log.SerializeToString())
    predictor.try_refresh()
    assert predictor.version == 1
    (record,) = caplog.records
    assert "no_such_signature" in record.getMessage()
    shutil.copy(one / WARMUP, two / WARMUP)
    predictor.try_refresh()
    assert predictor.version == 2


def test_null_is_nan_of_floats(predictor):
    rows = [[1.0, None, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]
    lost, right = predictor._predict({"instances": rows})["predictions"]
    assert [x != x for x in lost] == [True, True]
    _, alone = predictor._predict({"inputs": rows[1:] * 2})["outputs"]
    assert right == alone
    for other in ("2", [2]):
        rows[0][1] = other
        with pytest.raises(InvalidInput):
            predictor._predict({"instances": rows})


@pytest.fixture(scope="module")
def generator():
    """From texts to texts, of sources of at most 17 characters."""
    position = kp.PositionEmbedding(19)
    return toy.generator(of_model={"input_position": position})


@pytest.fixture(scope="module")
def served(generator, tmp_path_factory):
    """The predictor of its SavedModel."""
    folder = tmp_path_factory.mktemp("dates")
    kp.export_saved_model(generator, folder, verify=False, verbose=False)
    return predictor_of(folder, max_bytes=64)


def test_generator_answers_texts_ids_and_pairs(served, generator):
    texts = ["abc", "", "없다", "abcdefgh" * 2]
    wanted = {
        name: value.numpy()
        for name, value in generator(tf.constant(texts)).items()
    }
    wanted["text"] = [text.decode() for text in wanted["text"]]
    by_row = served._predict({"instances": texts})["predictions"]
    by_column = served._predict({"inputs": texts})["outputs"]
    assert [row["text"] for row in by_row] == wanted["text"]
    assert by_column["text"] == wanted["text"]
    assert by_column["score"] == pytest.approx(
        wanted["score"], rel=1e-5, abs=1e-5
    )
    ids = [[2, 4, 5, 6, 3], [2, 3, 2, 2, 2]]  # as servers pad
    found = served._predict(
        {
            "signature_name": "from_ids",
            "inputs": {"ids": ids, "lengths": [5, 2]},
        }
    )["outputs"]
    assert found["score"] == pytest.approx(
        wanted["score"][:2], rel=1e-5, abs=1e-5
    )
    pair = {"source": "abc", "target": "ab"}
    (found,) = served._predict(
        {"signature_name": "score", "instances": [pair]}
    )["predictions"]
    pair = {name: tf.constant([text]) for name, text in pair.items()}
    score = generator.scorer(pair)["score"]
    assert found["score"] == pytest.approx(float(score[0]), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"instances": ["abc", "a" * 18]}, "gives NaN for `score`: .*longer"),
        ({"instances": ["a" * 65]}, "`text` may have 64 bytes, and has 65"),
        ({"instances": [20240307]}, "`text` must be a string"),
        ({"instances": [["abc"]]}, r"of shape \(None,\), and is of \(1, 1\)"),
        ({"ids": [[4, 12]], "lengths": [2]}, r"= 12 is not in \[0, 12\)"),
        ({"ids": [[4], [4, 5]], "lengths": [1, 2]}, "examples of one shape"),
        ({"ids": [[4]]}, "`inputs` must have .*lengths"),
        ({"source": ["a"], "target": ["a" * 30]}, "gives NaN for"),
    ],
    ids=str,
)
def test_what_a_generator_does_not_take_is_said(served, body, reason):
    if "instances" not in body:
        name = "from_ids" if "ids" in body else "score"
        body = {"signature_name": name, "inputs": body}
    with pytest.raises(InvalidInput, match=reason):
        served._predict(body)
    assert served._predict({"instances": ["abc"]})["predictions"]


def build(seed):
    """A model of up to 512 ids.

    It is so large that an interpreter of LiteRT gets long rows wrong after a
    row of length 0.
    """
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(20, 64, mask_zero=True),
            kp.PositionalEncoding(),  # which that takes
            kp.PositionEmbedding(512),
            kp.TransformerEncoder(2, num_heads=2, intermediate_dim=64),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, name="scores"),
        ]
    )


EXPORTS = {"": "saved_model", ".tflite": "litert", ".onnx": "onnx"}


def export(model, path):
    """The version or the file; the kind is that of the path's suffix."""
    make = getattr(kp, f"export_{EXPORTS[path.suffix]}")
    return make(model, path, verify=False, verbose=False).path


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model, and its exports in a folder."""
    pytest.importorskip("onnx")
    model, folder = build(0), tmp_path_factory.mktemp("exported")
    for suffix in EXPORTS:
        export(model, folder / f"judge{suffix}")
    return model, folder


@pytest.fixture(scope="module")
def batches(exported):
    """Batches of ids, the long one first, with the model's outputs."""
    model, _ = exported
    draw = np.random.default_rng(0)
    drawn = [draw.integers(1, 20, shape) for shape in ((1, 500), (8, 200))]
    rows = [*drawn, np.array(IDS)]
    return [(each.tolist(), model(each).numpy()) for each in rows]


UNKNOWN = "does not take it: .*(20|99|out of bound)"
EMPTY = "must have at least one value"
BAD = {
    "an empty row": ({"instances": [[]]}, EMPTY),
    "empty rows by name": ({"instances": [{"ids": []}] * 3}, EMPTY),
    "an empty row in a column": ({"inputs": {"ids": [[]]}}, EMPTY),
    "no rows": ({"instances": []}, None),
    "rows of nothing": ({"inputs": {"ids": [[[]]]}}, None),
    "several lengths": ({"instances": [[3], [3, 4]]}, "examples of one shape"),
    "another rank": ({"instances": [3]}, r"must be of shape \(None, None\)"),
    "an unknown id": ({"instances": [[3, 99]]}, UNKNOWN),
    "too long": ({"instances": [[3] * 513]}, "gives NaN|does not take it: "),
    "too many bytes": ({"instances": [[3] * 601]}, "may have 4800 bytes"),
    "too many rows": ({"instances": [[3]] * 9}, None),
    "no integer": ({"instances": [[3.5]]}, "`ids` must be of int32"),
    "a text": ({"instances": ["a text"]}, "`ids` must be of int32"),
    "too large": ({"instances": [[2**31]]}, "`ids` must be of int32"),
    "another name": ({"instances": [{"tokens": [3]}]}, "must have ids"),
    "a deep row": ({"instances": json.loads("[" * 900 + "]" * 900)}, None),
}


@pytest.mark.parametrize("name", ["judge", "judge.tflite", "judge.onnx"])
def test_every_format_is_served_alike(exported, batches, name):
    """... and every request after a bad one is answered rightly."""
    _, folder = exported
    served = predictor_of(folder / name, max_bytes=4800)
    for what, (body, reason) in BAD.items():
        if reason == EMPTY and name == "judge":  # padding to TensorFlow
            (found,) = ask(served, body).values()
            assert np.isfinite(found).all()
        else:
            with pytest.raises(InvalidInput, match=reason):
                ask(served, body)
        for rows, wanted in batches:
            for instances in (rows, [{"ids": row} for row in rows]):
                found = ask(served, {"instances": instances})["predictions"]
                np.testing.assert_allclose(
                    found, wanted, 0, TOLERANCE, err_msg=f"after {what}"
                )
        found = ask(served, {"inputs": {"ids": rows}})["outputs"]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


def test_file_is_read_anew_where_it_is_replaced(exported, tmp_path, caplog):
    _, folder = exported
    path = shutil.copy(folder / "judge.tflite", tmp_path / "judge.tflite")
    predictor = predictor_of(path)
    first, signatures = predictor.version, predictor.signatures
    predictor.try_refresh()
    assert predictor.signatures is signatures
    shutil.copy(folder / "judge.onnx", path)  # which is no LiteRT file
    predictor.try_refresh()
    (record,) = caplog.records
    assert record.getMessage().endswith(f"serving version {first}")
    assert predictor._predict({"instances": IDS})
    shutil.copy(folder / "judge.tflite", path)
    predictor.try_refresh()
    assert predictor.version != first
    assert predictor.signatures is not signatures


def watched_paths():
    """What Kubernetes and Prometheus ask of the server, by its manifest."""
    text = PREDICTOR.with_name("predictor.yaml").read_text()
    service = yaml.safe_load(text)
    (container,) = service["spec"]["predictor"]["containers"]
    probes = (container[f"{kind}Probe"] for kind in ("readiness", "liveness"))
    annotations = service["metadata"]["annotations"]
    return [
        *(probe["httpGet"]["path"] for probe in probes),
        annotations["prometheus.io/path"],
    ]


def test_litert_server_needs_no_tensorflow(exported, tmp_path):
    model, folder = exported
    without = (
        "import runpy, sys; sys.argv = sys.argv[1:]; "
        "sys.modules.update(keras=None, keras_posenc=None, tensorflow=None); "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    with (tmp_path / "log").open("w") as log:
        process, url = kserve_server.start(
            folder / "judge.tflite", log, program=("-c", without, PREDICTOR)
        )
        try:
            good, bad = (
                requests.post(f"{url}:predict", json={"instances": rows})
                for rows in (IDS, [[20]])
            )
            other = requests.get(f"{url}s")
            host = url.partition("/v1/")[0]
            pages = [requests.get(host + path) for path in watched_paths()]
        finally:
            kserve_server.stop(process)
    wanted = model(np.array(IDS))
    found = good.json()["predictions"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)
    assert bad.status_code == 400
    assert "does not take it" in bad.json()["error"]
    assert [page.status_code for page in pages] == [200] * 3
    # A client that is refused all day fills no disk with tracebacks.
    assert other.status_code == 404
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum("Refused: " in line for line in lines) == 2
    assert sum("judge: version " in line for line in lines) == 1
    assert not any("Traceback" in line for line in lines)


def memory(pid, what):
    """Bytes of memory that a process has (VmRSS), or came to have (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) * 1024


SECONDS = 3


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    """A server's process and address, what asks it rightly, and its log."""
    model, folder = exported
    path = tmp_path_factory.mktemp("server") / "log"
    program = (PREDICTOR, "--max_body_seconds", str(SECONDS))
    # With a fixed threshold malloc gives back every body that the server has
    # dropped. Else it keeps some, by the order of events: what the server
    # itself holds could not be measured.
    environment = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    with path.open("w") as log:
        process, url = kserve_server.start(
            folder / "judge.onnx", log, program, environment
        )

    def check(blanks=0):
        body = b" " * blanks + json.dumps({"instances": IDS}).encode()
        reply = requests.post(f"{url}:predict", body, timeout=60)
        found = reply.json()["predictions"]
        np.testing.assert_allclose(found, model(np.array(IDS)), 0, TOLERANCE)

    try:
        yield process, url, check, path
    finally:
        kserve_server.stop(process)


def test_status_is_served_and_nothing_else(server):
    _, url, check, _ = server
    host = url.partition("/v1/")[0]
    assert requests.get(host + "/").json() == {"status": "alive"}
    assert requests.get(f"{host}/v1/models").json() == {"models": ["judge"]}
    assert requests.get(url).json() == {"name": "judge", "ready": True}
    for asked in (
        "POST /v2/repository/models/judge/unload",
        "POST /v1/models/judge:explain",
        "DELETE /v1/models/judge",
        "GET /docs",
    ):
        method, path = asked.split()
        reply = requests.request(method, host + path)
        assert reply.status_code == 404
        assert reply.json() == {"error": f"{asked} is not served here"}
    check()


@pytest.mark.slow
def test_bodies_that_never_end(server):
    """They are not kept for ever, nor as many as come, nor is all refused."""
    process, url, check, log = server
    host, port = url.split("/")[2].split(":")
    most = 2**24
    check()  # what the first request loads is no body
    before = memory(process.pid, "VmRSS")
    began = len(log.read_text())
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(12):
            each = socket.create_connection((host, int(port)), timeout=60)
            held.append(stack.enter_context(each))
            each.sendall(
                b"POST /v1/models/judge:predict HTTP/1.1\r\nHost: judge\r\n"
                b"Content-Length: %d\r\n\r\n" % most
            )
            each.sendall(b" " * (most - 1))
        check()  # while they are held
        # Of four, the last in pieces and as one, and room for these.
        assert memory(process.pid, "VmRSS") < before + 6 * most
        said = collections.Counter()
        for each in held:
            reply = http.client.HTTPResponse(each)
            reply.begin()
            said[reply.status, json.loads(reply.read())["error"]] += 1
        check()
    for _ in range(5):  # all of which there is room for, in turn
        check(most - 1000)
    late = (408, f"The body must be sent in {SECONDS} seconds")
    many = (503, "Too many large bodies at the same time: try it later")
    assert said.keys() == {late, many}
    assert said[late] >= 4
    assert "Traceback" not in log.read_text()[began:]


@pytest.mark.slow
def test_server_keeps_no_large_body(server):
    process, url, check, log = server
    began = len(log.read_text())
    most = 2**24  # as the option's default is
    step = b",[]" * 2**18

    def rows(size):
        yield b'{"instances":[[]'
        for _ in range(size // len(step)):
            yield step
        yield b"]}"

    # The second is within the bytes, and would take twenty times as many.
    bodies = [rows(4 * most), b"".join(rows(most)), b" " * (most + 1)]
    replies = []
    with requests.Session() as session:
        for body in (json.dumps({"instances": IDS}), *bodies):
            # What it came to have is what it has, from here on.
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")
            before = memory(process.pid, "VmHWM")
            reply = session.post(f"{url}:predict", body, timeout=60)
            replies.append(reply)
            # What was read, in pieces and as one, and room for these.
            assert memory(process.pid, "VmHWM") < before + 4 * most
            check()
    assert [reply.status_code for reply in replies] == [200, 413, 413, 413]
    assert {reply.json()["error"] for reply in replies[1:]} == {
        "The body may have 16777216 bytes, and 1048576 lists and objects"
    }
    lines = log.read_text()[began:].splitlines()
    assert sum("Refused: 'The body may have" in line for line in lines) == 3
    assert not any("Traceback" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", EXPORTS)
def test_many_clients_while_versions_change(suffix, tmp_path):
    """Each response is of one version, and the last ones of the last."""
    models = [build(seed) for seed in (0, 1)]
    served = tmp_path / f"served{suffix}"
    first, second = (
        export(model, tmp_path / f"{number}{suffix}")
        for number, model in enumerate(models)
    )
    if suffix:
        first.rename(served)
    else:
        first.parent.rename(served)
    draw = np.random.default_rng(0)
    rows = [draw.integers(1, 20, (2, length)) for length in range(1, 80, 2)]
    wanted = [[model(row).numpy() for row in rows] for model in models]
    bad = [body for name, (body, _) in BAD.items() if "row" in name]
    found = collections.defaultdict(list)

    def ask(random):
        """Of which versions a response may be."""
        index = random.integers(len(rows))
        body = {"instances": rows[index].tolist()}
        reply = requests.post(f"{url}:predict", json=body)
        found = np.array(reply.json()["predictions"])
        return [
            np.abs(found - each[index]).max() <= TOLERANCE for each in wanted
        ]

    def ask_often(number):
        random = np.random.default_rng(number)
        for count in range(200):
            if number == 0 and count == 100:
                second.rename(served if suffix else served / "2")
            if count % 7 == 0:
                requests.post(f"{url}:predict", json=bad[count % len(bad)])
            yield ask(random)

    with (tmp_path / "log").open("w") as log:
        process, url = kserve_server.start(served, log)
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                found = [*pool.map(lambda n: [*ask_often(n)], range(8))]
            for _ in range(100):
                found[0].append(ask(draw))
                time.sleep(0.1)
                if found[0][-1][1]:
                    break
        finally:
            kserve_server.stop(process)
    for each in found:
        assert {*map(sum, each)} == {1}
        assert each[0] == [True, False]
    assert found[0][-1] == [False, True]


def test_client_that_leaves_ends_its_work(predictor, monkeypatch):
    """... if it has not begun: a model that runs cannot be stopped."""
    begun, may_end, ran, sent = threading.Event(), threading.Event(), [], []
    gone = set()

    def work(payload):
        ran.append(payload)
        begun.set()
        assert may_end.wait(60)

    async def served(scope, receive, send):
        body = (await receive())["body"]
        await send(await predictor.predict(body))

    async def leave(body):
        messages = [{"type": "http.disconnect"}]
        messages.append({"type": "http.request", "body": body})

        async def receive():
            if len(messages) == 1:
                await asyncio.to_thread(begun.wait, 60)
                gone.add(body)
            return messages.pop()

        async def send(message):
            sent.append(message)

        path = "/v1/models/judge:predict"
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        await limit(scope, receive, send)

    async def leave_both():
        running = asyncio.create_task(leave(b"running"))
        await asyncio.to_thread(begun.wait, 60)
        await asyncio.wait_for(leave(b"waiting"), 10)
        while gone != {b"running", b"waiting"}:
            await asyncio.sleep(0.01)
        for _ in range(100):  # rounds of the loop, in which it is noticed
            await asyncio.sleep(0)
        # Its body counts as long as it is held.
        assert [*limit.held]
        assert not running.done()
        may_end.set()
        await asyncio.wait_for(running, 10)

    limit = runpy.run_path(str(PREDICTOR))["BodyLimit"](served, 99, 4, 60)
    monkeypatch.setattr(predictor, "_predict", work)
    predictor.executor = concurrent.futures.ThreadPoolExecutor(1)
    try:
        asyncio.run(leave_both())
    finally:
        may_end.set()
        predictor.executor.shutdown()
    assert (ran, sent, limit.held) == ([b"running"], [], {})
