"""What was measured, kept as JSON and shown as tables."""

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

JSON, MARKDOWN = "results.json", "RESULTS.md"
# Where programs keep what they have finished until the whole is reported.
KEPT = Path(__file__).parents[1] / "build" / "bench"

NUMBERS = "found", "at most"
GOALS = ("work", "of what", *NUMBERS, "")
TIMES = "work", "contestant", "ms", "ours / it", "peak, GB"
GROWTH = (
    "over",
    "contestant",
    "ms",
    "time's power",
    "peak, GB",
    "memory's power",
    "whose time is less",
)
POSITIONS = "loop", "tokens before it", "ms"
SIZES = "short rows", "processor s", "rows / s of it", "peak, GB"
MEMORY = "work", "format", "seconds", "peak, GB", "of the weights"
EXPORTING = (
    "model",
    "format",
    "first, s",
    "Keras's, s",
    "ratio, less 2 s",
    "later, s",
    "Keras's, s",
    "ratio",
)
GPU = (
    "work",
    "of",
    "ms",
    "tokens/s",
    "TFLOP/s",
    "of the first",
    "flash attention",
)


def report(part: str, found: Any, folder: Path | None) -> None:
    """Prints the `part` that was measured, and keeps it if there is a folder.

    What the folder has of other processors and parts stays. The next run
    measures all of this part again.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    processor = found["machine"]["processor"]
    Console().print(Markdown(markdown({processor: {part: found}})))
    if folder is None:
        return
    results = {}
    with contextlib.suppress(FileNotFoundError):
        results = json.loads((folder / JSON).read_text())
    results.setdefault(processor, {})[part] = found
    text = json.dumps(results, indent=1, ensure_ascii=False)
    (folder / JSON).write_text(text + "\n")
    (folder / MARKDOWN).write_text(markdown(results))
    (KEPT / f"{part}.json").unlink(missing_ok=True)


def picture(part: str, processor: str) -> str:
    """The file name of the picture of a part."""
    words = re.findall("[a-z0-9]+", processor.lower())
    return "-".join([part, *words]) + ".png"


def markdown(results: dict[str, Any]) -> str:
    """The page of all that was measured, by part and processor."""
    lines = [
        "# Speed compared with other libraries",
        "",
        "Written by `make bench`: medians, measured in turns. Blocks are 512",
        "wide, with 8 heads and a feed-forward part of 2048, unless stated",
        "otherwise. Ratios are times: below 1, the first one is faster.",
    ]
    for part, (heading, text, tables) in PARTS.items():
        measured = [each for each in results if part in results[each]]
        if measured:
            lines += ["", f"## {heading}", "", *text]
        for processor in measured:
            found = results[processor][part]
            lines += ["", f"### {processor}", "", _facts(found["machine"])]
            lines += tables(found)
    return "\n".join(lines) + "\n"


def _contests(found: dict[str, Any]) -> list[str]:
    lines = []
    if "differences" in found:
        told = "; ".join(
            f"{name} {difference:.1e}"
            for name, difference in found["differences"].items()
        )
        lines += ["", f"Scores differ from Keras's by at most: {told}."]
    contests = found["contests"]
    for headings, rows in (
        (GOALS, goal_rows(contests)),
        (TIMES, time_rows(contests)),
    ):
        if rows:
            lines += ["", *_table(headings, rows)]
    return lines


def _growth(found: dict[str, Any]) -> list[str]:
    file = picture("growth", found["machine"]["processor"])
    return [
        "",
        f"![Time and peak memory of each contestant]({file})",
        "",
        *_table(GROWTH, growth_rows(found["sweeps"])),
    ]


def _decoding(found: dict[str, Any]) -> list[str]:
    lines = _contests(found)
    if positions := found.get("positions"):
        file = picture("decoding", found["machine"]["processor"])
        lines += [
            "",
            f"![What a token takes by its position]({file})",
            "",
            f"What takes {positions['work']}, by how many tokens are",
            "before it; without a cache the model is called on all of them",
            "again.",
            "",
            *_table(POSITIONS, position_rows(positions)),
        ]
    return lines


def _scoring(found: dict[str, Any]) -> list[str]:
    lines = _contests(found)
    if sizes := found["sizes"]:
        file = picture("scoring", found["machine"]["processor"])
        lines += [
            "",
            f"![Rows per processor second and peak memory]({file})",
            "",
            "Rows of 8 to 40 characters, of a model without blocks, from",
            "files to files. Time is that of one process of one thread,",
            "once it has loaded the model; memory that of",
            f"{sizes['workers']} workers and who started them, together;",
            "what they share counts once.",
            "",
            *_table(SIZES, size_rows(sizes)),
        ]
    if sizes and "time_power" in sizes:
        lines += [
            "",
            "Fitted to the upper half of sizes, time grows by the power",
            f"{sizes['time_power']:.2f} of the rows, memory by "
            f"{round(sizes['memory_power'], 2) + 0:.2f}.",  # no -0.00
        ]
    return lines


def _memory(found: dict[str, Any]) -> list[str]:
    return [
        "",
        f"{found['weights']:.0f} MB of weights.",
        "",
        *_table(MEMORY, memory_rows(found["rows"])),
    ]


def _exporting(found: dict[str, Any]) -> list[str]:
    return ["", *_table(EXPORTING, exporting_rows(found["rows"]))]


def _gpu(found: dict[str, Any]) -> list[str]:
    return ["", *_table(GPU, gpu_rows(found["rows"]))]


# The parts of the page: their headings, what they are about, and their tables.
PARTS = {
    "speed": ("Layers", ["Written by `benchmarks/speed.py`."], _contests),
    "pretrained": (
        "Pretrained encoders",
        [
            "all-MiniLM-L6-v2 from its exported files, compared with",
            "sentence-transformers. Written by `benchmarks/pretrained.py`.",
        ],
        _contests,
    ),
    "language_models": (
        "Language models",
        [
            "SmolLM2-135M-Instruct, one prompt: a token's time is that of",
            "the whole run over the number of new tokens. Reading the weights",
            "is what bounds it. Written by `benchmarks/language_models.py`.",
        ],
        _contests,
    ),
    "phone_texts": (
        "Texts in the runtimes of phones",
        [
            "all-MiniLM-L6-v2, one text at a time, on this processor. Written",
            "by `benchmarks/phone_texts.py`.",
        ],
        _contests,
    ),
    "mobile": (
        "On mobile runtimes",
        [
            "Four blocks of width 256, of any length and of one (static); of",
            "one thread the processor's time. Written by",
            "`benchmarks/mobile.py`.",
        ],
        _contests,
    ),
    "jax": (
        "On JAX",
        [
            "Compiled functions of the same weights, without dropout; a step",
            "is one of Adam. Written by `make bench-backends`.",
        ],
        _contests,
    ),
    "torch": (
        "On PyTorch",
        [
            "Without dropout, and not compiled; a step is one of Adam.",
            "Written by `make bench-backends`.",
        ],
        _contests,
    ),
    "growth": (
        "How it grows",
        [
            "Powers are fitted to the upper half of the sizes, those of memory",
            "to what is held beyond the libraries. A difference in time below",
            "3% counts for none.",
        ],
        _growth,
    ),
    "decoding": (
        "Decoding",
        [
            "A token's time is that of a whole text, its source encoded,",
            "over the number of its tokens. keras-hub's is that of `generate`",
            "of its BART, PyTorch's that of a loop over its own decoder's",
            "layers that keeps keys and values.",
        ],
        _decoding,
    ),
    "scoring": (
        "Scoring",
        [
            "Of a SavedModel of words, two blocks of width 128; docstrings of",
            "the standard library. Each worker has one thread, the bare",
            "model is one process of as many threads, and all are held to",
            "as many cores. What starting takes is not counted.",
        ],
        _scoring,
    ),
    "memory": (
        "Memory",
        [
            "An encoder of BERT's size, verified as it is exported; of all",
            "processes, beyond what the libraries take. Written by",
            "`benchmarks/memory.py`.",
        ],
        _memory,
    ),
    "exporting": (
        "Exporting",
        [
            "Verified exports beside Keras's own, which runs nothing. The",
            "first of a process may take 2 s more, in which a process without",
            "Keras imports a runtime. Written by `benchmarks/exporting.py`.",
        ],
        _exporting,
    ),
    "gpu": (
        "On a GPU",
        [
            "Twelve blocks in bfloat16, 1024 wide, with Adam, without dropout.",
            "Of their operations the matrix products are counted.",
        ],
        _gpu,
    ),
}


def goal_rows(contests: Sequence[Any]) -> list[list[str]]:
    return [
        [
            contest["work"],
            goal["of"],
            *(f"{goal[n]:.2f}" for n in NUMBERS),
            "" if goal["found"] < goal["at most"] + 0.005 else "missed",
        ]
        for contest in contests
        for goal in contest["goals"]
    ]


def time_rows(contests: Sequence[Any]) -> list[list[str]]:
    rows = []
    for contest in contests:
        ours = next(iter(contest["milliseconds"].values()), None)
        for name, took in contest["milliseconds"].items():
            peak = contest["peaks"].get(name)
            rows.append(
                [
                    contest["work"],
                    name,
                    f"{took:.1f}",
                    f"{ours / took:.2f}",
                    "" if peak is None else f"{peak:.2f}",
                ]
            )
    return rows


def growth_rows(sweeps: Sequence[Any]) -> list[list[str]]:
    return [
        [
            sweep["over"],
            name,
            " – ".join(f"{curve['milliseconds'][i]:.1f}" for i in (0, -1)),
            f"{curve['time_power']:.2f}",
            " – ".join(f"{curve['peaks'][i]:.2f}" for i in (0, -1)),
            f"{curve['memory_power']:.2f}",
            curve["less"],
        ]
        for sweep in sweeps
        for name, curve in sweep["curves"].items()
    ]


def position_rows(positions: dict[str, Any]) -> list[list[str]]:
    return [
        [name, str(before), f"{took:.1f}"]
        for name, times in positions["curves"].items()
        for before, took in zip(positions["before"], times, strict=True)
    ]


def size_rows(sizes: dict[str, Any]) -> list[list[str]]:
    return [
        [
            f"{size:,}",
            f"{seconds:.2f}",
            f"{rate:,.0f}",
            f"{peak:.2f}",
        ]
        for size, seconds, rate, peak in zip(
            *(sizes[name] for name in ("sizes", "seconds", "rates", "peaks")),
            strict=True,
        )
    ]


def memory_rows(rows: Sequence[Any]) -> list[list[str]]:
    return [
        [
            row["work"],
            row["format"],
            f"{row['seconds']:.0f}",
            f"{row['peak']:.2f}",
            f"{row['ratio']:.2f}",
        ]
        for row in rows
    ]


def exporting_rows(rows: Sequence[Any]) -> list[list[str]]:
    found = []
    for row in rows:
        first, keras_first, later, keras_later = (
            row[name]
            for name in ("first", "Keras's first", "later", "Keras's later")
        )
        found.append(
            [
                row["work"],
                row["format"],
                f"{first:.1f}",
                f"{keras_first:.1f}",
                f"{max(first - 2, 0) / keras_first:.2f}",
                f"{later:.1f}",
                f"{keras_later:.1f}",
                f"{later / keras_later:.2f}",
            ]
        )
    return found


def gpu_rows(rows: Sequence[Any]) -> list[list[str]]:
    limit = rows[0]["TFLOP/s"]
    return [
        [
            row["work"],
            row["shape"],
            f"{row['milliseconds']:.2f}",
            f"{row['tokens/s']:,.0f}" if row["tokens/s"] else "",
            f"{row['TFLOP/s']:.3g}",
            f"{row['TFLOP/s'] / limit:.2f}",
            "yes" if row["flash"] else "no",
        ]
        for row in rows
    ]


def _facts(machine: dict[str, Any]) -> str:
    return "; ".join(f"{name}: {fact}" for name, fact in machine.items()) + "."


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterable[str]:
    ruler = ["---", "---", *["--:"] * (len(headings) - 2)]
    for cells in (headings, ruler, *rows):
        yield "| " + " | ".join(cells) + " |"
