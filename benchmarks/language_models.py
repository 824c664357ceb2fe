"""Times a chat model's exported files compared with other libraries.

    python benchmarks/language_models.py FOLDER --gguf FILE --peer PYTHON

FOLDER and FILE hold one Llama model, SmolLM2-135M-Instruct in `RESULTS.md`, as
Hugging Face's files and for llama.cpp. PYTHON has transformers, CTranslate2,
llama-cpp-python and gguf. All read the same 128 ids, and write 128 tokens;
LiteRT-LM's engine reads 128 ids of its own, and says itself how long it took.

With `--package a.litertlm --package b.litertlm --only llama.cpp` it times
packages of `export_litertlm` next to llama.cpp alone.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from _command import above_0, machine
from _contest import THREADS, Contest, Peer, Size, Work, hold
from _language_models import NAMES, TRANSFORMERS, numbers
from _report import report

SAVED_MODEL, LITERT, LITERT_INT8 = "SavedModel", "LiteRT", "LiteRT, int8"
READING = "reading the float32 weights once a token"
FILES = SAVED_MODEL, LITERT, LITERT_INT8, READING
LITERT_LM = "LiteRT-LM"
SIZE = Size(batch=1, seq=128, steps=128)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gguf", type=Path, required=True, metavar="FILE")
    parser.add_argument("--peer", required=True, metavar="PYTHON")
    parser.add_argument(
        "--package", type=Path, action="append", default=[], metavar="FILE"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="how the names of contestants begin",
    )
    parser.add_argument("--steps", type=above_0, default=128, metavar="N")
    parser.add_argument("--rounds", type=above_0, default=3, metavar="N")
    parser.add_argument("--to", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    os.environ["LANGUAGE_MODEL"] = str(options.folder)
    os.environ["GGUF"] = str(options.gguf)
    size = dataclasses.replace(SIZE, steps=options.steps)
    only = tuple(options.only) or ("",)
    from rich.progress import Progress

    with contextlib.ExitStack() as stack:
        peers = {
            name: stack.enter_context(Peer(name, options.peer))
            for name in NAMES
            if name.startswith(only)
        }
        exports = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contestants: dict[str, Work] = {}
        if any(name.startswith(only) for name in FILES):
            contestants |= files(options.folder, exports, size, only)
        for path in options.package:
            name = f"{LITERT_LM}, {path.stem}"
            contestants[name] = functools.partial(in_engine, path, size)
        for name, peer in peers.items():
            contestants[name] = functools.partial(peer.run, size)
        goals = {
            (name, TRANSFORMERS): 0.67
            for name in (SAVED_MODEL, LITERT)
            if {name, TRANSFORMERS} <= {*contestants}
        }
        contest = Contest(
            f"a token of {size.steps} after {size.seq}",
            contestants,
            goals,
            parts=size.steps,
        )
        progress = stack.enter_context(Progress())
        contests = [hold(contest, options.rounds, progress)]
    found = {"machine": machine(options), "contests": contests}
    report("language_models", found, options.to)


def in_engine(path: Path, size: Size) -> float:
    """Returns the milliseconds that LiteRT-LM takes, without loading."""
    import litert_lm

    litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)
    found = litert_lm.Benchmark(
        str(path),
        backend=litert_lm.Backend.CPU(thread_count=THREADS),
        prefill_tokens=size.seq,
        decode_tokens=size.steps,
        cache_dir=":nocache",
    ).run()
    assert found.last_decode_token_count == size.steps, found
    seconds = size.seq / found.last_prefill_tokens_per_second
    return 1e3 * (seconds + size.steps / found.last_decode_tokens_per_second)


def files(
    folder: Path, exports: Path, size: Size, only: tuple[str, ...]
) -> dict[str, Work]:
    """Returns what runs the exported files whose names begin so."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    import keras_posenc as kp

    silent: dict[str, Any] = {"verify": False, "verbose": False}
    model = kp.load_hugging_face(folder, verbose=False).model
    generator = kp.Generator(model, max_length=size.steps)
    ids = numbers(size)
    contestants: dict[str, Work] = {}
    if SAVED_MODEL.startswith(only):
        path = kp.export_saved_model(
            generator, exports / "model", **silent
        ).path
        signature = tf.saved_model.load(path).signatures["serving_default"]
        contestants[SAVED_MODEL] = functools.partial(
            signature, ids=tf.constant(ids)
        )
    for name, quantization in ((LITERT, None), (LITERT_INT8, "int8")):
        if not name.startswith(only):
            continue
        path = exports / f"{name}.tflite"
        kp.export_litert(generator, path, quantization=quantization, **silent)
        interpreter = Interpreter(str(path), num_threads=THREADS)
        runner = interpreter.get_signature_runner("serving_default")
        contestants[name] = functools.partial(runner, ids=ids)
    if READING.startswith(only):
        count = sum(np.prod(each.shape) for each in model.weights)
        contestants[READING] = reading(int(count), size.steps)
    return contestants


def reading(count: int, steps: int) -> Work:
    """Returns what reads so many numbers as often as tokens are written."""
    parts = np.array_split(np.ones(count, "float32"), THREADS)
    threads = ThreadPoolExecutor(THREADS)

    def run() -> None:
        for _ in range(steps):
            list(threads.map(np.sum, parts))

    return run


if __name__ == "__main__":
    main()
