"""Requests to KServe's model server, around each export of one model."""

import functools
import http.client
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _contest import take_turns

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "recipes"))
from kserve_server import start, stop

SAVED_MODEL, LITERT = "SavedModel", "LiteRT"
# What is asked, in turns; and the most of the SavedModel's time for the first.
LENGTHS = {"16": [16], "128": [128], "16 and 1 x 128": [16, 128]}
AT_MOST = 0.45
TYPE = {"Content-Type": "application/json"}
ROUNDS = 70  # of three requests each that count


def build() -> Any:
    """A model of ids: four blocks of 256."""
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            kp.TransformerEncoderModel(
                8000,
                d_model=256,
                num_layers=4,
                num_heads=4,
                intermediate_dim=1024,
            ),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )


class Server:
    """A server, and a connection to it that is kept.

    Attributes:
        asked: How many requests it has answered.
    """

    def __init__(self, model: Path, log: Any) -> None:
        self._process, url = start(model, log)
        self._url = urlsplit(url)
        self._connection = http.client.HTTPConnection(self._url.netloc)
        self.asked = 0

    def close(self) -> None:
        self._connection.close()
        stop(self._process)

    def ask(self, bodies: Sequence[bytes]) -> None:
        path = f"{self._url.path}:predict"
        for body in bodies:
            self._connection.request("POST", path, body, TYPE)
            reply = self._connection.getresponse()
            content = reply.read()
            if reply.status != 200:
                raise RuntimeError(content.decode())
            self.asked += 1

    @property
    def processor_seconds(self) -> float:
        """What its processors have worked so far."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def behind_kserve(folder: Path) -> Iterator[str]:
    """What a request takes of each format, in lines."""
    import numpy as np

    import keras_posenc as kp

    model = build()
    silent: dict[str, Any] = {"verify": False, "verbose": False}
    kp.export_saved_model(model, folder / "judge", **silent)
    paths = {
        SAVED_MODEL: folder / "judge",
        LITERT: kp.export_litert(model, folder / "judge.tflite", **silent).path,
        "ONNX": kp.export_onnx(model, folder / "judge.onnx", **silent).path,
    }
    with ExitStack() as stack:
        servers = {}
        for name, path in paths.items():
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            servers[name] = Server(path, log)
            stack.callback(servers[name].close)
        for work, lengths in LENGTHS.items():
            rng = np.random.default_rng(0)
            bodies = [
                json.dumps(
                    {"instances": rng.integers(1, 8000, (1, length)).tolist()}
                ).encode()
                for length in lengths
            ]
            before = {
                name: (each.processor_seconds, each.asked)
                for name, each in servers.items()
            }
            times = take_turns(
                {
                    name: functools.partial(each.ask, bodies)
                    for name, each in servers.items()
                },
                ROUNDS,
            )
            work_of = {}
            for name, each in servers.items():
                seconds, asked = before[name]
                seconds = each.processor_seconds - seconds
                work_of[name] = seconds / (each.asked - asked) * 1e3
            for name in servers:
                ratio = times[name] / times[SAVED_MODEL]
                promised = ""
                if (work, name) == ("16", LITERT):
                    promised = f" (promised: {AT_MOST})"
                yield (
                    f"1 x {work} ids behind KServe, {name}: "
                    f"{times[name] / len(bodies):.2f} ms a request, "
                    f"{ratio:.2f} x the SavedModel's{promised}; processor "
                    f"{work_of[name]:.2f} ms, "
                    f"{work_of[name] / work_of[SAVED_MODEL]:.2f} x"
                )
