"""Exports every model of the table, verified, in each format: `make zoo`.

    python -m tests.zoo.run --only 'vision/*' --jobs 2
    python -m tests.zoo.run --again refused
    python -m tests.zoo.run --page

Each model is built and exported in a process of its own, which has a time and
memory limit. What came of it is kept in `build/zoo/`, so that a run that was
broken off resumes; a changed entry is run again. `--page` writes the results
that there are into docs/zoo.json and docs/zoo.md. The exit status is 1 if a
model is no longer verified in a format that docs/zoo.json says it is.
"""

import argparse
import concurrent.futures
import fnmatch
import importlib.metadata
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.zoo.entries import FORMATS, Entry, table
from tests.zoo.page import load, state, write_page

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "zoo"
FILES = {"saved_model": "model", "litert": "m.tflite", "onnx": "m.onnx"}


def main() -> int:
    # Before TensorFlow is loaded; processes that are started have them too.
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    args = parse()
    if args.child:
        module, name = args.child
        run_child(table(module)[name], args.formats)
        return 0
    entries = [
        entry
        for name, entry in table().items()
        if not args.only or any(fnmatch.fnmatch(name, x) for x in args.only)
    ]
    if args.list:
        print(*(f"{x.name}  {x.source}" for x in entries), sep="\n")
    elif args.page:
        results = load()
        if found := kept(table()):
            results["models"] |= found
            results |= surroundings()
        write_page(table(), results)
    else:
        args.build.mkdir(parents=True, exist_ok=True)
        run_all(entries, args)
        return report_lost(entries, args)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--only", action="append", help="names, such as 'applications/*'")
    add("--formats", type=formats, default=",".join(FORMATS), help="of these")
    add("--jobs", type=int, default=1, help="models at a time")
    add("--again", help="run again: a state such as 'refused', or 'all'")
    add("--timeout", type=float, default=1200, help="seconds for a model")
    add("--memory", type=float, default=12, help="GB for each process")
    add("--build", type=Path, default=BUILD, help="where results are kept")
    add("--list", action="store_true", help="list the models, and end")
    add("--page", action="store_true", help="write the page, and end")
    add("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def formats(text: str) -> list[str]:
    """The formats in a list with commas."""
    chosen = text.split(",")
    if not set(chosen) <= set(FORMATS):
        raise argparse.ArgumentTypeError(f"choose of {', '.join(FORMATS)}")
    return chosen


def run_all(entries: list[Entry], args: argparse.Namespace) -> None:
    """Runs what has no result, and prints a line for each model."""
    pending = {}
    for entry in entries:
        cells = read(entry, args.build).get("formats", {})
        again = [
            name
            for name in args.formats
            if name not in cells or args.again in ("all", cells[name]["state"])
        ]
        if again:
            pending[entry] = again
    print(f"{len(entries)} models, {len(pending)} to run", flush=True)
    known, spent, lock = load()["models"], [], threading.Lock()

    def run(entry: Entry) -> None:
        start = time.monotonic()
        result = run_one(entry, pending[entry], args)
        with lock:
            spent.append(time.monotonic() - start)
            waiting = list(pending)[len(spent) :]
            mean = sum(spent) / len(spent)
            left = sum(
                known.get(x.name, {}).get("seconds", mean) for x in waiting
            )
            print(
                f"[{len(spent)}/{len(pending)}] {line(entry, result)} "
                f"({spent[-1]:.0f} s; {left / args.jobs / 60:.0f} min left)",
                flush=True,
            )

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, pending))


def report_lost(entries: list[Entry], args: argparse.Namespace) -> int:
    """Prints what was verified and is not, and returns whether there is any."""
    known = load()["models"]
    lost = [
        f"{entry.name}: {name}"
        for entry in entries
        for name in args.formats
        if state(known, entry, name)
        == "verified"
        != state({entry.name: read(entry, args.build)}, entry, name)
    ]
    print(*(f"no longer verified: {each}" for each in lost), sep="\n")
    return int(bool(lost))


def line(entry: Entry, result: Mapping[str, Any]) -> str:
    """A model's result, as one line."""
    parts = []
    for name, found in result["formats"].items():
        error = found.get("error", "").strip().partition("\n")[0]
        parts.append(
            f"{name} {found['state']}" + f": {error[:150]}" * bool(error)
        )
    return f"{entry.name}: {'; '.join(parts)}"


