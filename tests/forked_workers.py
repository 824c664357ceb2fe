"""Forks the suite's workers from processes that have their libraries loaded.

A worker imports TensorFlow, or another runtime, for seconds: half of what a
test of an export takes. Here a server imports it once in a run of the suite,
and forks each worker that is started with the same environment. What follows is
as for users: `__main__.py` of the worker, its session, pipes, limits and exit
status.
"""

import atexit
import contextlib
import contextvars
import gc
import hashlib
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

# By the name of a worker's module, without `keras_posenc_worker.`, and the kind
# of file that it runs. "!" forbids an import, and "-" leaves out `__init__`.
LIBRARIES = {
    ("keras_posenc.scoring.worker",): [
        "ai_edge_litert.interpreter",
        "keras_posenc.scoring.worker",
        "pyarrow.parquet",
    ],
    ("convert_litert",): ["tensorflow", "tensorflow.lite.python.lite"],
    ("render_chat",): ["jinja2.ext", "jinja2.sandbox"],
    ("read",): [
        *("onnx", "keras_posenc_worker.read", "-tensorflow"),
        "tensorflow.core.protobuf.saved_model_pb2",
    ],
    ("read_keras",): ["keras", "keras_posenc"],
    ("run_litertlm",): ["litert_lm"],
    ("run_mediapipe",): [
        *("!tensorflow", "-mediapipe", "-mediapipe.tasks.python"),
        "mediapipe.tasks.python.text",
        "mediapipe.tasks.python.core.base_options",
    ],
    ("run", "litert"): ["ai_edge_litert.interpreter"],
    ("run", "litert_compiled"): ["ai_edge_litert.compiled_model"],
    ("run", "onnx"): ["onnxruntime"],
    ("run", "saved_model"): ["tensorflow", "tensorflow.lite.python.lite"],
}
# What libraries read as they are loaded.
READ = (
    *("CUDA_", "KERAS_", "LD_", "MKL_"),
    *("OMP_", "OPENBLAS_", "PYTHON", "TF_", "XLA_"),
)
COMMAND = [sys.executable, "-P", "-m", "keras_posenc_worker"]
servers = {}
lock = threading.Lock()
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
FOLDER = Path(tempfile.gettempdir(), f"workers-{RUN[:12]}")
prepared = contextvars.ContextVar("kind of file", default=())


class ForkedWorker(subprocess.Popen):
    """A worker that a server forks, instead of this process."""

    def __init__(self, server, arguments, **options):
        self._server = server
        super().__init__(arguments, **options)

    def _execute_child(self, arguments, executable, *rest):
        cwd, env = rest[3:5]
        pipes = rest[8:14]
        theirs = [pipes[0], pipes[3], pipes[5]]
        self._status, status = os.pipe()
        request = json.dumps([arguments[4:], cwd or os.getcwd(), dict(env)])
        head = len(request.encode()).to_bytes(4, "big")
        socket.send_fds(self._server, [head], [*theirs, status])
        self._server.sendall(request.encode())
        os.close(status)
        self._close_pipe_fds(*pipes)
        self.pid = int.from_bytes(received(self._server, 4), "big")
        if not self.pid:  # of a kill, this process's own group
            raise OSError("the server forked no worker")
        self._child_created = True

    def _try_wait(self, flags):
        wait = 0 if flags & os.WNOHANG else None
        if not select.select([self._status], [], [], wait)[0]:
            return 0, 0
        # Empty if who waits for it has been killed.
        status = os.read(self._status, 4) or bytes([0, 0, 0, signal.SIGKILL])
        os.close(self._status)
        return self.pid, int.from_bytes(status, "big")

    def _internal_poll(self, *_, **__):
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def start(arguments, **options):
    """Starts a worker: from a server, if it is one of `LIBRARIES`."""
    assert arguments[:4] == COMMAND
    kind = arguments[4].removeprefix("keras_posenc_worker."), *prepared.get()
    if kind not in LIBRARIES:
        return subprocess.Popen(arguments, **options)
    environment = {"KERAS_BACKEND": "tensorflow", **options["env"]}
    read = {x: environment[x] for x in environment if x.startswith(READ)}
    libraries = tuple(LIBRARIES[kind])
    key = os.getpid(), libraries, tuple(sorted(read.items()))
    with lock:
        for is_again in (False, True):
            if key not in servers:
                servers[key] = connected(key[1:], options["env"])
            try:
                return ForkedWorker(servers[key], arguments, **options)
            except OSError:  # the server was killed
                servers.pop(key).close()
                if is_again:
                    raise


