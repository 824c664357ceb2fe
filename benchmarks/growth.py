"""How time and memory grow, beside peers: the second half of `make bench`.

One thing grows at a time. Each contestant has a fresh process for each of
them, and all take turns. A whole run is kept in `RESULTS.md`, `results.json`
and a picture. Needs Linux, which tells the peak memory of a process.
"""

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _command import Kept, machine, parse
from _contest import SEQ, US, Peer, Size, take_turns
from _report import picture, report

SAME = 1.03  # a smaller ratio of times is none


def even_lengths(batch: int, fill: float) -> tuple[int, ...]:
    """Lengths, evenly spread, that fill so much of `batch` texts of `SEQ`."""
    low, high = max(2 * fill - 1, 0.01), min(2 * fill, 1)
    lengths = np.linspace(low * SEQ, high * SEQ, batch).round()
    return tuple(map(int, lengths))


# What grows: the label of its axis, its sizes, and what is measured at each.
SWEEPS: dict[str, tuple[str, Sequence[float], Callable[[Any], Size]]] = {
    "length": (
        "length (tokens), one block",
        [128, 256, 512, 1024, 2048, 4096, 8192],
        lambda length: Size(batch=1, seq=length),
    ),
    "batch": (
        f"batch (texts of {SEQ} tokens), one block",
        [1, 2, 4, 8, 16, 32, 64],
        lambda batch: Size(batch=batch),
    ),
    "fill": (
        f"fill of 32 × {SEQ} tokens (%), two blocks",
        [10, 25, 50, 75, 100],
        lambda fill: Size(2, 32, lengths=even_lengths(32, fill / 100)),
    ),
    "layers": (
        f"layers (blocks), 8 × {SEQ} tokens",
        [1, 3, 6, 12, 24],
        lambda layers: Size(layers),
    ),
}


def main() -> None:
    options = parse(__doc__, SWEEPS, rounds=3)
    kept = Kept("growth", options)
    pythons = dict.fromkeys((US, "keras-hub", "plain Keras"), sys.executable)
    if options.torch:
        pythons["PyTorch"] = options.torch
    with kept.progress:
        sweeps = [
            kept.once(
                over, measure, over, pythons, options.rounds, kept.progress
            )
            for over in SWEEPS
            if options.only in over
        ]
    found = {"machine": machine(options), "sweeps": sweeps}
    if options.to:
        name = picture("growth", found["machine"]["processor"])
        draw(sweeps, options.to / name)
    report("growth", found, options.to)


def measure(
    over: str, pythons: dict[str, str], rounds: int, progress: Any
) -> dict[str, Any]:
    """Median times and peaks of each contestant, in the order of the sizes."""
    _, sizes, make = SWEEPS[over]
    with contextlib.ExitStack() as stack:
        peers = {
            name: stack.enter_context(Peer(name, python))
            for name, python in pythons.items()
        }
        curves: dict[str, Any] = {
            name: {"milliseconds": [], "peaks": []} for name in peers
        }
        for size in progress.track(sizes, description=over):
            runs = {
                name: functools.partial(peer.run, make(size))
                for name, peer in peers.items()
            }
            times = take_turns(runs, rounds)
            for name, peer in peers.items():
                curves[name]["milliseconds"].append(times[name])
                curves[name]["peaks"].append(peer.peak)
                curves[name]["rest"] = peer.rest
    for curve in curves.values():
        judge(sizes, curve, curves[US])
    return {"over": over, "sizes": sizes, "curves": curves}


def judge(sizes: Sequence[float], curve: Any, ours: Any) -> None:
    """Adds how a curve grows, and where it is above or below ours."""
    beyond = np.maximum(np.subtract(curve["peaks"], curve["rest"]), 1e-3)
    curve["time_power"] = power(sizes, curve["milliseconds"])
    curve["memory_power"] = power(sizes, beyond)
    curve["less"] = ""
    if curve is not ours:
        curve["less"] = whose_is_less(
            sizes, ours["milliseconds"], curve["milliseconds"]
        )


def power(sizes: Sequence[float], costs: Any) -> float:
    """The exponent p of costs like size ** p, over the upper half."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)[0])


def whose_is_less(
    sizes: Sequence[float], ours: Sequence[float], theirs: Sequence[float]
) -> str:
    """In words, and from which size on; ratios below `SAME` do not count."""
    ratios = np.log(np.divide(ours, theirs))
    decided = [
        (size, ratio)
        for size, ratio in zip(np.log(sizes), ratios, strict=True)
        if abs(ratio) > np.log(SAME)
    ]
    if not decided:
        return "as ours"
    words = [_whose(decided[0][1])]
    for (low, before), (high, after) in itertools.pairwise(decided):
        if before * after < 0:
            crossing = low + (high - low) * before / (before - after)
            at = round(np.exp(crossing))
            words.append(f"{_whose(after)} from {at}")
    return ", ".join(words) if words[1:] else f"{words[0]} everywhere"


def _whose(ratio: float) -> str:
    return "ours" if ratio < 0 else "theirs"


# Of the palette of Okabe and Ito, which the color-blind tell apart.
STYLES = {
    US: ("#0072B2", "o", "-"),
    "keras-hub": ("#D55E00", "s", "--"),
    "plain Keras": ("#009E73", "^", ":"),
    "PyTorch": ("#CC79A7", "D", "-."),
}


def draw(sweeps: Sequence[Any], path: Path) -> None:
    """Time above, memory below, both axes in powers."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(3.4 * len(sweeps), 6.4), layout="constrained")
    axes = figure.subplots(2, len(sweeps), sharex="col", squeeze=False)
    for (above, below), sweep in zip(axes.T, sweeps, strict=True):
        for name, curve in sweep["curves"].items():
            color, marker, line = STYLES[name]
            style = {
                "color": color,
                "marker": marker,
                "linestyle": line,
                "markersize": 4,
                "label": name,
            }
            above.plot(sweep["sizes"], curve["milliseconds"], **style)
            below.plot(sweep["sizes"], curve["peaks"], **style)
        for ax in (above, below):
            ax.set(xscale="log", yscale="log")
            ax.grid(alpha=0.3)
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.minorticks_off()
        below.set_xlabel(SWEEPS[sweep["over"]][0])
        below.set_xticks(sweep["sizes"], map(str, sweep["sizes"]))
    axes[0, 0].set_ylabel("time (ms)")
    axes[1, 0].set_ylabel("peak memory (GB)")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=len(STYLES),
        frameon=False,
    )
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
