"""Asks KServe's model server around an export, again and again: `make soak`.

    python tests/recipes/soak.py --requests 200000 --swaps 10
    python tests/recipes/soak.py --format litert --requests 20000 --swaps 800

Client threads send texts of every length, ids, and, one time in seven, bodies
that are none, or that the model does not take; each answer is compared with
Keras's own, computed before. LiteRT and ONNX files have ids alone: there rows
of length 0 are among the bad ones. At even distances
new versions appear, of two models in turn; many of LiteRT, for what breaks an
interpreter shows in one that still has to make room.
Prints what came of it as JSON; exit status 1 where anything went wrong, or, in
a run of 20 000, where the memory grew. The
server is at 127.0.0.1, on a port that the system chose, and ended by its pid.
"""

import argparse
import collections
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from kserve_server import start, stop

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

THREADS = 8
TOLERANCE = 1e-5
WIDTH = 64
SUFFIXES = {"saved_model": "", "litert": ".tflite", "onnx": ".onnx"}
# Of the server's memory since 3 tenths of the requests: a share, or what one
# body of the largest size takes, in pieces and as one.
GROWTH, BODY = 0.05, 2 * 2**24
WORDS = "the student who failed exam received a warning and was glad".split()
BAD = {
    "no body": b"",
    "not JSON": b'{"instances": ["the',
    "invalid UTF-8": b'{"instances": ["the \xff\xfe student"]}',
    "half a surrogate": b'{"instances": ["\\ud800"]}',
    "1 MB of text": json.dumps({"instances": ["word " * 200_000]}).encode(),
    "1 MB of nothing": b" " * 1_000_000,
    "more than 16 MB": b" " * (2**24 + 1),
    "16 MB of lists": b'{"instances": [[]' + b",[]" * 5_500_000 + b"]}",
    "too many rows": json.dumps({"instances": ["a"] * 2000}).encode(),
    "nested deep": b'{"instances": [' + b"[" * 900 + b"]" * 900 + b"]}",
    "no object": b"null",
    "no instances": b'{"rows": ["the"]}',
    "empty instances": b'{"instances": []}',
    "a number": b'{"instances": [1]}',
    "another rank": b'{"instances": [["the"]]}',
    "another signature": b'{"instances": ["a"], "signature_name": "x"}',
    "rows and columns": b'{"instances": ["a"], "inputs": ["a"]}',
    "no column": b'{"inputs": "a"}',
}
BAD_IDS = {
    "an unknown id": [([9999], 1)],
    "an unknown id in a long row": [([1] * 300 + [9999], 301)],
    "no id": [(["the"], 1)],
    "rows of several lengths": [([1], 1), ([1, 2], 2)],
    "ids of another rank": [([[1]], 1)],
}
EMPTY_IDS = {  # padding to TensorFlow
    "an empty row": [([], 0)],
    "empty rows": [([], 0)] * 3,
    "an empty row of length 1": [([], 1)],
}


def bad_bodies(form):
    """Bodies that are refused, by what is wrong with them."""
    bodies = dict(BAD)
    signature = signature_of_ids(form)
    rows = BAD_IDS if form == "saved_model" else {**BAD_IDS, **EMPTY_IDS}
    for what, some in rows.items():
        for by_column in (False, True):
            body = body_of(*zip(*some, strict=True), by_column)
            bodies[f"{what}, {by_column}"] = json.dumps({**body, **signature})
    body = {"inputs": {"ids": [[1], [2]], "lengths": [1]}, **signature}
    return {**bodies, "columns that differ": json.dumps(body)}


def signature_of_ids(form):
    """What of a body names the signature that takes ids and their lengths."""
    return {} if form == "onnx" else {"signature_name": "from_ids"}


def body_of(ids, lengths, by_column):
    """The body that asks for some rows of ids."""
    if by_column:
        return {"inputs": {"ids": ids, "lengths": lengths}}
    rows = zip(ids, lengths, strict=True)
    return {"instances": [{"ids": row, "lengths": n} for row, n in rows]}


