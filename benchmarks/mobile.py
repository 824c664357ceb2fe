"""Times LiteRT files beside their peers: `python benchmarks/mobile.py`.

Four blocks of width 256 on one text of 128 tokens, by one thread and by two,
from files of any length and from files of this one (static). A whole run is
kept in `RESULTS.md` and `results.json`, and takes about two minutes. Needs
`pip install 'keras-posenc[bench,onnx]'`.
"""

import functools
import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _command import Kept, machine, parse
from _contest import Contest
from _report import report

LENGTH, VOCABULARY, DIM = 128, 8000, 256
FLOATS, INTS = "LiteRT float32", "LiteRT int8"
SAME_BY_ALL = {
    (FLOATS, f"{FLOATS}, static"): 1.10,
    (INTS, f"{INTS}, static"): 1.08,
}
# What is aimed at, by the number of threads.
MOST = {
    1: {
        (FLOATS, "ONNX Runtime float32"): 1.00,
        (INTS, "ONNX Runtime int8"): 0.90,
        **SAME_BY_ALL,
    },
    2: {
        (FLOATS, "ONNX Runtime float32"): 1.15,
        (INTS, "ONNX Runtime int8"): 1.15,
        **SAME_BY_ALL,
    },
}
# One thread is told by its own time, which other programs disturb less.
CLOCKS = {1: time.process_time, 2: time.perf_counter}
PEER = "keras-hub, exported by Keras"
Runner = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    works = {
        f"by {threads}": functools.partial(by, threads) for threads in MOST
    }
    options = parse(__doc__, works, rounds=30, peers=())
    kept = Kept("mobile", options)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCABULARY, (20, 1, LENGTH)).astype("int32")
    with tempfile.TemporaryDirectory() as folder, kept.progress:
        files, model = export(Path(folder))
        contests = kept.contests(works, files, ids[0])
        differences = {}
        for name, path in files.items():
            if name != PEER:
                run = runner(path, 1)
                differences[name] = max(
                    float(np.max(np.abs(run(row) - model(row)))) for row in ids
                )
    runtime = "ai-edge-litert"
    facts = machine(options)
    facts[runtime] = importlib.metadata.version(runtime)
    found = {
        "machine": facts,
        "contests": contests,
        "differences": differences,
    }
    report("mobile", found, options.to)


def by(
    threads: int, files: dict[str, Path], ids: np.ndarray
) -> Iterator[Contest]:
    """One text, by so many threads."""
    yield Contest(
        f"1 × {LENGTH} from a file, threads: {threads}",
        {
            name: functools.partial(runner(path, threads), ids)
            for name, path in files.items()
        },
        MOST[threads],
        clock=CLOCKS[threads],
    )


def export(folder: Path) -> tuple[dict[str, Path], Any]:
    """Every contestant's file, and the model that ours are of."""
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(VOCABULARY, DIM, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(4, num_heads=4, intermediate_dim=1024),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )
    silent = {"verify": False, "verbose": False}
    static = {"serving_default": (model, {"ids": (1, LENGTH)})}
    files = {}
    for kind, quantization in ((FLOATS, None), (INTS, "int8")):
        for suffix, signatures in (("", None), (", static", static)):
            name = f"{kind}{suffix}"
            files[name] = kp.export_litert(
                model,
                folder / f"{name}.tflite",
                signatures=signatures,
                quantization=quantization,
                **silent,
            ).path
    files["ONNX Runtime float32"] = kp.export_onnx(
        model, folder / "float32.onnx", **silent
    ).path
    files["ONNX Runtime int8"] = kp.export_onnx(
        model, folder / "int8.onnx", quantization="int8", **silent
    ).path
    peer = folder / "keras_hub.tflite"
    try:
        peer_model().export(str(peer), format="litert", verbose=False)
    except Exception as error:  # whatever the converter raises
        print(f"keras-hub's layers do not export: {error}".splitlines()[0])
    else:
        files[PEER] = peer
    return files, model


def peer_model() -> Any:
    """The same of keras-hub's layers, of the one length that it exports."""
    import keras
    import keras_hub

    ids = keras.Input((LENGTH,), batch_size=1, dtype="int32", name="ids")
    x = keras.layers.Embedding(VOCABULARY, DIM, mask_zero=True)(ids)
    x = x + keras_hub.layers.SinePositionEncoding()(x)
    for _ in range(4):
        x = keras_hub.layers.TransformerEncoder(1024, 4)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, keras.layers.Dense(2, activation="softmax")(x))


def runner(path: Path, threads: int) -> Runner:
    """A function from ids to scores."""
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options)
        return lambda ids: session.run(None, {"ids": ids})[0]
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    (given,), (found,) = (
        interpreter.get_input_details(),
        interpreter.get_output_details(),
    )
    interpreter.resize_tensor_input(given["index"], (1, LENGTH))
    interpreter.allocate_tensors()

    def run(ids: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(given["index"], ids)
        interpreter.invoke()
        return interpreter.get_tensor(found["index"])

    return run


if __name__ == "__main__":
    main()
