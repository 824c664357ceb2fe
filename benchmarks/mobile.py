"""Times LiteRT files beside their peers: `python benchmarks/mobile.py`.

Four blocks of width 256 on one text of 128 tokens. Ratios of medians from one
process, the contestants taking turns, on two threads; and of the processor's
time on one thread, which other programs disturb less. Needs
`pip install 'keras-posenc[bench,onnx]'` and takes about two minutes.
"""

import argparse
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _contest import Work, take_turns

LENGTH, VOCABULARY, DIM = 128, 8000, 256
LIMITS = {
    ("LiteRT float32", "ONNX Runtime float32"): 1.10,
    ("LiteRT int8", "ONNX Runtime int8"): 1.15,
    ("LiteRT float32", "LiteRT float32, static"): 1.10,
    ("LiteRT int8", "LiteRT int8, static"): 1.10,
    ("LiteRT float32, static", "keras-hub, exported by Keras"): 0.90,
}
Runner = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rounds", type=int, default=60, help="turns of each contestant"
    )
    options = parser.parse_args()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from rich.console import Console
    from rich.table import Column, Table

    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCABULARY, (20, 1, LENGTH)).astype("int32")
    with (
        tempfile.TemporaryDirectory() as folder,
        Console(stderr=True).status("Exporting ..."),
    ):
        files, model = export(Path(folder))
        two, one = (
            {name: runner(path, n) for name, path in files.items()}
            for n in (2, 1)
        )
        wall = take_turns(asked(two, ids[0]), options.rounds)
        cpu = take_turns(
            asked(one, ids[0]), options.rounds, clock=time.process_time
        )
        wanted = [model(row).numpy() for row in ids]
        errors = {
            name: max(
                float(np.max(np.abs(run(row) - right)))
                for row, right in zip(ids, wanted, strict=True)
            )
            for name, run in one.items()
            if "keras-hub" not in name
        }
    numbers = ("2 threads, ms", "1 thread, processor ms", "worst difference")
    table = Table("", *(Column(n, justify="right") for n in numbers))
    for name in files:
        error = f"{errors[name]:.1e}" if name in errors else "-"
        table.add_row(name, f"{wall[name]:.2f}", f"{cpu[name]:.2f}", error)
    Console().print(table)
    table = Table(
        "ratio",
        *(Column(n, justify="right") for n in (*numbers[:2], "at most")),
    )
    for (name, peer), limit in LIMITS.items():
        if peer in files:
            table.add_row(
                f"{name} / {peer}",
                f"{wall[name] / wall[peer]:.2f}",
                f"{cpu[name] / cpu[peer]:.2f}",
                f"{limit:.2f}",
            )
    Console().print(table)


def export(folder: Path) -> tuple[dict[str, Path], Any]:
    """Every contestant's file, and the model that ours are of."""
    import keras
    from onnxruntime.quantization import quantize_dynamic

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(VOCABULARY, DIM, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(4, num_heads=4, intermediate_dim=1024),
            kp.MaskedAveragePooling1D(),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )
    silent = {"verify": False, "verbose": False}
    static = {"serving_default": (model, {"ids": (1, LENGTH)})}
    files = {}
    for mode in ("float32", "int8"):
        quantization = None if mode == "float32" else mode
        for suffix, signatures in (("", None), (", static", static)):
            name = f"LiteRT {mode}{suffix}"
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
    files["ONNX Runtime int8"] = folder / "int8.onnx"
    quantize_dynamic(
        files["ONNX Runtime float32"],
        files["ONNX Runtime int8"],
        # The encoding's table must stay as it is.
        op_types_to_quantize=["MatMul"],
        per_channel=True,
    )
    peer = folder / "keras_hub.tflite"
    try:
        peer_model().export(str(peer), format="litert", verbose=False)
    except Exception as error:  # whatever the converter raises
        print(f"keras-hub's layers do not export: {error}".splitlines()[0])
    else:
        files["keras-hub, exported by Keras"] = peer
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


def asked(runners: dict[str, Runner], ids: np.ndarray) -> dict[str, Work]:
    return {name: functools.partial(run, ids) for name, run in runners.items()}


if __name__ == "__main__":
    main()
