"""Which positions let a decoder read longer texts than in training?

    python examples/causal_positions.py [--quick] [--out FOLDER]

A small causal model learns three tasks from rows of 64 tokens, and is tested
on rows of 64, 128, 256 and 512:

- copy: repeat a row of random symbols;
- recall: find the values of eight keys among other symbols;
- text: predict the next byte of Python's standard library, which is code and
  docstrings; the same bytes for each length.

Each kind of position has the same model, rows, number of steps and learning
rate, with several seeds. It writes a table and a picture: what was right, the
perplexity of a byte, and processor time, compared with no position.

In full it takes about an hour on two cores, with `--quick` a minute. What
is finished is kept in FOLDER/runs.json: started again, it goes on from there.
Needs matplotlib: `pip install 'keras-posenc[plot]'`.
"""

import argparse
import functools
import hashlib
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LENGTH = 64  # tokens of a row in training
LENGTHS = tuple(LENGTH * times for times in (1, 2, 4, 8))
TESTED = 2**14  # about so many tokens are tested
WIDTH, HEADS, LAYERS = 64, 4, 2
STEPS, RATE = 2000, 6e-3
SYMBOLS, KEYS = 32, 8
# Ids: bytes, then symbols, other symbols, keys, and what separates.
SYMBOL, OTHER, KEY = 128, 128 + SYMBOLS, 128 + 2 * SYMBOLS
SEPARATOR = KEY + KEYS
VOCABULARY = SEPARATOR + 1
KINDS = (
    "none",
    "sinusoidal",
    "learned",
    "randomized",
    "rotary",
    "proportional",
    "clipped",
    "xpos",
    "pose",
    "scalable",
    "interleaved",
    "alibi",
    "t5",
    "shaw",
    "transformer-xl",
    "kerple",
    "fire",
    "forgetting",
    "rotary-forgetting",
    "fourier",
    "polar",
    "contextual",
)


class Rows(NamedTuple):
    """Rows of tokens, what comes next, and where that counts: (rows, seq)."""

    ids: np.ndarray
    following: np.ndarray
    counts: np.ndarray


def copy(
    rng: np.random.Generator, rows: int, length: int, *, test: bool
) -> Rows:
    """Symbols, a separator, and the same symbols again."""
    ids = np.full((rows, length + 1), SEPARATOR, "int32")
    counts = np.zeros((rows, length), "float32")
    longest = length // 2
    for row, counted in zip(ids, counts, strict=True):
        n = longest if test else rng.integers(4, longest + 1)
        row[:n] = row[n + 1 : 2 * n + 1] = SYMBOL + rng.integers(0, SYMBOLS, n)
        counted[n : 2 * n] = 1
    return Rows(ids[:, :-1], ids[:, 1:], counts)


