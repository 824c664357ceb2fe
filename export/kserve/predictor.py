"""Serves an exported model by KServe's model server.

    python predictor.py --model_name judge --model_dir models/judge
    python predictor.py --model_name judge --model_dir judge.tflite

The first is a folder of SavedModel versions; a LiteRT or ONNX file takes its
place, where the client sends ids and not texts. A short text is answered in
less time then.

Has KServe's V1 protocol: `/v1/models/judge:predict` takes and gives what
TensorFlow Serving's does: `{"instances": [...], "signature_name": "..."}` gives
`{"predictions": [...]}`, and `{"inputs": {"text": [...]}}` gives `{"outputs":
...}`. A float that is NaN is `null`, there and back; where a request has none,
NaN is no answer, but a 400. For probes and metrics there are `/`, `/metrics`,
`/v1/models`, `/v1/models/judge`, `/v2/health/live` and `/v2/health/ready`, by
GET. All else gets a 404: no `/versions/N`, no `/metadata`, nothing that loads
or unloads, no V2 protocol. There is no gRPC and no batching.

Takes the highest version there is, or the file, looks for a newer one every
`--poll_seconds`, and swaps when that one is loaded and has answered its warm-up
requests. What keeps a version from being served is logged once, and the version
before goes on. Requests that the model cannot take are answered by a 400 that
says why. Needs kserve and what runs the model: ai-edge-litert or onnxruntime;
or tensorflow, tensorflow-text where the model takes strings, and
tensorflow-serving-api for warm-up requests. Neither keras nor keras_posenc.

A body of more than `--max_body_bytes` gets a 413 and is not kept. Nor is one
that does not arrive in `--max_body_seconds`, which gets a 408, or for which
there is no room beside others, which gets a 503: all that are received or being
answered have as many bytes as `--max_bodies` of the largest size. A request has
at most `--max_rows` rows, each of at most `--max_bytes` in an input. Bodies are
JSON as it is, not compressed.
"""

import argparse
import asyncio
import base64
import concurrent.futures
import contextlib
import ctypes
import datetime
import functools
import gc
import itertools
import logging
import os
import re
import socket
import threading
from importlib import util
from pathlib import Path
from types import NoneType
from typing import NamedTuple

# TensorFlow leaves oneDNN off on processors without AVX-512.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kserve
import numpy as np
import orjson
from fastapi import HTTPException
from fastapi.responses import JSONResponse
from kserve.errors import InvalidInput, ModelNotFound
from kserve.logging import logger
from kserve.model_server import app
from kserve.model_server import parser as kserve_parser
from kserve.protocol.rest.server import RESTServer

DEFAULT = "serving_default"
# What JSON's values may be, by the kind of an input. JSON has no NaN: null says
# so, as it does in answers.
_NUMBERS = {int, float, NoneType}
_TYPES = {"i": {int}, "u": {int}, "b": {bool}}
# What is asked of the server, probes and metrics included, and how.
SERVED = re.compile(
    r"POST /v1/models/[^/]+:predict"
    r"|GET (/|/metrics|/v1/models(/[^/]+)?|/v2/health/(live|ready))"
)
# Of a body, in bytes, that count for nothing: so much of a connection the
# system holds anyway, and no short request waits for those that are large.
_UNCOUNTED = 65536


class Input(NamedTuple):
    """What an input may be: None are sizes, or a shape, of any kind."""

    shape: tuple | None
    dtype: np.dtype


class Signature(NamedTuple):
    """What a model can be asked, whatever runs it.

    `run` makes arrays of arrays, both by name, and raises one of `refusals`
    for what the model does not take. Where `takes_empty` is False the runtime
    is never given a row of length 0.
    """

    inputs: dict
    run: object
    refusals: tuple
    takes_empty: bool


def load(path):
    """The signatures of a model, by name."""
    loaders = {".tflite": load_litert, ".onnx": load_onnx}
    return loaders.get(path.suffix, load_saved_model)(path)