def run_one(
    entry: Entry, again: list[str], args: argparse.Namespace
) -> dict[str, Any]:
    """Runs a model in a process, and returns all results that there are."""
    limit = int(args.memory * 2**30)
    start = time.monotonic()
    result = read(entry, args.build)
    cells = result.get("formats", {})
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.zoo.run"),
                *("--formats", ",".join(again)),
                *("--child", entry.builder.__module__, entry.name),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_DATA, (limit, limit)
            ),
        )
        timer = threading.Timer(args.timeout, end, [process])
        timer.start()
        for text in process.stdout:
            if text.startswith("RESULT "):
                cells |= json.loads(text.removeprefix("RESULT "))
        code = process.wait()
        is_late = not timer.is_alive()
        timer.cancel()
        if code:
            log.seek(0)
            why = (
                f"no result after {args.timeout:g} s"
                if is_late
                else f"exit status {code}: " + log.read()[-2000:].strip()
            )
            for name in again:
                if cells.get(name, {}).get("state") in (None, "running"):
                    cells[name] = {"state": "crashed", "error": why}
    result = {
        "name": entry.name,
        "digest": entry.digest,
        "seconds": round(time.monotonic() - start, 1),
        "formats": {name: cells[name] for name in FORMATS if name in cells},
    }
    path = result_path(entry, args.build)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1), encoding="utf-8")
    partial.replace(path)
    return result


def end(process: subprocess.Popen) -> None:
    """Ends a process that takes too long, with those that it started."""
    os.killpg(process.pid, signal.SIGKILL)


def run_child(entry: Entry, chosen: list[str]) -> None:
    """Builds and exports a model; each format's result is a line."""
    import keras_posenc as kp

    try:
        model, arguments = entry.build()
    except Exception as error:
        failed = {"state": "not built", "error": message(error)}
        say(dict.fromkeys(chosen, failed))
        return
    options = {k: v for k, v in arguments.items() if k not in FORMATS}
    for name in chosen:
        say({name: {"state": "running"}})
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            try:
                exported = getattr(kp, f"export_{name}")(
                    model,
                    Path(folder, FILES[name]),
                    verbose=False,
                    **{**options, **arguments.get(name, {})},
                )
                cell = verified(exported.report)
            except kp.ExportVerificationError as error:
                cell = {"state": "wrong", "error": message(error, folder)}
            except Exception as error:
                cell = {"state": "refused", "error": message(error, folder)}
            cell["seconds"] = round(time.perf_counter() - start, 1)
            say({name: cell})


def verified(report: Any) -> dict[str, Any]:
    """What is kept of the report of an export."""
    remarks = str(report).splitlines()[1:]
    return {
        "state": "verified",
        "bytes": report.size_bytes,
        "cases": len(report.cases),
        "difference": report.largest_difference,
        "remarks": remarks,
    }


def message(error: Exception, folder: str = "") -> str:
    """The error and its message, without the folder that was exported to."""
    text = f"{type(error).__name__}: {error}"
    return (text.replace(f"{folder}{os.sep}", "") if folder else text)[:3000]


def say(cells: Mapping[str, Any]) -> None:
    print("\nRESULT " + json.dumps(cells), flush=True)


def result_path(entry: Entry, build: Path = BUILD) -> Path:
    return build / f"{entry.name.replace('/', '.')}.json"


def read(entry: Entry, build: Path = BUILD) -> dict[str, Any]:
    """A model's result; empty if there is none of the entry as it is."""
    path = result_path(entry, build)
    if not path.exists():
        return {}
    result = json.loads(path.read_text(encoding="utf-8"))
    return result if result["digest"] == entry.digest else {}


def kept(entries: Mapping[str, Entry]) -> dict[str, Any]:
    """All results in build/zoo, by name."""
    results = {name: read(entry) for name, entry in entries.items()}
    return {name: result for name, result in results.items() if result}


def surroundings() -> dict[str, str]:
    """The versions of what takes part, and the processor."""
    from keras_posenc.export.processor import processor

    packages = "keras keras-hub tensorflow ai-edge-litert tf2onnx onnxruntime"
    return {
        "versions": ", ".join(
            f"{name} {importlib.metadata.version(name)}"
            for name in packages.split()
        ),
        "processor": processor(),
    }


if __name__ == "__main__":
    sys.exit(main())