def connected(key, environment):
    """A connection to a server, which the processes of a run share.

    It ends once no process has one.
    """
    from filelock import FileLock  # not in the servers

    FOLDER.mkdir(exist_ok=True)
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    path, ours = FOLDER / name, socket.socket(socket.AF_UNIX)
    with FileLock(FOLDER / "lock"):
        with contextlib.suppress(FileNotFoundError):
            try:
                ours.connect(str(path))
                return ours
            except ConnectionRefusedError:  # of one that was killed
                path.unlink()
        with socket.socket(socket.AF_UNIX) as theirs:
            theirs.bind(str(path))
            theirs.listen()
            process = subprocess.Popen(
                [*COMMAND[:2], __file__, *key[0]],
                stdin=theirs,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
            process.returncode = 0  # nobody waits for it
        ours.connect(str(path))
    return ours


@atexit.register
def end_all():
    for each in servers.values():
        each.close()
    shutil.rmtree(FOLDER, ignore_errors=True)


def install():
    """From here on the package's workers are forked."""
    from keras_posenc.export import worker_client

    start_plain = worker_client._start

    def start_prepared(module, prepare):
        token = prepared.set(tuple(prepare[:1]))
        try:
            return start_plain(module, prepare)
        finally:
            prepared.reset(token)

    worker_client._start = start_prepared
    worker_client.subprocess = types.SimpleNamespace(
        Popen=start, PIPE=subprocess.PIPE
    )


def received(connection, size):
    """So many bytes, or none if the other side has ended."""
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            return b""
        found += part
    return found


# ---- The server


def serve(libraries):
    """Forks a worker for each request of standard input, a socket."""
    formats, process, _ = (
        importlib.import_module(f"keras_posenc_worker.{name}")
        for name in ("formats", "process", "run")
    )
    gc.disable()
    if "keras" not in libraries:
        process.forbid("keras", "tf_keras")
    for name in libraries:
        if name.startswith("!"):
            process.forbid(name[1:])
        elif name.startswith("-"):
            formats.without_its_init(name[1:])
        else:
            importlib.import_module(name)
    if "keras_posenc_worker.read" in libraries:
        formats.litert_schema()
    # What a worker collects is its own alone.
    gc.freeze()
    gc.enable()
    listening = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    clients = [listening.accept()[0]]
    while clients:
        for server in select.select([listening, *clients], [], [])[0]:
            if server is listening:
                clients.append(listening.accept()[0])
                continue
            head, fds, *_ = socket.recv_fds(server, 4, 4)
            request = received(server, int.from_bytes(head, "big"))
            if not request:
                clients.remove(server)
                server.close()
            elif not os.fork():
                others = {listening, *clients} - {server}
                become(json.loads(request), server, fds, others)
            for fd in fds:
                os.close(fd)


def become(request, server, fds, others):
    """Becomes the one that waits for the worker, whose child is the worker."""
    for each in others:
        each.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, status = fds
    try:
        pid = os.fork()
    except OSError:
        server.sendall(bytes(4))
        os._exit(1)
    if pid:
        server.close()
        for fd in (0, *streams):
            os.close(fd)
        os.write(status, os.waitpid(pid, 0)[1].to_bytes(4, "big"))
        os._exit(0)
    os.close(status)
    os.setsid()
    # As after `Popen`, who gets this may signal the whole session.
    server.sendall(os.getpid().to_bytes(4, "big"))
    server.close()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    arguments, folder, environment = request
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    runpy.run_module("keras_posenc_worker", run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1:])