def load_litert(path):
    """Those of a LiteRT file."""
    from ai_edge_litert.interpreter import Interpreter

    # Of its content: a file that is mapped follows whatever is written to it.
    content = path.read_bytes()
    turn = threading.Lock()  # its tensors are one for all that ask
    runners = {}

    def make():
        # Two threads would take longer for a short text than one does.
        interpreter = Interpreter(model_content=content, num_threads=1)
        for name in interpreter.get_signature_list():
            runners[name] = interpreter.get_signature_runner(name)

    def signature(name, runner):
        def run(inputs):
            with turn:
                if not runners:
                    make()
                try:
                    return runners[name](**inputs)
                except BaseException:
                    # An interpreter that raised may give wrong numbers from
                    # then on, or end the process: the next request has another.
                    runners.clear()
                    raise

        inputs = {
            name: Input(
                tuple(
                    None if size < 0 else int(size)
                    for size in tensor["shape_signature"]
                ),
                np.dtype(tensor["dtype"]),
            )
            for name, tensor in runner.get_input_details().items()
        }
        return Signature(inputs, run, (RuntimeError, ValueError), False)

    make()
    return {name: signature(name, runners[name]) for name in [*runners]}


def load_onnx(path):
    """That of an ONNX file."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    options = onnxruntime.SessionOptions()
    # Its threads would wait for the next request by doing nothing, busily.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        path.read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]

    def run(inputs):
        return dict(zip(names, session.run(names, inputs), strict=True))

    dtypes = {"float": "float32", "double": "float64", "string": "object"}
    inputs = {}
    for tensor in session.get_inputs():
        name = tensor.type.removeprefix("tensor(").removesuffix(")")
        inputs[tensor.name] = Input(
            tuple(s if isinstance(s, int) else None for s in tensor.shape),
            np.dtype(dtypes.get(name, name)),
        )
    refusals = errors.Fail, errors.InvalidArgument, errors.RuntimeException
    return {DEFAULT: Signature(inputs, run, refusals, False)}


def load_saved_model(path):
    """Those of a version folder, which has answered its warm-up requests."""
    import tensorflow as tf

    load_text_operators()
    module = tf.saved_model.load(path)
    replay_warmup(path, module.signatures)

    def signature(function):
        _, specs = function.structured_input_signature

        def run(inputs, _keep=module):
            outputs = function(
                **{
                    name: tf.constant(value, specs[name].dtype)
                    for name, value in inputs.items()
                }
            )
            return {name: value.numpy() for name, value in outputs.items()}

        inputs = {
            name: Input(
                None if spec.shape.rank is None else tuple(spec.shape),
                np.dtype(spec.dtype.as_numpy_dtype),
            )
            for name, spec in specs.items()
        }
        errors = tf.errors
        refusals = errors.InvalidArgumentError, errors.ResourceExhaustedError
        return Signature(inputs, run, refusals, True)

    return {
        name: signature(function)
        for name, function in module.signatures.items()
    }


@functools.cache
def load_text_operators():
    """TF-Text's operators by their files: its package would need Keras."""
    import tensorflow as tf

    spec = util.find_spec("tensorflow_text")
    if spec is not None:
        folder = Path(spec.submodule_search_locations[0], "python", "ops")
        for path in sorted(folder.glob("_*.so")):
            tf.load_op_library(str(path))


def newest_version(model):
    """The highest version in a folder, as servers read them; or None.

    Of a file, when it was written.
    """
    if model.is_file():
        written = model.stat().st_mtime
        return datetime.datetime.fromtimestamp(written).isoformat()
    numbers = [
        int(path.name)
        for path in model.iterdir()
        if path.name.isascii() and path.name.isdigit()
    ]
    return max(numbers, default=None)


