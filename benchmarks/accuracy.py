"""Measures the encoding's error: `python benchmarks/accuracy.py`.

Against float64 values whose angles are exact, at positions up to 2**24: the
layer under several dtypes, then inside LiteRT files of dynamic length as the
converter writes them in float32, int8 and float16. Needs
`pip install 'keras-posenc[bench]'` for keras-hub, and takes about a minute.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

WIDTHS = (1, 2, 3, 4, 63, 64, 512, 4096)
RANGES = ((0, 4096), (4096, 262_144), (262_144, 2**24))
COUNT = 1500  # positions drawn from each range


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from rich.console import Console
    from rich.progress import track

    console = Console()
    rng = np.random.default_rng(0)
    table = _table("Largest error of the layer")
    for dtype in ("float32", "mixed_bfloat16", "mixed_float16"):
        for dim in track(WIDTHS, description=dtype, transient=True):
            table.add_row(
                dtype,
                str(dim),
                *(_layer_error(rng, dtype, dim, *span) for span in RANGES),
            )
        table.add_section()
    for dtype in ("float32", "mixed_bfloat16"):
        table.add_row(
            f"keras-hub, {dtype}",
            "512",
            *(_keras_hub_error(rng, dtype, 512, *span) for span in RANGES),
        )
    console.print(table)
    table = _table("Largest error inside a LiteRT file of dynamic length")
    for mode in track(
        ("float32", "int8", "float16"), description="LiteRT", transient=True
    ):
        for dim in (63, 512):
            answer = _litert(mode, dim)
            table.add_row(
                mode,
                str(dim),
                *(_litert_error(rng, answer, dim, *span) for span in RANGES),
            )
    console.print(table)


def _table(title: str) -> Any:
    from rich.table import Table

    return Table(
        "dtype", "width", "below 4 096", "262 144", "2**24", title=title
    )


def _positions(rng: np.random.Generator, low: int, high: int) -> np.ndarray:
    return rng.integers(low, high, (1, COUNT)).astype("int32")


def _show(values: np.ndarray, positions: np.ndarray) -> str:
    from tests import reference

    exact = reference.positional_encoding(positions, values.shape[-1])
    return f"{np.abs(values.astype('float64') - exact).max():.1e}"


def _layer_error(
    rng: np.random.Generator, dtype: str, dim: int, low: int, high: int
) -> str:
    from keras import ops

    import keras_posenc as kp

    positions = _positions(rng, low, high)
    layer = kp.PositionalEncoding(merge_mode=None, dtype=dtype)
    values = layer(np.zeros((1, COUNT, dim), "float32"), positions=positions)
    return _show(ops.convert_to_numpy(ops.cast(values, "float32")), positions)


def _keras_hub_error(
    rng: np.random.Generator, dtype: str, dim: int, low: int, high: int
) -> str:
    import keras_hub
    from keras import ops

    layer = keras_hub.layers.SinePositionEncoding(dtype=dtype)
    start = int(rng.integers(low, high - COUNT))
    values = layer(np.zeros((1, COUNT, dim), "float32"), start_index=start)
    positions = np.arange(start, start + COUNT)[np.newaxis]
    return _show(ops.convert_to_numpy(ops.cast(values, "float32")), positions)


def _litert(mode: str, dim: int) -> Any:
    """A function from positions to encodings, in the LiteRT runtime."""
    import keras
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    import keras_posenc as kp
    from keras_posenc.export.graphs.writing import write_saved_model
    from keras_posenc.export.signatures.resolve import resolve_signatures

    inputs = keras.Input((None, dim), name="inputs")
    positions = keras.Input((None,), dtype="int32", name="positions")
    layer = kp.PositionalEncoding(merge_mode=None, name="encoding")
    model = keras.Model([inputs, positions], layer(inputs, positions=positions))
    with tempfile.TemporaryDirectory() as folder:
        write_saved_model(resolve_signatures(model), Path(folder) / "model")
        converter = tf.lite.TFLiteConverter.from_saved_model(f"{folder}/model")
        if mode != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if mode == "float16":
            converter.target_spec.supported_types = [tf.float16]
        content = converter.convert()
    run = Interpreter(model_content=content).get_signature_runner()
    return lambda positions: run(
        inputs=np.zeros((*positions.shape, dim), "float32"),
        positions=positions,
    )["encoding"]


def _litert_error(
    rng: np.random.Generator, answer: Any, dim: int, low: int, high: int
) -> str:
    positions = _positions(rng, low, high)
    return _show(answer(positions), positions)


if __name__ == "__main__":
    main()