def recall(
    rng: np.random.Generator, rows: int, length: int, *, test: bool
) -> Rows:
    """Keys and their values among other symbols, then the keys again."""
    ids = OTHER + rng.integers(0, SYMBOLS, (rows, length + 1), "int32")
    counts = np.zeros((rows, length), "float32")
    asked = length - 2 * KEYS
    for row, counted in zip(ids, counts, strict=True):
        keys = KEY + rng.permutation(KEYS)
        values = SYMBOL + rng.integers(0, SYMBOLS, KEYS)
        places = 2 * rng.choice(asked // 2, KEYS, replace=False)
        order = rng.permutation(KEYS)
        row[places], row[places + 1] = keys, values
        row[asked:-1:2], row[asked + 1 :: 2] = keys[order], values[order]
        counted[asked::2] = 1
    return Rows(ids[:, :-1], ids[:, 1:], counts)


def text(
    rng: np.random.Generator, rows: int, length: int, *, test: bool
) -> Rows:
    """Bytes of the standard library; in tests of files not learned from."""
    source = sources(test)
    if test:  # the same bytes for every length, in longer and longer rows
        begins = np.arange(rows) * length
    else:
        begins = rng.integers(0, len(source) - length, rows)
    ids = source[begins[:, None] + np.arange(length + 1)].astype("int32")
    return Rows(ids[:, :-1], ids[:, 1:], np.ones((rows, length), "float32"))


@functools.cache
def sources(test: bool) -> np.ndarray:
    """ASCII bytes of the library's files; one file of 16 is for tests."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in sorted(root.glob("*.py")):
        name = hashlib.sha256(path.name.encode()).digest()
        content = path.read_bytes()
        if content.isascii() and (name[0] % 16 == 0) == test:
            found.append(np.frombuffer(content, "uint8"))
    return np.concatenate(found)


TITLES = {
    "copy": "Copy: right symbols, in %",
    "recall": "Recall: right values, in %",
    "text": "Text: perplexity of a byte",
}
# Of the rows of a step, so many are of each task.
TASKS: dict[str, tuple[Callable[..., Rows], int]] = {
    "copy": (copy, 6),
    "recall": (recall, 6),
    "text": (text, 4),
}


def training_rows(rng: np.random.Generator, steps: int) -> Rows:
    """Rows of all tasks, so many of each in every step."""
    parts = []
    for make, rows in TASKS.values():
        made = make(rng, rows * steps, LENGTH, test=False)
        parts.append([each.reshape(steps, rows, LENGTH) for each in made])
    return Rows(
        *(
            np.concatenate(each, axis=1).reshape(-1, LENGTH)
            for each in zip(*parts, strict=True)
        )
    )


def kinds() -> dict[str, Callable[[], Any]]:
    """Makes each kind: a layer for attention, one for the input, or both.

    What asks for a length gets the one in training.
    """
    import keras_posenc as kp

    rotary = kp.RotaryEmbedding
    combined = kp.positions.CombinedPosition
    scaling = dict[str, Any]
    proportional: scaling = {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
    }
    clipped: scaling = {"rope_type": "clipped", "clipped_pairs": 3}
    return {
        "none": lambda: None,
        "sinusoidal": kp.PositionalEncoding,
        "learned": lambda: kp.PositionEmbedding(LENGTHS[-1]),
        "randomized": lambda: (
            kp.RandomizedPositions(LENGTHS[-1]),
            kp.PositionalEncoding(),
        ),
        "rotary": rotary,
        "proportional": lambda: rotary(scaling=proportional),
        "clipped": lambda: rotary(scaling=clipped),
        "xpos": lambda: kp.positions.XPosEmbedding(LENGTH // 2),
        "pose": lambda: (
            kp.RandomizedPositions(LENGTHS[-1], draw="skip"),
            rotary(),
        ),
        "scalable": lambda: combined(
            [rotary(), kp.positions.ScalableSoftmax()]
        ),
        "interleaved": lambda: [
            rotary(),
            kp.positions.AttentionTemperature(floor_scale=LENGTH),
        ],
        "alibi": kp.AlibiBias,
        "t5": lambda: kp.RelativePositionBias(
            max_distance=LENGTH, bidirectional=False
        ),
        "shaw": lambda: kp.positions.RelativePositionEmbedding(max_distance=16),
        "transformer-xl": kp.positions.TransformerXLBias,
        "kerple": kp.positions.KerpleBias,
        "fire": lambda: kp.positions.FireBias(
            initial_threshold=LENGTH, bidirectional=False
        ),
        "forgetting": kp.positions.ForgettingBias,
        "rotary-forgetting": lambda: combined(
            [rotary(), kp.positions.ForgettingBias()]
        ),
        "fourier": lambda: kp.positions.FourierEmbedding(LENGTH, seed=0),
        "polar": kp.positions.PolarEmbedding,
        "contextual": lambda: kp.positions.ContextualBias(LENGTH),
    }


def make_model(kind: str) -> Any:
    """A decoder of two blocks: (batch, seq) ids to logits of the next ones."""
    import keras

    import keras_posenc as kp

    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(
        VOCABULARY, WIDTH, embeddings_initializer=normal(1.0)
    )(ids)
    position, arguments = kinds()[kind](), {}
    if isinstance(position, tuple):
        draw, position = position
        arguments = {"positions": draw(x)}
    in_attention = isinstance(position, kp.AttentionPosition | list)
    if position is not None and not in_attention:
        x, position, arguments = position(x, **arguments), None, {}
    x = kp.TransformerDecoder(
        LAYERS,
        num_heads=HEADS,
        intermediate_dim=2 * WIDTH,
        norm="before",
        cross_attention=None,
        attention=position,
    )(x, **arguments)
    return keras.Model(ids, keras.layers.Dense(VOCABULARY)(x))


def normal(stddev: float) -> Any:
    import keras

    return keras.initializers.RandomNormal(stddev=stddev)


def learn(kind: str, seeds: list[int], steps: int) -> Iterator[Any]:
    """Yields, for each seed, what a model got right."""
    import keras

    batch = sum(rows for _, rows in TASKS.values())
    rate = keras.optimizers.schedules.CosineDecay(
        1e-4, steps, warmup_target=RATE, warmup_steps=steps // 10
    )
    model = make_model(kind)
    model.compile(
        keras.optimizers.Adam(rate, beta_2=0.98),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
        steps_per_execution=10,
    )
    for seed in seeds:
        # What TensorFlow has traced serves all seeds.
        keras.utils.set_random_seed(seed)
        fresh = make_model(kind)
        for own, other in zip(model.variables, fresh.variables, strict=True):
            own.assign(other)
        for variable in model.optimizer.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype))
        rows = training_rows(np.random.default_rng(seed), steps)
        model.fit(
            rows.ids,
            rows.following,
            sample_weight=rows.counts,
            batch_size=batch,
            shuffle=False,
            verbose=0,
        )
        found: dict[str, dict[int, float]] = {task: {} for task in TASKS}
        for task, (make, _) in TASKS.items():
            for length in LENGTHS:
                rng = np.random.default_rng([seed, length])
                tested = make(rng, TESTED // length, length, test=True)
                found[task][length] = ask(model, tested, task)
        yield found


def ask(model: Any, tested: Rows, task: str) -> float:
    """Returns the accuracy or, of text, the perplexity."""
    right = loss = 0.0
    batch = max(1, 2048 // tested.ids.shape[1])
    for begin in range(0, len(tested.ids), batch):
        ids, following, counts = (
            each[begin : begin + batch] for each in tested
        )
        logits = np.asarray(model.predict_on_batch(ids), "float64")
        right += ((logits.argmax(-1) == following) * counts).sum()
        logs = logits - logits.max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        of_next = np.take_along_axis(logs, following[..., None], -1)[..., 0]
        loss -= (of_next * counts).sum()
    total = tested.counts.sum()
    return float(np.exp(loss / total) if task == "text" else right / total)


def measure(names: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of a processor: a step of training, a token of each length.

    Kinds take turns, and the median of the rounds counts.
    """
    import keras

    rng = np.random.default_rng(0)
    ids = {
        length: rng.integers(0, 128, (max(1, 2048 // length), length), "int32")
        for length in LENGTHS
    }
    models = {}
    for name in names:
        models[name] = make_model(name)
        models[name].compile(
            "adam",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    for _ in range(rounds + 3):  # the first ones trace
        for name, model in models.items():
            clocks = [time.process_time()]
            model.train_on_batch(ids[LENGTH], ids[LENGTH])
            clocks.append(time.process_time())
            for each in ids.values():
                model.predict_on_batch(each)
                clocks.append(time.process_time())
            times[name].append([*np.diff(clocks)])
    return {
        name: (np.median(found[3:], axis=0) / ([1] + [2048] * 4)).tolist()
        for name, found in times.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("causal_positions"), help="a folder"
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="processes at a time"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS)
    parser.add_argument(
        "--quick", action="store_true", help="three kinds, hardly trained"
    )
    # One kind, in a process of its own.
    parser.add_argument("--learn", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--only", type=int, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument(
        "--measure", nargs="+", choices=KINDS, help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.steps = 1, 20
        options.kinds = options.kinds or ["none", "rotary", "alibi"]
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if options.learn or options.measure:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        if options.measure:
            rounds = 2 if options.quick else 30
            print(json.dumps(measure(options.measure, rounds)))
            return 0
        for found in learn(options.learn, options.only, options.steps):
            print(json.dumps(found), flush=True)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    show(*run(options), options)
    return 0


def run(
    options: argparse.Namespace,
) -> tuple[dict[str, dict[str, Any]], dict[str, list[float]]]:
    """Runs what `runs.json` lacks; returns what was right, and costs."""
    from rich.console import Console
    from rich.progress import Progress

    path = options.out / "runs.json"
    setting = {"steps": options.steps, "python": sys.version.split()[0]}
    for name in ("keras", "tensorflow"):
        setting[name] = importlib.metadata.version(name)
    kept: dict[str, Any] = {"setting": setting, "runs": {}, "costs": {}}
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["setting"] != setting:
            raise SystemExit(
                f"{path} is of {kept['setting']}, not {setting}: give another "
                "--out."
            )
    names = options.kinds or list(KINDS)
    runs = kept["runs"]
    left = {
        name: [
            seed
            for seed in range(options.seeds)
            if str(seed) not in runs.setdefault(name, {})
        ]
        for name in names
    }
    with (
        Progress(console=Console(stderr=True), transient=True) as progress,
        ThreadPoolExecutor(options.jobs) as threads,
    ):
        total = sum(map(len, left.values())) + 1
        task = progress.add_task("", total=total)
        lock = threading.Lock()

        def keep() -> None:
            partial = path.with_suffix(".part")
            partial.write_text(json.dumps(kept, indent=1))
            partial.replace(path)

        def learn_apart(name: str) -> None:
            seeds = map(str, left[name])
            arguments = ["--learn", name, "--steps", str(options.steps)]
            arguments += ["--only", *map(str, left[name])]
            for seed, found in zip(seeds, outputs(arguments), strict=True):
                with lock:
                    runs[name][seed] = found
                    keep()
                progress.update(task, advance=1, description=name)

        for each in [
            threads.submit(learn_apart, name) for name in names if left[name]
        ]:
            each.result()
        if not {*names} <= {*kept["costs"]}:
            progress.update(task, description="processor time")
            arguments = ["--quick"] * options.quick + ["--measure", *names]
            (kept["costs"],) = outputs(arguments)
            keep()
    return (
        {name: runs[name] for name in names},
        {name: kept["costs"][name] for name in names},
    )


def outputs(arguments: list[str]) -> Iterator[Any]:
    """What a process of this script prints, line by line."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True
    ) as process:
        yield from map(json.loads, process.stdout or ())
    if process.returncode:
        raise SystemExit(f"{arguments} failed: see above.")


def show(
    runs: dict[str, dict[str, Any]],
    costs: dict[str, list[float]],
    options: argparse.Namespace,
) -> None:
    """Writes tables and a picture, and prints the tables."""
    from rich.console import Console
    from rich.markdown import Markdown

    page = ""
    for task in TASKS:
        heading = ["position", *map(str, LENGTHS)]
        rows = [
            [name, *(cell(task, each) for each in by_length(found, task))]
            for name, found in runs.items()
        ]
        page += f"{TITLES[task]}\n\n{table(heading, rows)}\n"
    if "none" in runs:
        heading = ["position", "a training step"]
        heading += [f"a token of {length}" for length in LENGTHS]
        rows = [
            [name, *(f"{each:.2f}" for each in np.divide(cost, costs["none"]))]
            for name, cost in costs.items()
        ]
        page += (
            f"Processor time, compared with `none`\n\n{table(heading, rows)}"
        )
    (options.out / "tables.md").write_text(page, encoding="utf-8")
    draw(runs, options.out / "tables.png")
    Console(width=None if sys.stdout.isatty() else 120).print(Markdown(page))
    print(f"Written: {options.out}/tables.md, tables.png, runs.json")


def by_length(found: dict[str, Any], task: str) -> list[list[float]]:
    """What all seeds found, for each length."""
    return [
        [run[task][str(length)] for run in found.values()] for length in LENGTHS
    ]


def cell(task: str, values: list[float]) -> str:
    """Mean and standard deviation."""
    mean, spread = statistics.mean(values), statistics.pstdev(values)
    if task != "text":
        return f"{100 * mean:.0f} ± {100 * spread:.0f}"
    return f"{mean:.2f} ± {spread:.2f}" if mean < 10 else f"{mean:.0f}"


def table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def draw(runs: dict[str, dict[str, Any]], path: Path) -> None:
    """Draws a cell for each kind, task and length: the better, the darker."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.5 + 0.32 * len(runs)), layout="constrained")
    for ax, task in zip(figure.subplots(1, 3, sharey=True), TASKS, strict=True):
        means = np.array(
            [np.mean(by_length(found, task), axis=1) for found in runs.values()]
        )
        shades = -np.log(means) if task == "text" else means
        lowest, highest = (
            (0, 1) if task != "text" else np.quantile(shades, [0.1, 1])
        )
        ax.imshow(
            shades, cmap="Blues", vmin=lowest, vmax=highest, aspect="auto"
        )
        for (row, column), mean in np.ndenumerate(means):
            shade = (shades[row, column] - lowest) / (highest - lowest or 1)
            ax.text(
                column,
                row,
                f"{mean:.3g}" if task == "text" else f"{100 * mean:.0f}",
                ha="center",
                va="center",
                color="white" if shade > 0.6 else "black",
            )
        ax.set_title(TITLES[task], fontsize="medium")
        ax.set_xticks(range(len(LENGTHS)), LENGTHS)
        ax.set_xlabel("tokens of a row")
        ax.set_yticks(range(len(runs)), runs)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
