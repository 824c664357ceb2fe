"""How fast tables are scored: `python benchmarks/scoring.py --pyspark PYTHON`.

Docstrings of Python's standard library are answered by a `Scorer`, beside the
bare artifact on the same batches and on batches as the rows come; and from
files by `score_files` and by Spark, beside the bare model on the same cores.
Starting them is not counted: their times are those beyond a run of few rows.
Short rows, up to ten million, show how time and memory grow.

A whole run is kept in `RESULTS.md`, `results.json` and a picture. It takes
about forty minutes on two cores; `--quick` some minutes. Needs Linux and
`pip install 'keras-posenc[bench,onnx,plot,scoring]'`.
"""

import argparse
import ast
import contextlib
import functools
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _command import Kept, above_0, machine, parse
from _contest import THREADS, US, Contest, Work
from _report import picture, report
from growth import power

ROWS, LONGEST = 12_000, 2000  # docstrings, and the bytes of the longest
BATCH = 32  # as `Model.predict` makes them
FILES, TIMES = 8, 5
SIZES = [a * 10**b for b in range(4, 8) for a in (1, 3)]
SAME, COMES = "the bare model", f"the same, {BATCH} rows as they come"
SPARK = "Spark"
SUBMIT = Path(__file__).parents[1] / "export" / "spark" / "score.py"
SCORE = """
import sys
import keras_posenc as kp
artifact, rows, out, workers = sys.argv[1:]
scorer = kp.Scorer(artifact, column="text", threads=1)
report = kp.score_files(
    scorer, rows, out=out, workers=int(workers), verbose=False
)
sys.exit(not report.passed or bool(report.bad))
"""
ASK = """
import sys
import keras_posenc as kp
import pyarrow.parquet as pq
artifact, rows, folder, threads = sys.argv[1:]
sys.path.insert(0, folder)
from scoring import bare, packed
scorer = kp.Scorer(artifact, column="text", threads=int(threads))
bare(scorer, packed(scorer, pq.read_table(rows)["text"].to_pylist()))()
"""


def main() -> None:
    options = parse(
        __doc__, ["table", "files", "sizes"], 3, ["pyspark"], add_options
    )
    kept = Kept("scoring", options)
    artifact = texts = sizes = None
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(kept.progress)
        works = {"table": table, "files": files}
        if any(options.only in name for name in works):
            texts = docstrings(ROWS // 10 if options.quick else ROWS)
            artifact = export(classifier(texts), folder / "classifier")
        contests = kept.contests(
            works, artifact, texts, folder, options.pyspark
        )
        if options.only in "sizes":
            most = min(options.most, 10**6) if options.quick else options.most
            counts = [size for size in SIZES if size <= most]
            sizes = kept.once("sizes", sweep, counts, folder, kept.progress)
    if options.quick:
        options.to = None
    found = {
        "machine": machine(options),
        "contests": contests,
        "sizes": sizes,
    }
    if options.to and sizes:
        name = picture("scoring", found["machine"]["processor"])
        draw(sizes, options.to / name)
    report("scoring", found, options.to)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--most",
        type=above_0,
        default=SIZES[-2],
        metavar="N",
        help="the most short rows (%(default)s)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the docstrings and few short rows; keep nothing",
    )


