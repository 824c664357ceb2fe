"""Times our layers beside their peers: `python benchmarks/layers.py`.

Ratios of medians, from one process, the contestants taking turns. Needs
`pip install 'keras-posenc[bench]'` and takes about a minute.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(
        "work",
        Column("contestant", no_wrap=True),
        Column("ms", justify="right"),
        Column("ratio", justify="right"),
        title="Medians, and ratios to the first of each work",
    )
    with Console(stderr=True).status("Measuring ..."):
        for work, contestants in (
            ("add an encoding to (8, 2048, 1024)", encodings()),
            ("one block on (8, 128, 512)", blocks()),
        ):
            times = take_turns(contestants)
            first = next(iter(times.values()))
            for name, milliseconds in times.items():
                table.add_row(
                    work,
                    name,
                    f"{milliseconds:.1f}",
                    f"{milliseconds / first:.2f}",
                )
                work = ""
            table.add_section()
    Console().print(table)


def encodings() -> dict[str, Callable[[], Any]]:
    """Ways to add positions to a batch of embeddings."""
    import keras_hub
    import tensorflow as tf

    import keras_posenc as kp

    batch, seq, dim = 8, 2048, 1024
    x = tf.random.stateless_normal((batch, seq, dim), seed=(0, 0))
    other = tf.random.stateless_normal((batch, seq, dim), seed=(0, 1))
    table = tf.constant(kp.positional_encoding(5000, dim))
    ours = kp.PositionalEncoding()
    hub = keras_hub.layers.SinePositionEncoding()
    ways = {
        "plain add of two tensors": lambda x: x + other,
        "kp.PositionalEncoding": ours,
        "slice of a 5 000-row table": lambda x: x + table[:, : tf.shape(x)[1]],
        "keras_hub.SinePositionEncoding": lambda x: x + hub(x),
    }
    return {name: _compiled(way, x) for name, way in ways.items()}


def blocks() -> dict[str, Callable[[], Any]]:
    """One encoder block of the paper's size, at inference."""
    import keras_hub
    import tensorflow as tf

    import keras_posenc as kp

    x = tf.random.stateless_normal((8, 128, 512), seed=(0, 0))
    kernels = [
        tf.random.stateless_normal(shape, seed=(0, 1))
        for shape in ((512, 1536), (512, 512), (512, 2048))
    ]

    def products(x: Any) -> Any:
        """The matrix products of a block, and nothing else."""
        projected = tf.matmul(x, kernels[0])
        heads = tf.transpose(
            tf.reshape(projected[..., :512], (8, 128, 8, 64)), (0, 2, 1, 3)
        )
        scores = tf.matmul(heads, heads, transpose_b=True)
        attended = tf.reshape(tf.matmul(scores, heads), (8, 128, 512))
        x = tf.matmul(attended, kernels[1])
        return tf.matmul(tf.matmul(x, kernels[2]), kernels[2], transpose_b=True)

    ways = {
        "its matrix products alone": products,
        "kp.TransformerEncoderBlock": kp.TransformerEncoderBlock(8, 2048),
        "keras_hub.TransformerEncoder": keras_hub.layers.TransformerEncoder(
            2048, 8, dropout=0.1
        ),
    }
    return {name: _compiled(way, x) for name, way in ways.items()}


def take_turns(
    contestants: dict[str, Callable[[], Any]], rounds: int = 25
) -> dict[str, float]:
    """Median milliseconds of each, the contestants taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_ in range(rounds + 3):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            if round_ >= 3:  # the first rounds warm up
                seconds[name].append(time.perf_counter() - began)
    return {
        name: statistics.median(times) * 1e3 for name, times in seconds.items()
    }


def _compiled(way: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    import tensorflow as tf

    way(x)  # builds layers
    function = tf.function(
        way, input_signature=[tf.TensorSpec([None, None, x.shape[-1]])]
    )
    return lambda: function(x)


if __name__ == "__main__":
    main()
