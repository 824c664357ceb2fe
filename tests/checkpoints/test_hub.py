"""Models by their names, from a stand-in of the hub on this machine."""

import builtins
import contextlib
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import keras_posenc as kp
from tests.checkpoints.folders import at

NAME, COMMIT, OTHER = "someone/llama", "a" * 40, "b" * 40


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Serves one model in two revisions; returns the paths asked for."""
    constants = pytest.importorskip("huggingface_hub.constants")
    files = {x.name: x.read_bytes() for x in at("llama").iterdir()}
    files["pytorch_model.bin"] = b"pickled"
    paths = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            head = f"/api/models/{NAME}"
            *_, revision, file = ["", *self.path.split("/")]
            if self.path.startswith(f"{head}/tree/"):
                found = [
                    {"type": "file", "path": x, "size": len(y), "oid": x}
                    for x, y in files.items()
                ]
                self.answer(json.dumps(found).encode())
            elif self.path.startswith(head):
                commit = OTHER if self.path.endswith("v1") else COMMIT
                found = {"id": NAME, "sha": commit, "siblings": []}
                self.answer(json.dumps(found).encode())
            elif f"/{NAME}/resolve/" in self.path and file in files:
                self.answer(files[file], revision)
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.end_headers()

        do_HEAD = do_GET

        def answer(self, content, commit=None):
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            if commit:
                digest = hashlib.sha256(content).hexdigest()
                self.send_header("ETag", f'"{digest}"')
                self.send_header("X-Repo-Commit", commit)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        yield paths


def load(name, **options):
    return kp.load_hugging_face(name, from_ids=True, verbose=False, **options)


def test_a_name_is_fetched_once_and_nothing_pickled(asked):
    model = load(NAME)
    assert model.name == "llama"
    assert model.origin["revision"] == COMMIT
    assert not any(".bin" in path for path in asked)
    fetched = [path for path in asked if path.endswith(".safetensors")]
    load(NAME)
    again = [path for path in asked if path.endswith(".safetensors")]
    assert len(again) <= len(fetched) + 1  # whether it is the same
    assert load(NAME, revision="v1").origin["revision"] == OTHER


def test_what_is_not_there(asked, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="'no/body' cannot be fetched"):
        load("no/body")
    with pytest.raises(ValueError, match="`revision` is that of a model on"):
        load(at("llama"), revision="v1")
    real = builtins.__import__

    def without(name, *given):
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ImportError, match=r"keras-posenc\[hub\].*hf download no/body --local"
    ):
        load("no/body")