def replay_warmup(path, signatures):
    """Answers the warm-up requests of a version, as TensorFlow Serving does."""
    file = Path(path, "assets.extra", "tf_serving_warmup_requests")
    if not file.exists():
        return
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        logger.warning("No warm-up: it needs tensorflow-serving-api")
        return
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        signatures[request.model_spec.signature_name or DEFAULT](
            **{
                name: tf.constant(tf.make_ndarray(value), value.dtype)
                for name, value in request.inputs.items()
            }
        )


class Predictor(kserve.Model):
    """The newest version in a folder, or a file."""

    def __init__(self, name, path, poll_seconds, max_bytes, max_rows):
        super().__init__(name)
        self.path, self.poll_seconds = Path(path), poll_seconds
        self.max_bytes, self.max_rows = max_bytes, max_rows
        self.version = self.signatures = self.problem = None
        self.executor = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def load(self):
        """Loads the newest version, and keeps looking for newer ones."""
        self.refresh()
        threading.Thread(target=self._poll, daemon=True).start()
        return self.ready

    def refresh(self):
        """Swaps to the newest version, if it is another one."""
        version = newest_version(self.path)
        if version is not None and version != self.version:
            is_file = self.path.is_file()
            try:
                signatures = load(
                    self.path if is_file else self.path / str(version)
                )
            except Exception as error:
                reason = str(error).partition("\n")[0]
                raise RuntimeError(
                    f"version {version} cannot be loaded: "
                    f"{type(error).__name__}: {reason}"
                ) from error
            # One assignment: a request has the old version or the new one.
            self.signatures, self.version = signatures, version
            self.ready = True
            logger.info("%s: version %s", self.name, version)

    def try_refresh(self):
        """Does, and says what is wrong where that was not said last."""
        problem = None
        try:
            self.refresh()
        except Exception as error:
            problem = str(error)
            if problem != self.problem:
                logger.error(
                    "%s: %s; still serving version %s",
                    self.name,
                    problem,
                    self.version,
                )
        self.problem = problem

    def _poll(self):
        wait, version = threading.Event(), self.version
        while not wait.wait(self.poll_seconds):
            if version != self.version:
                # The earlier one is a web of references, which requests that
                # it was still answering as it was replaced held on to.
                version = self.version
                gc.collect()
            with contextlib.suppress(AttributeError, OSError):
                # glibc's, which else keeps what requests and versions freed.
                ctypes.CDLL(None).malloc_trim(0)
            self.try_refresh()

    def validate(self, payload):
        """What KServe asks of a body, and that it is an object at all."""
        if isinstance(payload, bytes):  # of a content type that is not JSON
            try:
                payload = orjson.loads(payload)
            except orjson.JSONDecodeError as error:
                raise InvalidInput(f"The body is not JSON: {error}") from None
        if not isinstance(payload, dict):
            raise InvalidInput("The body must be a JSON object")
        if "inputs" not in payload:
            columns = [payload.get("instances")]
            if not isinstance(columns[0], list) or not columns[0]:
                raise InvalidInput("`instances` must be a list of at least one")
        elif "instances" in payload:
            raise InvalidInput("Give `instances` or `inputs`, not both")
        elif isinstance(payload["inputs"], dict):
            columns = payload["inputs"].values()
        else:
            columns = [payload["inputs"]]
        # Here, before it waits for its turn.
        columns = [each for each in columns if isinstance(each, list)]
        rows = max(map(len, columns), default=0)
        if rows > self.max_rows:
            raise InvalidInput(
                f"A request may have {self.max_rows} examples, and this has "
                f"{rows}"
            )
        for row in itertools.chain(*columns):
            for value in row.values() if isinstance(row, dict) else [row]:
                if isinstance(value, list) and 8 * len(value) > self.max_bytes:
                    raise InvalidInput(
                        f"An example may have {self.max_bytes} bytes, 8 for "
                        f"each number: this one has {len(value)} numbers"
                    )
        return payload

    async def predict(self, payload, headers=None, response_headers=None):
        """Answers one request, beside the loop that takes them."""
        work = self.executor.submit(self._predict, payload)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            # The client has left. What waits for its turn never runs now; a
            # model that runs cannot be stopped, and its body counts until then.
            if not work.cancel():
                running = asyncio.wrap_future(work)
                await asyncio.gather(running, return_exceptions=True)
            raise

    def _predict(self, payload):
        signatures = self.signatures
        name = payload.get("signature_name", DEFAULT)
        if not isinstance(name, str) or name not in signatures:
            raise InvalidInput(
                f"`signature_name` must be one of {', '.join(signatures)}"
            )
        signature = signatures[name]
        specs = signature.inputs
        by_column = "inputs" in payload
        columns = (
            _named(payload["inputs"], specs)
            if by_column
            else _columns(payload["instances"], specs)
        )
        inputs = {
            key: self.tensor(key, spec, rows, signature.takes_empty)
            for (key, spec), rows in zip(specs.items(), columns, strict=True)
        }
        try:
            outputs = signature.run(inputs)
        except signature.refusals as error:
            raise InvalidInput(
                f"The model does not take it: {reason(error)}"
            ) from None
        if not any(map(_has_nan, inputs.values())):
            for key, value in outputs.items():
                if _has_nan(value):
                    raise InvalidInput(
                        f"The model gives NaN for `{key}`: an example may be "
                        "longer than its positions"
                    )
        outputs = {key: _jsonable(value) for key, value in outputs.items()}
        answer = "outputs" if by_column else "predictions"
        if len(outputs) == 1:
            (values,) = outputs.values()
            return {answer: values}
        if by_column:
            return {answer: outputs}
        rows = zip(*outputs.values(), strict=True)
        names = tuple(outputs)
        return {
            "predictions": [dict(zip(names, row, strict=True)) for row in rows]
        }

    def tensor(self, name, spec, rows, takes_empty):
        """The array of an input, of the rows that a request has for it."""
        # Of objects: NumPy else gives each of them the room of the longest
        # text, and lists of several lengths an error of their own.
        value = np.array(rows, dtype=object)
        types = set(map(type, value.ravel()))
        if spec.dtype == object:
            texts = [_to_bytes(name, each) for each in value.ravel()]
            longest = max(map(len, texts), default=0)
            if longest > self.max_bytes:
                raise InvalidInput(
                    f"`{name}` may have {self.max_bytes} bytes, and has "
                    f"{longest}"
                )
            value = np.array(texts, dtype=object).reshape(value.shape)
        elif list in types:
            raise InvalidInput(
                f"`{name}` must have examples of one shape, for {spec.shape}"
            )
        else:
            wanted = _TYPES.get(spec.dtype.kind, _NUMBERS)
            if not types <= wanted or (
                types == {int} == wanted and not _fits(value, spec.dtype)
            ):
                raise InvalidInput(f"`{name}` must be of {spec.dtype.name}")
            if value.nbytes > self.max_bytes * len(rows):
                raise InvalidInput(
                    f"`{name}` may have {self.max_bytes} bytes an example"
                )
            value = value.astype(spec.dtype)
        if not _is_of(spec.shape, value):
            raise InvalidInput(
                f"`{name}` must be of shape {spec.shape}, and is of "
                f"{value.shape if value.ndim < 9 else 'more than 8 sizes'}"
            )
        if not value.size and not takes_empty:
            raise InvalidInput(
                f"`{name}` is empty, of shape {value.shape}: each row must "
                "have at least one value"
            )
        return value


