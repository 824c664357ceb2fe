"""Puts faults into the package one by one, and asks whether tests find them.

`make mutants` runs them all: `python tests/mutants.py --help` says what else it
does. A mutant that survives lacks a test. One that changes no answer is none,
and does not belong here.
"""

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 300  # seconds for the tests of one mutant
PYTEST = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly"),
    *("-p", "no:cacheprovider", "-n", "0", "-m", "not slow"),
)


class Mutant(NamedTuple):
    """A fault, and who should find it.

    Attributes:
        file: Where it is, below `keras_posenc/`.
        fault: What it is, in words.
        old: What stands there, once in the file.
        new: What stands there instead.
        tests: Tests that should fail, below `tests/`, with blanks between.
    """

    file: str
    fault: str
    old: str
    new: str
    tests: str


def read(path: Path) -> list[Mutant]:
    """The faults of a file, one a paragraph.

    `file: fault`, lines of `- old` and of `+ new`, then a test a line.
    """
    mutants = []
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        head, *lines = paragraph.strip("\n").split("\n")
        if head.startswith("#"):  # a title
            continue
        old, new = (
            "\n".join(line[2:] for line in lines if line.startswith(sign))
            for sign in "-+"
        )
        tests = " ".join(x for x in lines if x[0] not in "-+")
        mutants.append(Mutant(*head.split(": ", 1), old, new, tests))
    return mutants


MUTANTS = read(Path(__file__).with_suffix(".txt"))


def main() -> int:
    """Returns 1 if a mutant survives, or cannot be asked about."""
    options = parse()
    tree = options.tree.resolve()
    chosen = [
        mutant
        for mutant in MUTANTS
        if options.only in f"{mutant.file}: {mutant.fault}"
    ]
    if not chosen:
        print(f"No mutant is of {options.only!r}.")
        return 1
    there, elsewhere, wrong = find(chosen, tree)
    for mutant in elsewhere:
        print(f"not there: {mutant.file}: {mutant.fault}")
    for line in wrong:
        print(line)
    if options.check or wrong:
        print(f"{len(there)} mutants, {len(elsewhere)} not there")
        return bool(wrong or (elsewhere and tree == ROOT))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return run_all(there, elsewhere, tree, Path(folder), options.jobs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="those whose file or fault contains it",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="how many at the same time"
    )
    parser.add_argument(
        "--tree",
        type=Path,
        default=ROOT,
        help="another checkout of the project, to be asked with its own tests",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run nothing; say whether each mutant and its tests are there",
    )
    return parser.parse_args()


def find(
    mutants: list[Mutant], tree: Path
) -> tuple[list[Mutant], list[Mutant], list[str]]:
    """Mutants that the tree has, those that it has not, and what is wrong."""
    there, elsewhere, wrong = [], [], []
    for mutant in mutants:
        file = tree / "keras_posenc" / mutant.file
        count = file.read_text().count(mutant.old) if file.exists() else 0
        (there if count == 1 else elsewhere).append(mutant)
        if count > 1:
            wrong.append(f"{mutant.file} has {count} times: {mutant.old}")
        if tree == ROOT and present_tests(mutant, tree) != wanted_tests(mutant):
            wrong.append(f"{mutant.file}: no such tests: {mutant.tests}")
    return there, elsewhere, wrong


def wanted_tests(mutant: Mutant) -> list[str]:
    return [f"tests/{test}" for test in mutant.tests.split()]


def present_tests(mutant: Mutant, tree: Path) -> list[str]:
    """Its tests; where a tree has not got one of them, the whole file."""
    found = []
    for test in wanted_tests(mutant):
        file, _, name = test.partition("::")
        if (tree / file).exists():
            text = (tree / file).read_text()
            found.append(test if f"def {name}(" in text or not name else file)
    return list(dict.fromkeys(found))


def run_all(
    mutants: list[Mutant],
    elsewhere: list[Mutant],
    tree: Path,
    folder: Path,
    jobs: int,
) -> int:
    places = [copy(tree, folder / str(job)) for job in range(jobs)]
    every = [test for mutant in mutants for test in present_tests(mutant, tree)]
    code, seconds, output = run(list(dict.fromkeys(every)), places[0])
    if code != 0:
        print(f"{output}\nThe tests fail without a mutant.")
        return 1
    print(f"Without a mutant the tests pass, in {seconds:.0f} s", flush=True)
    copies: queue.Queue[Path] = queue.Queue()
    for place in places:
        copies.put(place)
    done = []

    def try_one(mutant: Mutant) -> tuple[Mutant, str]:
        place = copies.get()
        file = place / "keras_posenc" / mutant.file
        text = file.read_text()
        try:
            file.write_text(text.replace(mutant.old, mutant.new))
            code, seconds, output = run(
                present_tests(mutant, tree), place, TIMEOUT
            )
        finally:
            file.write_text(text)
            copies.put(place)
        verdict = in_words(code, output)
        done.append(mutant)
        print(
            f"{len(done):3}/{len(mutants)} {mutant.file}: {mutant.fault}: "
            f"{verdict} in {seconds:.0f} s",
            flush=True,
        )
        if not verdict.startswith(("killed", "survived")):
            print(output)
        return mutant, verdict

    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(try_one, mutants))
    alive = [each for each in verdicts if not each[1].startswith("killed")]
    print(
        f"{len(mutants) - len(alive)} killed, {len(alive)} survived"
        + f", {len(elsewhere)} not there" * bool(elsewhere)
    )
    for mutant, verdict in alive:
        print(
            f"{verdict}: {mutant.file}: {mutant.fault}\n"
            f"  - {mutant.old}\n  + {mutant.new}\n  {mutant.tests}"
        )
    return bool(alive)


def copy(tree: Path, place: Path) -> Path:
    """What git knows of a checkout, or would, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=tree,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (tree / name).is_file():  # and not deleted
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, place / name)
    return place


def run(
    tests: list[str], place: Path, timeout: float | None = None
) -> tuple[int | None, float, str]:
    """Pytest's exit code, None after a time-out; seconds; what it printed."""
    if not tests:
        return 0, 0.0, ""
    environment = {
        **os.environ,
        "PYTHONPATH": str(place),
        # A module that is changed back within a second looks unchanged.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    began = time.monotonic()
    with subprocess.Popen(
        # Temporary folders of its own: pytest sweeps those of others.
        [*PYTEST, f"--basetemp={place}-tmp", *tests],
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None, time.monotonic() - began, ""
    return process.returncode, time.monotonic() - began, output


def in_words(code: int | None, output: str) -> str:
    """What pytest's exit code, and what it printed, say of a mutant."""
    if code is None:
        return f"killed by the time-out of {TIMEOUT} s"
    if code < 0:
        return f"killed by signal {-code}"
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\w+)", output, re.MULTILINE)
    if code == 1 and failed:
        return f"killed by {failed[1]}"
    known = {0: "survived", 5: "no test ran"}
    return known.get(code, f"pytest failed ({code})")


if __name__ == "__main__":
    sys.exit(main())