def docstrings(count: int) -> list[bytes]:
    """Those of the standard library, in any order, the longest left out."""
    found: dict[bytes, None] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        # Some are examples of what is no Python, or warn of escapes.
        broken = contextlib.suppress(SyntaxError, ValueError)
        with warnings.catch_warnings(), broken:
            warnings.simplefilter("ignore")
            for node in ast.walk(ast.parse(path.read_bytes())):
                with contextlib.suppress(TypeError):  # it may have none
                    text = (ast.get_docstring(node) or "").encode()
                    if 0 < len(text) <= LONGEST:
                        found[text] = None
    texts = [*found]
    random.Random(0).shuffle(texts)
    # A small library's come several times.
    return (texts * (count // len(texts) + 1))[:count]


def classifier(texts: Iterable[bytes]) -> Any:
    """Two blocks of width 128, of words."""
    import keras

    import keras_posenc as kp

    words = [text.decode(errors="ignore") for text in texts]
    tokenizer = kp.WordpieceTokenizer.learn(words, 8000)
    return keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            kp.TransformerEncoderModel(
                tokenizer.vocabulary_size(),
                d_model=128,
                num_layers=2,
                num_heads=4,
                intermediate_dim=512,
            ),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )


def speller() -> Any:
    """Hardly a model: what is left is reading, sorting and writing."""
    import keras

    import keras_posenc as kp

    text = keras.Input((), dtype="string", name="text")
    x = kp.CharacterTokenizer("abcdefghijklmnopqrstuvwxyz ")(text)
    x = keras.layers.Embedding(32, 16, mask_zero=True)(x)
    x = kp.Pooling1D("mean")(kp.PositionalEncoding()(x))
    x = keras.layers.Dense(2, activation="softmax", name="scores")(x)
    return keras.Model(text, x)


def export(model: Any, folder: Path) -> Path:
    import keras_posenc as kp

    return kp.export_saved_model(model, folder, verbose=False).path


def table(
    artifact: Path, texts: list[bytes], folder: Path, spark: str | None
) -> Iterator[Contest]:
    """In this process, on one core."""
    import pyarrow as pa

    import keras_posenc as kp

    scorer = kp.Scorer(artifact, column="text", threads=1)
    given = pa.table({"text": texts})
    come = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    contest = Contest(
        "1,000 docstrings of a table, one core",
        {
            US: functools.partial(scorer, given),
            SAME: bare(scorer, packed(scorer, texts)),
            COMES: bare(scorer, come),
        },
        {(US, COMES): 1 / 1.8},
        parts=len(texts) / 1000,
    )
    with held_to(1):
        yield contest


def files(
    artifact: Path, texts: list[bytes], folder: Path, spark: str | None
) -> Iterator[Contest]:
    """From files to files, by processes of one thread each."""
    texts = texts * TIMES  # so that starting is a small part
    few, many = folder / "few", folder / "many"
    write(few, texts[: FILES * 8])
    write(many, texts)
    for cores in sorted({1, THREADS}):
        commands = {
            US: score_command(artifact, cores),
            SAME: ask_command(artifact, cores),
        }
        if spark:
            commands[SPARK] = spark_command(spark, artifact, cores)
        contest = Contest(
            f"1,000 docstrings of files, {cores} of {THREADS} cores",
            {
                name: beyond_start(command, few, many)
                for name, command in commands.items()
            },
            {(US, SAME): 1 / 0.95},
            parts=len(texts) / 1000,
        )
        with held_to(cores):
            yield contest


@contextlib.contextmanager
def held_to(cores: int) -> Iterator[None]:
    """Holds this process, and those that it begins, to some of its cores.

    An artifact's `threads` do not: TensorFlow's sessions share the threads of
    the first that a process had.
    """
    before = os.sched_getaffinity(0)

    def hold(which: Iterable[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread), which)

    hold(sorted(before)[:cores])
    try:
        yield
    finally:
        hold(before)


def packed(scorer: Any, texts: Sequence[bytes]) -> list[list[bytes]]:
    """The batches that a `Scorer` makes."""
    from keras_posenc.scoring.scorer import pack

    batches = []
    for begin in range(0, len(texts), scorer.window):
        window = texts[begin : begin + scorer.window]
        lengths = [len(text) for text in window]
        alike = [()] * len(window)
        for batch in pack(lengths, alike, budget=scorer.budget, most=1024):
            batches.append([window[index] for index in batch])
    return batches


def bare(scorer: Any, batches: Iterable[Sequence[bytes]]) -> Work:
    """Asks the artifact that a `Scorer` asks, and drops its answers."""
    from keras_posenc.scoring.loading import load

    key = scorer.path, scorer.kind, scorer.digest, [scorer.signature]
    arrays = [np.array(batch, object) for batch in batches]

    def work() -> None:
        run = load(*key, scorer.threads)[scorer.signature]
        for array in arrays:
            run({"text": array})

    return work


# From a folder of rows and one of answers to a command.
Command = Callable[[Path, Path], list[Any]]


def score_command(artifact: Path, workers: int) -> Command:
    return lambda rows, out: [
        *(sys.executable, "-c", SCORE, artifact, rows, out, str(workers))
    ]


def ask_command(artifact: Path, threads: int) -> Command:
    folder = Path(__file__).parent
    return lambda rows, out: [
        *(sys.executable, "-c", ASK, artifact, rows, folder, str(threads))
    ]


def spark_command(python: str, artifact: Path, cores: int) -> Command:
    submit = Path(python).absolute().with_name("spark-submit")
    return lambda rows, out: [
        *("env", f"PYSPARK_PYTHON={Path(python).absolute()}"),
        *(submit, "--master", f"local[{cores}]"),
        *("--conf", f"spark.sql.files.minPartitionNum={2 * FILES}"),
        *(SUBMIT, artifact, rows, out, "text"),
    ]


def beyond_start(command: Command, few: Path, many: Path) -> Work:
    """What many rows take more than few; of processes of their own."""

    def seconds(rows: Path) -> float:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            subprocess.run(
                command(rows, Path(folder, "out")),
                check=True,
                capture_output=True,
            )
            return time.perf_counter() - began

    def work() -> float:
        least = seconds(few)
        return (seconds(many) - least) * 1e3

    return work


def write(folder: Path, texts: Any) -> None:
    """Files of rows, `FILES` of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rows = pa.table({"text": texts})
    each = -(-rows.num_rows // FILES)
    for number in range(FILES):
        part = rows.slice(number * each, each)
        pq.write_table(part, folder / f"{number}.parquet")


def sweep(sizes: Sequence[int], folder: Path, progress: Any) -> dict[str, Any]:
    """Processor time and memory of so many rows of 8 to 40 characters.

    Time is that of this process, which scores files as a worker does, once it
    has loaded the artifact; memory that of `score_files` and its workers.
    """
    import pyarrow as pa

    import keras_posenc as kp
    from keras_posenc.scoring.writing import find_fragments, score_fragment

    artifact = export(speller(), folder / "speller")
    rng = random.Random(0)
    texts = pa.array(
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=length))
        for length in rng.choices(range(8, 41), k=10_000)
    )
    command = score_command(artifact, THREADS)
    scorer = kp.Scorer(artifact, column="text", threads=1)
    scorer(pa.table({"text": texts}))
    seconds, peaks = [], []
    for size in progress.track(sizes, description="short rows"):
        rows, out = folder / "rows", folder / "out"
        picked = np.random.default_rng(0).integers(0, len(texts), size)
        write(rows, texts.take(picked))
        fragments = find_fragments([rows], out)
        with held_to(1):
            began = time.process_time()
            for fragment in fragments:
                score_fragment(scorer, fragment, out)
            seconds.append(time.process_time() - began)
        shutil.rmtree(out)
        peaks.append(peak_of(command(rows, out)))
        shutil.rmtree(rows)
        shutil.rmtree(out)
    found = {
        "sizes": sizes,
        "workers": THREADS,
        "seconds": seconds,
        "rates": np.divide(sizes, seconds).tolist(),
        "peaks": peaks,
    }
    if len(sizes) > 2:
        found["time_power"] = power(sizes, seconds)
        found["memory_power"] = power(sizes, peaks)
    return found


def peak_of(command: Sequence[Any]) -> float:
    """Runs it; returns the most gigabytes that its processes held together.

    They are looked at five times a second; what several of them share counts
    once.
    """
    peak = 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        while process.poll() is None:
            peak = max(peak, held(process.pid))
            time.sleep(0.2)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read().decode(errors="replace"))
    return peak / 1e6


def held(pid: int) -> int:
    """Kilobytes of a process and those that it began, their share of each."""
    own, children = "0", ""
    with contextlib.suppress(OSError):  # it has ended
        own = Path(f"/proc/{pid}/smaps_rollup").read_text()
        own = own.partition("\nPss:")[2].split()[0]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += task.read_text()
    return int(own) + sum(map(held, map(int, children.split())))


def draw(sizes: dict[str, Any], path: Path) -> None:
    """Rows per processor second, and memory, by the number of rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 3.2), layout="constrained")
    # Of the palette of Okabe and Ito, which the color-blind tell apart.
    for axes, values, label, style in zip(
        figure.subplots(1, 2),
        (sizes["rates"], sizes["peaks"]),
        ("rows per processor second", "peak memory (GB)"),
        (
            {"color": "#0072B2", "marker": "o"},
            {"color": "#D55E00", "marker": "s"},
        ),
        strict=True,
    ):
        axes.plot(sizes["sizes"], values, **style)
        axes.set(xscale="log", xlabel="rows", ylabel=label)
        axes.set_ylim(0, 1.1 * max(values))
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