def _columns(instances, specs):
    """Rows by input, of rows that are values or objects of them."""
    if any(isinstance(row, dict) and "b64" not in row for row in instances):
        for row in instances:
            if not isinstance(row, dict) or set(row) != set(specs):
                raise InvalidInput(
                    f"Each of `instances` must have {', '.join(specs)}"
                )
        return [[row[name] for row in instances] for name in specs]
    if len(specs) != 1:
        raise InvalidInput(
            f"Each of `instances` must be an object with {', '.join(specs)}"
        )
    return [instances]


def _named(inputs, specs):
    """Columns by input; a column alone where there is one input."""
    if not isinstance(inputs, dict) or "b64" in inputs:
        inputs = dict.fromkeys(specs, inputs) if len(specs) == 1 else {}
    if set(inputs) != set(specs):
        raise InvalidInput(f"`inputs` must have {', '.join(specs)}")
    columns = [inputs[name] for name in specs]
    for name, column in zip(specs, columns, strict=True):
        if not isinstance(column, list) or not column:
            raise InvalidInput(f"`{name}` must be a list of at least one")
    if len(set(map(len, columns))) > 1:
        raise InvalidInput("`inputs` must have as many rows each")
    return columns


def _to_bytes(name, value):
    try:
        if isinstance(value, dict):
            return base64.b64decode(value["b64"], validate=True)
        return value.encode()
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidInput(f"`{name}` must be a string") from None


