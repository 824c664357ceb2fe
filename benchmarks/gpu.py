"""JAX on a GPU, beside the card's own matrix products: `make bench-gpu`.

Twelve blocks in bfloat16 without dropout, at inference and in training with
Adam. A run is kept in `RESULTS.md` and `results.json`, but not one of `--cpu`,
which tries the program itself at sizes that say nothing of speed.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
from _command import above_0
from _contest import Work, take_turns
from _report import report

LAYERS, DIM, HEADS, TOKENS = 12, 1024, 16, 2**14
LENGTHS = 512, 2048, 8192
PRODUCT, REPEATS = 8192, 10


@dataclasses.dataclass
class Load:
    """Something to run, and how much it is.

    Attributes:
        work: What is done.
        shape: Of what.
        run: Does it, and waits for it.
        tokens: How many are read; none by plain matrix products.
        operations: Of the matrix products in it.
        flash: Whether attention is one operation of cuDNN.
    """

    work: str
    shape: str
    run: Work
    tokens: int
    operations: float
    flash: bool


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=above_0, default=15, metavar="N")
    parser.add_argument("--cpu", action="store_true", help="try the program")
    parser.add_argument(
        "--to",
        type=Path,
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="where a run on a GPU is kept",
    )
    options = parser.parse_args()
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        import jax
    except ImportError:
        sys.exit("JAX is not installed here: `make bench-gpu` installs it.")
    import keras
    from rich.progress import Progress

    device = jax.devices()[0]
    if device.platform != "gpu" and not options.cpu:
        sys.exit(f"No GPU: JAX {jax.__version__} finds only {jax.devices()}")
    rows = []
    with Progress() as progress:
        task = progress.add_task(device.device_kind, total=1 + 2 * len(LENGTHS))
        for load in loads(16 if options.cpu else 1):
            (took,) = take_turns({"": load.run}, options.rounds).values()
            rows.append(
                {
                    "work": load.work,
                    "shape": load.shape,
                    "milliseconds": took,
                    "tokens/s": load.tokens / took * 1e3,
                    "TFLOP/s": load.operations / took / 1e9,
                    "flash": load.flash,
                }
            )
            progress.advance(task)
    machine = {
        "processor": device.device_kind,
        "jax": jax.__version__,
        "keras": keras.__version__,
    }
    found = {"machine": machine, "rows": rows}
    report("gpu", found, None if options.cpu else options.to)


def loads(shrink: int) -> Iterator[Load]:
    yield products(PRODUCT // shrink)
    for length in LENGTHS:
        shape = TOKENS // length, length // shrink, DIM // shrink
        yield inference(*shape)
        yield training(*shape)


def products(size: int) -> Load:
    """What the card can do: large products, each waiting for the last."""
    import jax

    x, y = (numbers(seed, (size, size)) for seed in (0, 1))

    @jax.jit
    def chain(x: Any, y: Any) -> Any:
        return jax.lax.fori_loop(0, REPEATS, lambda _, x: x @ y / size**0.5, x)

    return Load(
        work="matrix products",
        shape=f"{size} × {size}",
        run=lambda: jax.block_until_ready(chain(x, y)),
        tokens=0,
        operations=REPEATS * 2 * size**3,
        flash=False,
    )


def inference(batch: int, seq: int, dim: int) -> Load:
    import jax

    x = numbers(0, (batch, seq, dim))
    layer = encoder(x)
    variables = [
        [variable.value for variable in group]
        for group in (layer.trainable_variables, layer.non_trainable_variables)
    ]
    forward = jax.jit(lambda *given: layer.stateless_call(*given)[0])
    run = forward.lower(*variables, x).compile()
    return Load(
        work="inference",
        shape=f"{batch} × {seq}",
        run=lambda: jax.block_until_ready(run(*variables, x)),
        tokens=batch * seq,
        operations=operations(batch, seq, dim),
        flash=uses_flash(run),
    )


def training(batch: int, seq: int, dim: int) -> Load:
    import jax
    import keras
    from keras import ops

    x, goal = (numbers(seed, (batch, seq, dim)) for seed in (0, 1))
    layer = encoder(x)
    adam = keras.optimizers.Adam(1e-4)
    adam.build(layer.trainable_variables)
    fixed = [variable.value for variable in layer.non_trainable_variables]

    def loss(weights: Any, x: Any, goal: Any) -> Any:
        y, _ = layer.stateless_call(weights, fixed, x, training=True)
        return ops.mean(ops.square(ops.cast(y - goal, "float32")))

    def step(weights: Any, moments: Any, *data: Any) -> Any:
        gradients = jax.grad(loss)(weights, *data)
        return adam.stateless_apply(moments, gradients, weights)

    state = [
        [variable.value for variable in group]
        for group in (layer.trainable_variables, adam.variables)
    ]
    run = jax.jit(step, donate_argnums=(0, 1))
    run = run.lower(*state, x, goal).compile()

    def train() -> None:
        state[:] = jax.block_until_ready(run(*state, x, goal))

    return Load(
        work="training step",
        shape=f"{batch} × {seq}",
        run=train,
        tokens=batch * seq,
        operations=3 * operations(batch, seq, dim),
        flash=uses_flash(run),
    )


def encoder(x: Any) -> Any:
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    layer = kp.TransformerEncoder(
        LAYERS,
        num_heads=HEADS,
        intermediate_dim=4 * x.shape[-1],
        dropout=0.0,
        dtype="mixed_bfloat16",
    )
    layer.build(x.shape)
    return layer


def operations(batch: int, seq: int, dim: int) -> float:
    """Of the products: four projections, two of 4 × the width, attention."""
    return LAYERS * batch * seq * (24 * dim**2 + 4 * seq * dim)


def uses_flash(compiled: Any) -> bool:
    return "fmha" in compiled.as_text()


def numbers(seed: int, shape: tuple[int, ...]) -> Any:
    import jax

    return jax.random.normal(jax.random.key(seed), shape, "bfloat16")


if __name__ == "__main__":
    main()
