"""Puts random faults into the package, and asks whether the tests find them.

`make mutants` first runs the tests once, and notes which of them run which
lines (coverage.py's contexts; kept in `build/mutants/`). Then for each fault a
process is forked that has the package imported, changes the code of one
function, and runs the tests that run the changed line, as many as 60 seconds
take, the shortest of each file first. A fault that none of them finds survives:
a test is missing, or the fault changes no answer.

The faults are drawn with a seed from the sources, so that two states of the
tests are asked about the same ones. Those of the worker are put into a copy of
its files, as it runs in processes of its own.
"""

import argparse
import ast
import collections
import copy
import gc
import importlib
import json
import linecache
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "mutants"
WORKER = "keras_posenc_worker"
# Of a worker's lines nobody notes which test runs them.
TESTS_OF_WORKER = (
    "tests/export/worker",
    "tests/export/test_formats.py",
    "tests/export/verification/test_replay.py",
    "tests/export/inspection",
    "tests/export/test_litertlm.py",
    "tests/text/test_chat_template.py",
    "tests/cli/test_hostile_keras_file.py",
)
PLAIN = (*("-m", "not slow"), *("-p", "no:randomly"), "-q")
SECONDS = 60  # that the tests of a fault take together, at most
BROKEN = 99  # the exit status of a process that could not ask
OTHERS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.NotIn: ast.In},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div},
    **{ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv},
    **{ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And},
}


class Fault(NamedTuple):
    """A change of one place in one line of a function."""

    file: str  # below the root
    function: str  # its qualified name, the outermost one
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self):
        return f"{self.file}:{self.line} {self.old!r} -> {self.new!r}"

    def lines(self):
        """The lines of the file with the fault in it."""
        text = (ROOT / self.file).read_text("utf-8")
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        changed = line[: self.start] + self.new.encode() + line[self.end :]
        lines[self.line - 1] = changed.decode()
        return lines


# ---- Drawing


def draw(each, seed, only):
    """Draws so many faults of each part of the package."""
    parts = collections.defaultdict(list)
    for path in sorted(ROOT.glob("keras_posenc*/**/*.py")):
        file = path.relative_to(ROOT).as_posix()
        parts[part_of(file)] += faults_of(file, path.read_text("utf-8"))
    drawn = []
    for part, faults in sorted(parts.items()):
        chosen = random.Random(f"{seed} {part}").sample(
            faults, min(each, len(faults))
        )
        drawn += sorted(f for f in chosen if only in str(f))
    return drawn


def part_of(file):
    top, *below = file.split("/")
    return below[0] if top == "keras_posenc" and len(below) > 1 else top


def faults_of(file, text):
    lines = [line.encode() for line in text.splitlines()]
    found = []
    for name, function in functions_of(ast.parse(text).body):
        for node, other in changes(function):
            start, end = node.col_offset, node.end_col_offset
            if node.lineno == node.end_lineno:
                old = lines[node.lineno - 1][start:end].decode()
                new = f"({ast.unparse(other)})"
                place = node.lineno, start, end
                found.append(Fault(file, name, *place, old, new))
    return found


def functions_of(body, above=""):
    """Yields the outermost functions, and those of classes."""
    for each in body:
        if isinstance(each, ast.FunctionDef):
            yield above + each.name, each
        elif isinstance(each, ast.ClassDef):
            yield from functions_of(each.body, f"{above}{each.name}.")


def changes(function):
    """Yields expressions, and what each may become."""
    for node in computing(function.body):
        other = copy.deepcopy(node)
        match other:
            case ast.Compare(ops=[operator]):
                other.ops = [OTHERS[type(operator)]()]
            case ast.BinOp(op=operator) | ast.BoolOp(op=operator):
                if type(operator) not in OTHERS:
                    continue
                other.op = OTHERS[type(operator)]()
            case ast.UnaryOp(op=ast.Not()):
                other = other.operand
            case ast.Constant(value=bool() as value):
                other.value = not value
            case ast.Constant(value=int() | float() as value):
                other.value = value + 1
            case ast.If(test=test) | ast.IfExp(test=test):
                node, other = node.test, ast.UnaryOp(ast.Not(), test)
            case _:
                continue
        yield node, other


def computing(nodes):
    """Yields what computes answers: no messages, types, defaults or checks."""
    for node in nodes:
        if isinstance(
            node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments
        ) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            continue
        yield node
        children = dict(ast.iter_fields(node))
        for name in ("annotation", "returns", "decorator_list"):
            children.pop(name, None)
        for child in children.values():
            several = child if isinstance(child, list) else [child]
            yield from computing([x for x in several if isinstance(x, ast.AST)])


# ---- Which tests run which lines


class Times:
    """Notes how long each test takes, as a plugin of pytest."""

    def __init__(self):
        self.seconds = collections.Counter()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration


def note(tests):
    """Runs the tests, and keeps who runs which line, and for how long."""
    import pytest

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.environ["COVERAGE_FILE"] = str(FOLDER / "lines")
    times = Times()
    code = pytest.main(
        [
            *PLAIN,
            *("-n", "2", "--dist", "loadfile"),
            *("--cov", "--cov-context=test", "--cov-report="),
            "--cov-fail-under=0",
            *tests,
        ],
        plugins=[times],
    )
    if code not in (0, 1):
        sys.exit(f"The tests cannot be run: pytest ended with {code}.")
    (FOLDER / "seconds.json").write_text(json.dumps(times.seconds))