def reason(error):
    """What is wrong with a request, without where in the model it was seen."""
    message = getattr(error, "message", str(error))
    # TensorFlow names the node in the next line, and ONNX Runtime before it.
    found = re.search(r"(\S[^\n]*)\n\s*\[\[", message)
    return found[1] if found else message.rpartition("Status Message: ")[2]


def _is_of(shape, value):
    return shape is None or (
        len(shape) == value.ndim
        and all(
            size in (None, found)
            for size, found in zip(shape, value.shape, strict=True)
        )
    )


def _fits(value, dtype):
    limits = np.iinfo(dtype)
    return limits.min <= value.min() and value.max() <= limits.max


def _has_nan(values):
    values = np.asarray(values)
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def _jsonable(values):
    if values.dtype == object:
        decode = np.vectorize(lambda text: text.decode(), otypes=[object])
        values = decode(values)
    return values.tolist()


def in_one_line(record):
    """A refused request without the traceback that KServe logs with it."""
    error = record.exc_info and record.exc_info[1]
    if isinstance(error, (InvalidInput, ModelNotFound)):
        record.msg, record.args = "Refused: %.200r", (str(error),)
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
    return True


class BodyLimit:
    """Lets through what is served here, with a body that was read in bounds.

    Args:
        app: The server.
        max_bytes: Of one body; else a 413. A list or an object of two bytes
            takes 70 once it is read: of these a sixteenth of the bytes' number
            is the most.
        max_bodies: Of that size, received or answered now; else a 503.
        max_seconds: For a body to arrive; else a 408.
    """

    def __init__(self, app, max_bytes, max_bodies, max_seconds):
        self.app, self.max_bytes = app, max_bytes
        self.max_bodies, self.max_seconds = max_bodies, max_seconds
        self.held = {}  # bytes of each body, by who asks

    async def __call__(self, scope, receive, send):
        """Handles one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asks, request = object(), f"{scope['method']} {scope['path']}"
        try:
            if not SERVED.fullmatch(request):
                raise HTTPException(404, f"{request} is not served here")
            if scope["method"] == "POST":
                receive = await self._read(scope, receive, asks)
                await self._while_there(scope, receive, send)
            else:
                await self.app(scope, receive, send)
        except HTTPException as error:
            logger.warning("Refused: %.200r", error.detail)
            # As KServe's other refusals say it.
            refusal = JSONResponse(
                {"error": error.detail}, error.status_code, error.headers
            )
            await refusal(scope, receive, send)
        finally:
            self.held.pop(asks, None)

    async def _while_there(self, scope, receive, send):
        """Handles it until its client leaves, which KServe does not notice."""
        body = [await receive()]
        has_begun = False

        async def left():
            while (await receive())["type"] != "http.disconnect":
                pass
            return {"type": "http.disconnect"}

        async def receive_again():
            return body.pop() if body else await asyncio.shield(leaving)

        async def send_on(message):
            nonlocal has_begun
            has_begun = True
            await send(message)

        leaving = asyncio.create_task(left())
        work = asyncio.create_task(self.app(scope, receive_again, send_on))
        try:
            await asyncio.wait(
                {leaving, work}, return_when=asyncio.FIRST_COMPLETED
            )
            if not has_begun:
                work.cancel()
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()
        finally:
            leaving.cancel()
            work.cancel()

    async def _read(self, scope, receive, asks):
        """What gives the server a body as a whole, once it is here."""
        try:
            async with asyncio.timeout(self.max_seconds):
                messages = [await self._whole(scope, receive, asks)]
        except TimeoutError:
            raise HTTPException(
                408,
                f"The body must be sent in {self.max_seconds:g} seconds",
                {"connection": "close"},
            ) from None

        async def receive_again():
            return messages.pop() if messages else await receive()

        return receive_again

    async def _whole(self, scope, receive, asks):
        largest = int(dict(scope["headers"]).get(b"content-length", 0))
        body, lists, more = bytearray(), 0, True
        while True:
            if largest > self.max_bytes:
                raise HTTPException(
                    413,
                    f"The body may have {self.max_bytes} bytes, and "
                    f"{self.max_bytes // 16} lists and objects",
                )
            self.held[asks] = max(0, len(body) - _UNCOUNTED)
            if sum(self.held.values()) > self.max_bodies * self.max_bytes:
                raise HTTPException(
                    503, "Too many large bodies at the same time: try it later"
                )
            if not more:
                return {"type": "http.request", "body": bytes(body)}
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HTTPException(400, "The body ends too soon")
            piece = message.get("body", b"")
            more = message.get("more_body", False)
            body += piece
            lists += piece.count(b"[") + piece.count(b"{")
            largest = max(len(body), 16 * lists)


def command_line(description):
    """The parser of the options, and of KServe's."""
    parser = argparse.ArgumentParser(
        description=description.splitlines()[0], parents=[kserve_parser]
    )
    parser.add_argument(
        "--model_dir", required=True, help="or a .tflite or .onnx file"
    )
    parser.add_argument("--http_host", default="0.0.0.0")
    parser.add_argument("--poll_seconds", type=float, default=1.0)
    parser.add_argument(
        "--max_bytes", type=int, default=65536, help="of one row of an input"
    )
    parser.add_argument(
        "--max_rows", type=int, default=1024, help="of one request"
    )
    parser.add_argument(
        "--max_body_bytes", type=int, default=2**24, help="of one request"
    )
    parser.add_argument(
        "--max_bodies", type=int, default=4, help="of that size, at a time"
    )
    parser.add_argument(
        "--max_body_seconds", type=float, default=30.0, help="to receive one"
    )
    return parser


def serve(options):
    """Serves until it is ended."""
    model = Predictor(
        options.model_name,
        options.model_dir,
        options.poll_seconds,
        options.max_bytes,
        options.max_rows,
    )
    app.add_middleware(
        BodyLimit,
        max_bytes=options.max_body_bytes,
        max_bodies=options.max_bodies,
        max_seconds=options.max_body_seconds,
    )
    server = kserve.ModelServer(enable_grpc=False)  # first: it sets up the log
    logger.addFilter(in_one_line)
    model.load()
    server.register_model(model)
    rest = RESTServer(
        "kserve.model_server:app",
        server.dataplane,
        server.model_repository_extension,
        options.http_port,
    )
    with socket.create_server((options.http_host, options.http_port)) as here:
        print(f"serving on port {here.getsockname()[1]}", flush=True)
        rest.run(sockets=[here])


if __name__ == "__main__":
    serve(command_line(__doc__).parse_args())
