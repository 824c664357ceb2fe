"""Exports every model of the table, verified, in each format: `make zoo`.

    python -m tests.zoo.run --only 'vision/*' --jobs 2
    python -m tests.zoo.run --again refused
    python -m tests.zoo.run --page

Models are built and exported in other processes, 20 in each, which have a time
limit for each model and a memory limit; after a crash the next model has a new
one. What came of a model is kept in `build/zoo/`, so that a run that was broken
off resumes; a changed entry is run again. `--page` writes the results
that there are into docs/zoo.json and docs/zoo.md. The exit status is 1 if a
model is no longer verified in a format that docs/zoo.json says it is.
"""

import argparse
import contextlib
import fnmatch
import importlib.metadata
import json
import multiprocessing
import os
import platform
import queue
import resource
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.zoo.entries import FORMATS, table
from tests.zoo.page import load, state, write_page

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "zoo"
MODELS_PER_PROCESS = 20
FILES = {"saved_model": "model", "litert": "m.tflite", "onnx": "m.onnx"}


def main():
    # Before TensorFlow is loaded; processes that are started have them too.
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    args = parse()
    entries = [
        entry
        for name, entry in table().items()
        if not args.only or any(fnmatch.fnmatch(name, x) for x in args.only)
    ]
    if args.list:
        print(*(f"{x.name}  {x.source}" for x in entries), sep="\n")
    elif args.page:
        results = load()
        found = {name: read(entry) for name, entry in table().items()}
        if found := {name: result for name, result in found.items() if result}:
            results["models"] |= found
            results |= surroundings()
        write_page(table(), results)
    else:
        args.build.mkdir(parents=True, exist_ok=True)
        run_all(entries, args)
        return report_lost(entries, args)
    return 0


def parse():
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
    return parser.parse_args()


def formats(text):
    """The formats in a list with commas."""
    chosen = text.split(",")
    if not set(chosen) <= set(FORMATS):
        raise argparse.ArgumentTypeError(f"choose of {', '.join(FORMATS)}")
    return chosen


def run_all(entries, args):
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
    idle = queue.SimpleQueue()
    done = iter(range(1, len(pending) + 1))

    def run(entry):
        result = run_one(entry, pending[entry], idle, args)
        print(
            f"[{next(done)}/{len(pending)}] {line(entry, result)} "
            f"({result['seconds']:.0f} s)",
            flush=True,
        )

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, pending))
    while not idle.empty():
        idle.get().end()


def report_lost(entries, args):
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
    for each in lost:
        print(f"no longer verified: {each}")
    return int(bool(lost))


def line(entry, result):
    """A model's result, as one line."""
    parts = []
    for name, found in result["formats"].items():
        error = found.get("error", "").strip().partition("\n")[0]
        parts.append(
            f"{name} {found['state']}" + f": {error[:150]}" * bool(error)
        )
    return f"{entry.name}: {'; '.join(parts)}"


def run_one(entry, again, idle, args):
    """Runs a model in a process, and returns all results that there are."""
    start = time.monotonic()
    cells = read(entry, args.build).get("formats", {})
    try:
        child = idle.get_nowait()
    except queue.Empty:
        child = Child(args.memory)
    cells |= child.run(entry, again, args.timeout)
    if child.left:
        idle.put(child)
    else:
        child.end()
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


class Child:
    """A process that exports one model after another, until one crashes.

    To load TensorFlow takes longer than to export a small model three times.
    """

    def __init__(self, memory):
        self.left = MODELS_PER_PROCESS
        self.log = tempfile.NamedTemporaryFile("w+", errors="replace")
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, self.log.name, int(memory * 2**30))
        )
        self.process.start()
        theirs.close()

    def run(self, entry, chosen, timeout):
        """The results of a model in each format; of a crash too."""
        cells = {}
        why = f"no result after {timeout:g} s"
        try:
            self.pipe.recv()  # it is ready
            end = time.monotonic() + timeout
            self.pipe.send([entry.builder.__module__, entry.name, chosen])
            while self.pipe.poll(max(0, end - time.monotonic())):
                cells |= self.pipe.recv()
                if len(cells) == len(chosen):
                    self.left -= 1
                    return cells
        except (EOFError, OSError):
            self.process.join()
            text = self.log.read()[-2000:].strip()
            why = f"exit status {self.process.exitcode}: {text}"
        self.left = 0
        crashed = {"state": "crashed", "error": why}
        return {name: cells.get(name, crashed) for name in chosen}

    def end(self):
        """Lets it end, or ends it with the processes that it started."""
        self.pipe.close()
        self.process.join(30 if self.left else 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.log.close()


def serve(pipe, log, memory):
    """Exports the models that are asked for, and sends each format's result."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with Path(log).open("a") as file:
        os.dup2(file.fileno(), 2)
    import keras

    # Whether the disk has what was written shows after a power failure alone.
    os.fsync = lambda descriptor: None
    # What the first export alone has to load belongs to no model.
    first = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    for name in FORMATS:
        export(first, name, {})
    with contextlib.suppress(EOFError):
        while True:
            pipe.send("ready")
            module, name, chosen = pipe.recv()
            keras.backend.clear_session()
            try:
                model, arguments = table(module)[name].build()
            except Exception as error:
                failed = {"state": "not built", "error": message(error)}
                pipe.send(dict.fromkeys(chosen, failed))
                continue
            for each in chosen:
                pipe.send({each: export(model, each, arguments)})


def export(model, name, arguments):
    """What comes of a model in a format."""
    import keras_posenc as kp

    options = {k: v for k, v in arguments.items() if k not in FORMATS}
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
    return {**cell, "seconds": round(time.perf_counter() - start, 1)}


def verified(report):
    """What is kept of the report of an export."""
    remarks = str(report).splitlines()[1:]
    return {
        "state": "verified",
        "bytes": report.size_bytes,
        "cases": len(report.cases),
        "difference": report.largest_difference,
        "remarks": remarks,
    }


def message(error, folder=""):
    """The error and its message, without the folder that was exported to."""
    text = f"{type(error).__name__}: {error}"
    return (text.replace(f"{folder}{os.sep}", "") if folder else text)[:3000]


def result_path(entry, build=BUILD):
    return build / f"{entry.name.replace('/', '.')}.json"


def read(entry, build=BUILD):
    """A model's result; empty if there is none of the entry as it is."""
    path = result_path(entry, build)
    if not path.exists():
        return {}
    result = json.loads(path.read_text(encoding="utf-8"))
    return result if result["digest"] == entry.digest else {}


def surroundings():
    """The versions of what takes part, and the processor."""
    facts = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in facts if "model name" in line]
    packages = "keras keras-hub tensorflow ai-edge-litert tf2onnx onnxruntime"
    return {
        "versions": ", ".join(
            f"{name} {importlib.metadata.version(name)}"
            for name in packages.split()
        ),
        "processor": names[0] if names else platform.machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
