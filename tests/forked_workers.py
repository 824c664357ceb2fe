"""Forks the suite's workers from processes that have their libraries loaded.

A worker imports TensorFlow, or another runtime, for seconds: half of what a
test of an export takes. Here a server imports it once, and forks each worker
that is started with the same environment. What follows is as for users:
`__main__.py` of the worker, its session, pipes, limits and exit status.
"""

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import types

# By the name of a worker's module, without `keras_posenc_worker.`, and the kind
# of file that it runs.
LIBRARIES = {
    ("keras_posenc.scoring.worker",): [
        "ai_edge_litert.interpreter",
        "keras_posenc.scoring.worker",
        "pyarrow.parquet",
    ],
    ("convert_litert",): ["tensorflow"],
    ("render_chat",): ["jinja2.ext", "jinja2.sandbox"],
    ("read",): ["google.protobuf.message", "numpy"],
    ("read_keras",): ["keras"],
    ("run", "litert"): ["ai_edge_litert.interpreter"],
    ("run", "litert_compiled"): ["ai_edge_litert.compiled_model"],
    ("run", "onnx"): ["onnxruntime"],
    ("run", "saved_model"): ["tensorflow"],
}
servers = {}


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
        self.pid = int.from_bytes(self._server.recv(4), "big")
        self._child_created = True

    def _try_wait(self, flags):
        if (
            flags & os.WNOHANG
            and not select.select([self._status], [], [], 0)[0]
        ):
            return 0, 0
        status = os.read(self._status, 4)
        os.close(self._status)
        return self.pid, int.from_bytes(status, "big")

    def _internal_poll(self, *args, **options):
        return super()._internal_poll(
            *args, _waitpid=lambda pid, flags: self._try_wait(flags), **options
        )


def start(kind, arguments, **options):
    """Starts a worker: from a server, if it is one of `LIBRARIES`."""
    environment = tuple(
        sorted(
            x for x in options["env"].items() if x[0] != "PYTEST_CURRENT_TEST"
        )
    )
    key = os.getpid(), kind, environment
    if kind not in LIBRARIES:
        return subprocess.Popen(arguments, **options)
    if key not in servers:
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, *LIBRARIES[kind]],
            stdin=theirs,
            stderr=subprocess.DEVNULL,
            env=options["env"],
            start_new_session=True,
        )
        theirs.close()
        servers[key] = ours, process
    return ForkedWorker(servers[key][0], arguments, **options)


@atexit.register
def end():
    """A server ends with its socket."""
    for (pid, *_), (server, process) in servers.items():
        if pid == os.getpid():
            server.close()
            process.wait()


def install():
    """From here on the package's workers are forked."""
    from keras_posenc.export import worker_client

    start_plain = worker_client._start
    prepared = []  # the kind of file of the worker that is being started

    def start_prepared(module, prepare):
        prepared.extend(prepare[:1])
        try:
            return start_plain(module, prepare)
        finally:
            prepared.clear()

    def popen(arguments, **options):
        module = arguments[4].removeprefix("keras_posenc_worker.")
        return start((module, *prepared), arguments, **options)

    worker_client._start = start_prepared
    worker_client.subprocess = types.SimpleNamespace(
        Popen=popen, PIPE=subprocess.PIPE
    )


# ---- The server


def serve(libraries):
    """Forks a worker for each request of standard input, a socket."""
    process = importlib.import_module("keras_posenc_worker.process")
    if "keras" not in libraries:
        process.forbid("keras", "tf_keras")
    for name in libraries:
        importlib.import_module(name)
    server = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        head, fds, *_ = socket.recv_fds(server, 4, 4)
        if not head:
            return
        size = int.from_bytes(head, "big")
        request = b""
        while len(request) < size:
            request += server.recv(size - len(request))
        if not os.fork():
            become(json.loads(request), server, fds)
        for fd in fds:
            os.close(fd)


def become(request, server, fds):
    """Becomes the one that waits for the worker, whose child is the worker."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, status = fds
    if pid := os.fork():
        server.sendall(pid.to_bytes(4, "big"))
        server.close()
        for fd in (0, *streams):
            os.close(fd)
        os.write(status, os.waitpid(pid, 0)[1].to_bytes(4, "big"))
        os._exit(0)
    server.close()
    os.close(status)
    os.setsid()
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