class Notes:
    """The tests that run a line, first the shortest one of each file."""

    def __init__(self):
        from coverage import CoverageData

        self._data = CoverageData(str(FOLDER / "lines"))
        self._data.read()
        self._seconds = json.loads((FOLDER / "seconds.json").read_text())

    def tests_of(self, fault):
        if fault.file.startswith(WORKER):
            return [test for test in TESTS_OF_WORKER if (ROOT / test).exists()]
        lines = self._data.contexts_by_lineno(str(ROOT / fault.file))
        tests = {
            context.rpartition("|")[0]
            for context in lines.get(fault.line, ())
            if "|" in context
        }
        turns, files = [], collections.Counter()
        for seconds, test in sorted(
            (self._seconds.get(test, 1e9), test) for test in tests
        ):
            file = test.partition("::")[0]
            turns.append((files[file], seconds, test))
            files[file] += 1
        chosen, left = [], float(SECONDS)
        for _, seconds, test in sorted(turns):
            if seconds <= left or not chosen:
                chosen.append(test)
                left -= seconds
        return chosen


# ---- Asking


def ask(fault, tests):
    """Returns "killed", "survived", or "not run"."""
    if not tests:
        return "not run"
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(quiet, stream)
            code = in_child(fault, tests)
        finally:
            os._exit(code)
    end = time.monotonic() + 10 * SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code == BROKEN:
                sys.exit(f"Cannot be asked about: {fault}")
            return "killed" if code else "survived"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "killed"  # it does not end


def in_child(fault, tests):
    import pytest

    with tempfile.TemporaryDirectory() as folder:
        if fault.file.startswith(WORKER):
            change_worker(fault, Path(folder))
        change(fault)  # of the worker's, some are this package's too
        return int(
            pytest.main(
                [*PLAIN, "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
            )
        )


def change(fault):
    """Gives the function, wherever it is held, the code with the fault."""
    path = str(ROOT / fault.file)
    name = fault.file.removesuffix(".py").replace("/", ".")
    importlib.import_module(name.removesuffix(".__init__"))
    lines = fault.lines()
    # AutoGraph reads the source, some of it from the file again.
    read = linecache.updatecache
    linecache.cache[path] = (1, None, lines, path)
    linecache.updatecache = lambda file, *more: (
        lines if file == path else read(file, *more)
    )
    changed = collections.defaultdict(list)
    for code in codes_in(compile("".join(lines), path, "exec")):
        if f"{code.co_qualname}.".startswith(f"{fault.function}."):
            changed[code.co_qualname, code.co_firstlineno].append(code)
    for each in gc.get_objects():
        if (
            isinstance(each, types.FunctionType)
            and each.__code__.co_filename == path
        ):
            code = each.__code__
            found = changed.get((code.co_qualname, code.co_firstlineno), ())
            if len(found) == 1:  # not several lambdas of a line
                each.__code__ = found[0]


def codes_in(code):
    """Yields the code of all functions, and those within them."""
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from codes_in(each)


def change_worker(fault, folder):
    """Lets workers be started from a copy of their files with the fault."""
    worker = importlib.import_module(WORKER)
    shutil.copytree(ROOT / WORKER, folder / WORKER)
    (folder / fault.file).write_text("".join(fault.lines()), "utf-8")
    worker.__file__ = str(folder / WORKER / "__init__.py")


def main():
    """Returns 1 if more than a share of the faults survives."""
    options = parse()
    faults = draw(options.each, options.seed, options.only)
    if options.list:
        print(*faults, sep="\n")
        return 0
    os.chdir(ROOT)
    if options.note or not (FOLDER / "seconds.json").exists():
        note(options.tests)
    notes = Notes()
    sys.path.insert(0, str(ROOT))
    for name in ("tests", "tensorflow", "keras_posenc"):
        importlib.import_module(name)
    same = Fault(f"{WORKER}/cases.py", "", 1, 0, 0, "", "")
    if ask(same, notes.tests_of(same)) != "survived":
        sys.exit("Tests of the worker find a fault that is none.")
    counts = {}
    for number, fault in enumerate(faults, 1):
        start = time.monotonic()
        found = ask(fault, notes.tests_of(fault))
        counts.setdefault(part_of(fault.file), collections.Counter()).update(
            [found]
        )
        seconds = time.monotonic() - start
        print(
            f"{number}/{len(faults)} {found}: {fault} ({seconds:.1f} s)",
            flush=True,
        )
    total = sum(counts.values(), collections.Counter())
    print("\n| part | killed | survived | not run |\n| --- | --- | --- | --- |")
    for part, count in [*counts.items(), ("all", total)]:
        row = [count[kind] for kind in ("killed", "survived", "not run")]
        print(f"| {part} | {' | '.join(map(str, row))} |")
    return int(total["killed"] < options.least / 100 * total.total())


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--each", type=int, default=31, help="faults of each part (31)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="faults whose line has it"
    )
    parser.add_argument(
        "--least", type=float, default=85, help="percent to be killed (85)"
    )
    parser.add_argument(
        "--note", action="store_true", help="note again which test runs what"
    )
    parser.add_argument(
        "--list", action="store_true", help="run nothing; list the faults"
    )
    parser.add_argument(
        "tests",
        nargs="*",
        default=["tests", "keras_posenc"],
        help="where tests are",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
