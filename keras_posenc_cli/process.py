"""The command as a process: exit codes, streams, signals, native logs."""

import ast
import contextlib
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


class UsageError(Exception):
    """The user's input is wrong, and the user can correct it."""


def run_on_streams(work: Callable[[], int]) -> int:
    """Runs `work`; returns its exit code, whatever streams there are."""
    if sys.stderr is None:  # closed by the shell: 2>&-
        sys.stderr = open(os.devnull, "w")
    try:
        try:
            return work()
        finally:  # after --help, too, which raises SystemExit
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended: | head
        # Python flushes again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def run_in_order(
    work: Callable[[], int], is_last: bool, options: Mapping[str, str]
) -> int:
    """Runs `work`; returns its exit code, or that of its error or signal.

    `options` are the command's names of arguments that an error may name.
    """
    try:
        with _ended_in_order(is_last), _without_native_logs():
            return work()
    except BrokenPipeError:
        raise
    except UsageError as error:  # in the command's words already
        return _report_error(error, EXIT_USAGE, {})
    except ImportError as error:  # it names the extra
        return _report_error(error, EXIT_USAGE, options)
    except Exception as error:
        from keras_posenc.export.errors import ExportError

        expected = ExportError | ValueError | OSError | RuntimeError
        if not isinstance(error, expected):
            raise
        usage = isinstance(error, ValueError | FileExistsError)
        code = EXIT_USAGE if usage else EXIT_FAILED
        return _report_error(error, code, options)


@contextlib.contextmanager
def _without_native_logs() -> Iterator[None]:
    """Keeps what native code writes off standard error.

    TensorFlow does as it is imported, whatever TF_CPP_MIN_LOG_LEVEL is.
    """
    try:
        is_descriptor = sys.stderr.fileno() == 2
    except (OSError, ValueError):
        is_descriptor = False
    if not is_descriptor:
        yield
        return
    sys.stderr.flush()
    with (
        open(os.devnull, "w") as nothing,
        os.fdopen(
            os.dup(2),
            "w",
            buffering=1,
            encoding=sys.stderr.encoding,
            errors="backslashreplace",
        ) as terminal,
    ):
        os.dup2(nothing.fileno(), 2)
        try:
            with contextlib.redirect_stderr(terminal):
                yield
        finally:
            os.dup2(terminal.fileno(), 2)


@contextlib.contextmanager
def _ended_in_order(is_last: bool) -> Iterator[None]:
    """Turns signals into an exit that leaves no partial files.

    An exception raised while TensorFlow's native code calls Python may become
    any other error, or none. So the signal is remembered. If the process ends
    after this, signals are ignored from here on: Python and TensorFlow take a
    while to end, and the exit code must say what was done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    is_over = False

    def end(number: int, _: Any) -> None:
        if is_over:
            return
        received.append(number)
        sys.exit(128 + number)

    earlier = {
        number: handler
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None
        # Under nohup, and in the background of some shells, some are ignored.
        and (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    for number in earlier:
        signal.signal(number, end)
    try:
        yield
        is_over = True
    except BaseException:
        is_over = True
        if not received:
            raise
        ended = signal.Signals(received[0])
        reason = "interrupted" if ended == signal.SIGINT else "ended"
        print(f"keras-posenc: {reason} by {ended.name}", file=sys.stderr)
        sys.exit(128 + received[0])
    finally:
        for number, handler in earlier.items():
            # A constant: Python removes handlers that are functions at exit.
            signal.signal(number, signal.SIG_IGN if is_last else handler)


def in_options(message: str, options: Mapping[str, str]) -> str:
    """Returns a message of Python with options for the arguments in it.

    Arguments are in backticks, alone or with a value, or the first that was
    received, with a dict or a list. What is in quotes is the user's. A name
    with = in `options` is that of an argument with a value.
    """

    def spelled(found: re.Match[str]) -> str:
        name, has_value, code = (found[1] or found[2] or "").partition("=")
        # As a remedy, an argument with a value may be another option.
        option = options.get(name + has_value) if found[1] else None
        option = option or options.get(name)
        if option is None:
            return found[0]
        if not has_value:
            return option
        try:
            value = ast.literal_eval(code.replace("(model,", "(None,"))
        except (SyntaxError, ValueError):  # of arrays, or of Python alone
            if name == "samples":
                return f"{option} FILE.npz"
            return f"{option}={code}" if found[2] else found[0]
        if isinstance(value, bool):
            return option
        again = "," if name == "batching" else f" {option.split()[-1]} "
        # Quoted again: a file's words may be copied to a shell.
        return f"{option} {again.join(map(shlex.quote, _words(value)))}"

    plain = re.sub(r"\x1b\[[0-9;]*m", "", message)  # TensorFlow's colors
    received = r"(?<=Received: )(\w+(?:=\{[^{}]*\}|=\[[^][]*\]|(?==)))"
    code = rf"`([^`]+)`|{received}|(?<!\w)'[^']*'(?!\w)"
    return re.sub(code, spelled, plain)


def _words(value: Any) -> list[str]:
    """Returns a literal of Python as values of an option."""
    if isinstance(value, list) and {*map(type, value)} == {int}:
        return [",".join(map(str, value))]
    if not isinstance(value, dict):
        return [*map(str, value if isinstance(value, list) else [value])]
    found = []
    for name, each in value.items():
        match each:
            case (_, dict(shapes)):  # a model and shapes of its inputs
                each = ",".join(
                    f"{key}:{'x'.join(map(str, shape)).replace('None', '?')}"
                    for key, shape in shapes.items()
                )
            case list():
                each = ":".join(map(str, each))
        found.append(f"{name}={each}")
    return found


def _report_error(
    error: Exception, code: int, options: Mapping[str, str]
) -> int:
    plain = in_options(str(error), options)
    if not plain.replace("\n", "").isprintable():
        from keras_posenc.progress import printable_lines

        # It may contain text from a file, and so commands to the terminal.
        plain = printable_lines(plain)
    print(f"keras-posenc: {plain}", file=sys.stderr)
    return code
