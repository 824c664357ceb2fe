"""Times a loaded sentence encoder beside sentence-transformers.

    python benchmarks/pretrained.py all-MiniLM-L6-v2 --peer PYTHON

PYTHON has sentence-transformers, fastembed and onnx. Ours are the files that
the folder is exported to; theirs PyTorch, and ONNX Runtime on PyTorch's own
export. All but the last work start from the same ids.
"""

import argparse
import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _command import above_0, machine
from _contest import THREADS, US, Contest, Peer, Size, Work, hold
from _fastembed import NAME as FASTEMBED
from _report import report
from _sentence_transformers import (
    DOCUMENTS,
    NAMES,
    ONNX,
    TEXTS,
    TORCH,
    documents,
    numbers,
    texts,
)

SAVED_MODEL, LITERT, OURS_ONNX = "SavedModel", "LiteRT", "ONNX Runtime"
VARIED = tuple(np.random.default_rng(1).integers(16, 129, 32).tolist())
SIZES = {
    "1 × 16": Size(batch=1, seq=16),
    "1 × 128": Size(batch=1, seq=128),
    "32 × 128, varied": Size(batch=32, seq=max(VARIED), lengths=VARIED),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", required=True, metavar="PYTHON")
    parser.add_argument("--rounds", type=above_0, default=15, metavar="N")
    parser.add_argument("--to", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    os.environ["ENCODER"] = str(options.folder)
    from rich.progress import Progress

    with contextlib.ExitStack() as stack:
        peers = {
            name: stack.enter_context(Peer(name, options.peer))
            for name in (*NAMES, FASTEMBED)
        }
        exports = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        works = list(encoders(options.folder, exports, peers))
        progress = stack.enter_context(Progress())
        contests = [hold(each, options.rounds, progress) for each in works]
    found = {"machine": machine(options), "contests": contests}
    report("pretrained", found, options.to)


def encoders(
    folder: Path, exports: Path, peers: dict[str, Peer]
) -> Iterator[Contest]:
    import onnxruntime
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    import keras_posenc as kp

    silent: dict[str, Any] = {"verify": False, "verbose": False}
    model = kp.load_hugging_face(folder, from_ids=True, verbose=False)
    path = kp.export_saved_model(model, exports / "ids", **silent).path
    by_ids = tf.saved_model.load(path).signatures["serving_default"]
    path = kp.export_litert(model, exports / "ids.tflite", **silent).path
    interpreter = Interpreter(str(path), num_threads=THREADS)
    litert = interpreter.get_signature_runner("serving_default")
    path = kp.export_onnx(model, exports / "ids.onnx", **silent).path
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(str(path), options)
    (named,) = {each.name for each in session.get_inputs()}
    for work, size in SIZES.items():
        ids = numbers(size)
        given = tf.constant(ids)
        contestants: dict[str, Work] = {
            SAVED_MODEL: functools.partial(by_ids, **{named: given}),
            LITERT: functools.partial(litert, **{named: ids}),
            OURS_ONNX: functools.partial(session.run, None, {named: ids}),
        }
        for name in (TORCH, ONNX):
            contestants[name] = functools.partial(peers[name].run, size)
        goals = {
            "1 × 16": {(LITERT, TORCH): 1.00},
            "32 × 128, varied": {(SAVED_MODEL, TORCH): 1.00},
        }.get(work, {})
        yield Contest(f"{work}, ids", contestants, goals)
    model = kp.load_hugging_face(folder, verbose=False)
    path = kp.export_saved_model(model, exports / "texts", **silent).path
    by_texts = tf.saved_model.load(path).signatures["serving_default"]
    vocabulary = (folder / "vocab.txt").read_text().splitlines()
    for work, size in SIZES.items():
        strings = tf.constant(texts(size, vocabulary))
        (named,) = by_texts.structured_input_signature[1]
        yield Contest(
            f"{work}, texts",
            {
                SAVED_MODEL: functools.partial(by_texts, **{named: strings}),
                TEXTS: functools.partial(peers[TEXTS].run, size),
            },
            {},
        )
    size = Size(batch=1000)
    given_texts = documents(size)
    yield Contest(
        "1,000 docstrings, texts",
        {
            US: lambda: model.encode_document(given_texts, verbose=0),
            **{
                name: functools.partial(peers[name].run, size)
                for name in (DOCUMENTS, FASTEMBED)
            },
        },
        {(US, DOCUMENTS): 0.67},
        rounds=3,
    )


if __name__ == "__main__":
    main()
