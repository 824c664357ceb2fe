"""`keras-posenc chat`: a chat with a language model, in the terminal."""

import argparse
import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.chat_models import Replies, chat_model
from keras_posenc_cli.loading import check_exists
from keras_posenc_cli.options import (
    Commands,
    add_command,
    option_names,
)
from keras_posenc_cli.process import EXIT_OK, UsageError, in_options

_HELP = "/reset starts again, /quit ends. Ctrl-C stops a reply."
# What a terminal obeys: a reply may contain anything.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def add(commands: Commands) -> None:
    add_command(
        commands,
        "chat",
        run,
        (
            "model MODEL",
            "folder of a Hugging Face checkpoint, .keras file that `import` "
            "wrote, or .litertlm package",
            arguments.path,
        ),
        ("--system TEXT", "what the model is told first"),
        ("--prompt TEXT", "print the reply to this message, and end"),
        (
            "--max-new-tokens N",
            "most tokens of a reply (default: the checkpoint's, or 256)",
            arguments.length,
        ),
        (
            "--temperature X",
            "sample at this temperature; 0 takes the most likely token "
            "(default: as the checkpoint says)",
            arguments.tolerance,
        ),
        "--seed",
        "--import",
        "--allow-op",
        summary="chat with a language model",
        description="Chats with a language model in the terminal, by the "
        "template of its checkpoint. Without a terminal, standard input is one "
        "message. Needs keras-posenc[chat], and for a folder "
        "keras-posenc[checkpoints].",
        example='chat SmolLM2 --prompt "Capital of France?"',
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.model)
    is_one = options.prompt is not None or not _is_terminal()
    message = ""
    if is_one:
        message = options.prompt
        if message is None:
            message = _read_all()
        if not message.strip():
            raise UsageError(
                "--prompt is empty"
                if options.prompt is not None
                else "standard input holds no message"
            )
    replies = chat_model(options)
    system = [{"role": "system", "content": options.system}]
    begin = system if options.system is not None else []
    if begin:  # now, not after the first message
        try:
            replies.prompt([*begin, {"role": "user", "content": "Hello"}])
        except ValueError as error:
            raise UsageError(f"--system: {error}") from error
    if is_one:
        chat = [*begin, {"role": "user", "content": message}]
        _, is_whole = _print_reply(replies, chat, lambda: False)
        _tell_cut_off(is_whole)
        return EXIT_OK
    with _interrupts() as interrupts:
        _converse(replies, begin, interrupts, option_names(options.parser))
    return EXIT_OK


class _Interrupts:
    """Ctrl-C: ends what is being typed, or the reply, and not the chat."""

    def __init__(self) -> None:
        self.waits = False
        self.came = False

    def handle(self, number: int, frame: Any) -> None:
        if self.waits:
            raise KeyboardInterrupt
        self.came = True  # seen at the next token: native code may be running


@contextlib.contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    found = _Interrupts()
    earlier = signal.signal(signal.SIGINT, found.handle)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, earlier)


def _converse(
    replies: Replies,
    begin: list[dict[str, str]],
    interrupts: _Interrupts,
    names: Mapping[str, str],
) -> None:
    """Reads messages and prints replies, until the user ends it."""
    with contextlib.suppress(ImportError):
        import readline  # lines can be edited then

        # Several lines that are pasted are one message.
        readline.parse_and_bind("set enable-bracketed-paste on")
    print(_HELP, file=sys.stderr)
    chat = [*begin]
    while True:
        interrupts.waits = True
        try:
            message = input("> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            print(_HELP, file=sys.stderr)
            continue
        finally:
            interrupts.waits = interrupts.came = False
        if message.strip() == "/quit":
            return
        if message.strip() == "/reset":
            chat = [*begin]
            continue
        if message.startswith("/"):
            print(_HELP, file=sys.stderr)
            continue
        if not message.strip():
            continue
        asked = [*chat, {"role": "user", "content": message}]
        try:
            text, is_whole = _print_reply(
                replies, asked, lambda: interrupts.came
            )
        except (ValueError, UsageError) as error:  # it may be too long
            words = _shown(in_options(str(error), names))
            if len(chat) > len(begin):
                words += ". /reset starts a new chat"
            print(f"keras-posenc: {words}", file=sys.stderr)
            continue
        if interrupts.came:
            print("keras-posenc: stopped", file=sys.stderr)
        else:
            _tell_cut_off(is_whole)
        chat = [*asked, {"role": "assistant", "content": text}]


def _print_reply(
    replies: Replies,
    chat: list[dict[str, str]],
    is_stopped: Callable[[], bool],
) -> tuple[str, bool]:
    """Prints a reply as it is generated; returns it, and whether it ended."""
    from keras_posenc.progress import progress

    with progress(sys.stderr.isatty()) as step:
        step(replies.reading)
        reply = replies.reply(chat)
        piece = next(reply, None)
    text = ""
    while piece is not None:
        text += piece
        print(
            _shown(piece) if sys.stdout.isatty() else piece, end="", flush=True
        )
        piece = None if is_stopped() else next(reply, None)
    print(flush=True)
    return text, getattr(reply, "ended", True) is not False


def _tell_cut_off(is_whole: bool) -> None:
    if not is_whole:
        print(
            "keras-posenc: the reply was cut off: --max-new-tokens sets its "
            "length",
            file=sys.stderr,
        )


def _shown(text: str) -> str:
    """Returns a text with escapes for what a terminal obeys."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _read_all() -> str:
    if sys.stdin is None:  # closed by the shell: <&-
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("standard input is no UTF-8") from error