def models_of(tokenizer):
    """A model of texts, and what is behind its tokens."""
    import keras
    from keras import layers, ops

    import keras_posenc as kp

    embed = layers.Embedding(tokenizer.vocabulary_size(), WIDTH, mask_zero=True)
    behind = [
        kp.PositionalEncoding(),
        kp.TransformerEncoder(2, num_heads=2, intermediate_dim=64),
        kp.Pooling1D("mean"),
        layers.Dense(2, activation="softmax", name="scores"),
    ]

    def model(inputs, x):
        for layer in behind:
            x = layer(x)
        return keras.Model(inputs, x)

    text = keras.Input((), dtype="string", name="text")
    ids = keras.Input((None,), dtype="int32", name="ids")
    lengths = keras.Input((), dtype="int32", name="lengths")
    places = ops.cumsum(ops.ones_like(ids), axis=1)  # the first is 1
    real = ops.less_equal(places, ops.expand_dims(lengths, -1))
    return {
        "serving_default": model(text, embed(tokenizer(text))),
        "from_ids": model([ids, lengths], embed(ops.where(real, ids, 0))),
    }


def export_versions(folder, form):
    """Two versions of a model; texts, their ids, and answers by model.

    A version is `folder / "1"`, whatever it is.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    import keras_posenc as kp

    tokenizer = kp.WordpieceTokenizer.learn([" ".join(WORDS)] * 3, 60)
    rng = random.Random(0)
    texts = [
        " ".join(rng.choices([*WORDS, "Ünïcödé", "🙂", "?!"], k=length))
        for length in (*range(40), *(rng.randrange(40, 400) for _ in range(60)))
    ]
    rows = [
        [int(i) for i in np.asarray(tokenizer(tf.constant([text])))[0]]
        for text in texts
    ]
    answers = []
    for version in (1, 2):
        keras.utils.set_random_seed(version)
        models = models_of(tokenizer)
        path = folder / str(version)
        if form == "saved_model":
            kp.export_saved_model(
                models["serving_default"],
                path,
                version=version,
                signatures=models,
                verbose=False,
            )
        elif form == "litert":
            made = kp.export_litert(
                models["from_ids"],
                path.with_suffix(".tflite"),
                signatures={"from_ids": models["from_ids"]},
                verbose=False,
            )
            made.path.rename(path)
        else:
            made = kp.export_onnx(
                models["from_ids"], path.with_suffix(".onnx"), verbose=False
            )
            made.path.rename(path)
        predict = models["serving_default"].predict
        answers.append(
            [predict(tf.constant([text]), verbose=0)[0] for text in texts]
        )
    difference = np.abs(np.subtract(*answers)).max(axis=1).min()
    assert difference > 10 * TOLERANCE  # else no swap could be seen
    return texts, rows, answers


def resident(pid):
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Soak:
    """What the clients share."""

    def __init__(self, url, form, count, of_texts, swaps, swap):
        self.url, self.form, self.swap = url, form, swap
        self.bad = bad_bodies(form)
        self.bad_names = sorted(self.bad)
        # Half of the bad ones, for they alone broke a runtime.
        self.bad_names += 6 * [name for name in self.bad if "empty row" in name]
        self.texts, self.rows, self.answers = of_texts
        self.swaps = {
            count * 9 * number // (10 * swaps): number
            for number in range(1, swaps + 1)
        }
        self.left = iter(range(count))
        self.count = count
        self.lock = threading.Lock()
        self.found = collections.Counter()
        self.wrong = []
        self.last = []

    def client(self, number):
        import requests

        session = requests.Session()
        rng = random.Random(number)
        while True:
            with self.lock:
                index = next(self.left, None)
            if index is None:
                return
            if index in self.swaps:
                self.swap(self.swaps[index])
            try:
                outcome, problem = self.ask(session, rng)
            except Exception as error:
                outcome, problem = "failed", repr(error)
            with self.lock:
                self.found[outcome] += 1
                if problem:
                    self.wrong.append(problem[:500])
                if outcome.startswith("model"):
                    self.last = [*self.last[-31:], outcome]

    def ask(self, session, rng):
        """One request; what came of it, and what was wrong with that."""
        import numpy as np

        if rng.random() < 0.15:
            name = rng.choice(self.bad_names)
            reply = session.post(
                f"{self.url}:predict",
                self.bad[name],
                headers={"Content-Type": "application/json"},
                timeout=60,
            )
            is_right = 400 <= reply.status_code < 500 and reply.json()["error"]
            return f"bad: {reply.status_code}", (
                None if is_right else f"{name}: {reply.status_code}"
            )
        body = {}
        chosen = rng.choices(range(len(self.texts)), k=rng.randint(1, 4))
        if self.form != "saved_model" or rng.random() < 0.2:
            rows = [self.rows[i] for i in chosen]
            lengths = [*map(len, rows)]
            # As servers pad: with anything, behind the length.
            least = 0 if self.form == "saved_model" else 1
            longest = max(least, *lengths) + rng.randrange(4)
            ids = [row + [1] * (longest - len(row)) for row in rows]
            body = body_of(ids, lengths, rng.random() < 0.5)
            body.update(signature_of_ids(self.form))
        else:
            form = rng.choice(["instances", "inputs"])
            body[form] = [self.texts[i] for i in chosen]
        reply = session.post(f"{self.url}:predict", json=body, timeout=60)
        if reply.status_code != 200:
            return "failed", f"{reply.status_code}: {reply.text[:200]}"
        answer = "outputs" if "inputs" in body else "predictions"
        got = np.array(reply.json()[answer])
        model = self.model_of(chosen, got)
        if model:
            return f"model {model}", None
        return "wrong", f"{body}: {got.tolist()}"

    def model_of(self, chosen, got):
        """The number of the model whose answers these are, or None."""
        import numpy as np

        for model, own in enumerate(self.answers, 1):
            wanted = np.array([own[i] for i in chosen])
            if got.shape == wanted.shape and (
                np.abs(got - wanted).max() <= TOLERANCE
            ):
                return model
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=SUFFIXES, default="saved_model")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--swaps", type=int, default=10)
    parser.add_argument("--settled", type=int, help="by default 3 tenths")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        Path(name, "log").open("w") as log,
    ):
        folder = Path(name)
        of_texts = export_versions(folder, options.format)
        (folder / "next").mkdir()
        served = folder / f"served{SUFFIXES[options.format]}"
        for number in range(options.swaps + 1):  # the models, in turn
            version = folder / str(1 + number % 2)
            following = folder / "next" / str(1 + number)
            if version.is_dir():
                shutil.copytree(version / version.name, following)
            else:
                shutil.copyfile(version, following)

        def swap(number):
            following = folder / "next" / str(1 + number)
            is_folder = options.format == "saved_model"
            following.rename(served / following.name if is_folder else served)

        if options.format == "saved_model":
            served.mkdir()
        swap(0)
        process, url = start(served, log)
        try:
            began = time.monotonic()
            soak = Soak(
                url,
                options.format,
                options.requests,
                of_texts,
                options.swaps,
                swap,
            )
            clients = [
                threading.Thread(target=soak.client, args=(number,))
                for number in range(THREADS)
            ]
            for client in clients:
                client.start()
            settled = options.settled or 3 * options.requests // 10
            memory: list[int] = []
            while any(client.is_alive() for client in clients):
                if sum(soak.found.values()) >= settled:
                    memory.append(resident(process.pid))
                time.sleep(0.1)
            for client in clients:
                client.join()
            seconds = time.monotonic() - began
        finally:
            stop(process)
    # Medians of a tenth of the run each: while a version loads there are two
    # in memory, which is a peak of some hundred milliseconds, and no growth.
    tenth = max(1, len(memory) // 10)
    levels = [
        statistics.median(memory[begin : begin + tenth])
        for begin in range(0, len(memory) - tenth + 1, tenth)
    ]
    growth = max(levels) / levels[0] - 1
    result = {
        **dict(sorted(soak.found.items())),
        "problems": soak.wrong[:5],
        "problem_count": len(soak.wrong),
        "last_are_of_the_last_version": set(soak.last)
        == {f"model {1 + options.swaps % 2}"},
        "memory_mb": [round(level / 1e6) for level in levels],
        "memory_peak_mb": round(max(memory) / 1e6),
        "memory_growth": round(growth, 4),
        "seconds": round(seconds, 1),
    }
    print(json.dumps(result, indent=2))
    # A short run has not settled.
    allowed = max(GROWTH * levels[0], BODY)
    has_grown = options.requests >= 20_000 and max(levels) - levels[0] > allowed
    return int(
        bool(soak.wrong)
        or has_grown
        or not result["last_are_of_the_last_version"]
    )


if __name__ == "__main__":
    sys.exit(main())
