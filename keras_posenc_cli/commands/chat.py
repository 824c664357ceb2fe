"""`keras-posenc chat`: a chat with a language model, in the terminal."""

import argparse
import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, is_checkpoint, load_model
from keras_posenc_cli.options import (
    Commands,
    add_command,
    option_names,
)
from keras_posenc_cli.process import EXIT_OK, UsageError, in_options

Chat = list[dict[str, str]]


def chat_model(options: argparse.Namespace) -> Any:
    """Returns what the options name, loaded."""
    path = options.model
    if path.suffix == ".keras" or is_checkpoint(path):
        return _Model(options)
    if path.suffix != ".litertlm":
        raise UsageError(
            f"'{path}' must be the folder of a checkpoint, a .keras file of "
            "one, or a .litertlm package"
        )
    return _Package(options)


class _Model:
    """A model in this process, which streams."""

    waiting = "Compiling the model, once for this chat"

    def __init__(self, options: argparse.Namespace) -> None:
        self._seed = options.seed
        model = load_model(options.model, options.imports)
        from keras_posenc.checkpoints.pretrained_generator import (
            PretrainedGenerator,
        )

        if not isinstance(model, PretrainedGenerator):
            raise UsageError(
                f"'{options.model}' is a {type(model).__name__}, and a chat "
                "needs a template. Give the folder of a Hugging Face "
                "checkpoint, or the .keras file that `keras-posenc import` "
                "writes of it. A model of your own: save "
                "kp.PretrainedGenerator(model, source_tokenizer=..., "
                "chat_template='{{ messages[-1].content }}')"
            )
        if model.chat_template is None:
            how = "set its attribute chat_template in Python, and save it again"
            if is_checkpoint(options.model):
                how = "write it into this folder, as 'chat_template.jinja'"
            raise UsageError(
                f"'{options.model}' has no chat template: it continues texts, "
                "by `keras-posenc generate`. If it was trained on chats, give "
                f"it their template: {how}"
            )
        given = {"beams": 1} if model.beams > 1 else {}
        for name in ("max_new_tokens", "temperature"):
            if getattr(options, name) is not None:
                given[name] = getattr(options, name)
        self._model = model.with_options(**given)
        if options.seed is not None and not self._model.is_drawn:
            raise UsageError(
                f"--seed: '{options.model}' does not sample. Give "
                "--temperature 0.7, say"
            )

    def prepare(self) -> None:
        """Compiles the model, once for all lengths."""
        from keras_posenc.progress import progress

        with progress(sys.stderr.isatty()) as step:
            step(self.waiting)
            chat = [{"role": "user", "content": "Hello"}]
            next(self._model.stream_chat(chat), None)
        self.waiting = "Reading the chat"

    def prompt(self, chat: Chat) -> str:
        return str(self._model.prompt_of(chat))

    def reply(self, chat: Chat) -> Any:
        return self._model.stream_chat(chat, seed=self._seed)


class _Package:
    """A LiteRT-LM package, in the engine in a process of its own each time."""

    waiting = "Reading the chat"

    def __init__(self, options: argparse.Namespace) -> None:
        from keras_posenc.export.formats.litertlm_run import require_engine
        from keras_posenc.export.inspect import inspect_safe

        require_engine()
        if options.seed is not None and options.temperature is None:
            raise UsageError("--seed needs --temperature, such as 0.7")
        found = inspect_safe(options.model, options.allow_operators)
        self._path = options.model
        self._template: str = (found.package or {}).get("template") or ""
        if not self._template:
            makes_vectors = "text_encoder" in (found.package or {})["models"]
            raise UsageError(
                f"'{options.model}' makes vectors of texts, not replies: use "
                "it in an application (docs/litertlm.md)"
                if makes_vectors
                else f"'{options.model}' has no chat template: its model "
                "continues texts. LiteRT-LM's Session does that "
                "(docs/litertlm.md)"
            )
        sampler = None
        if options.temperature == 0:
            sampler = {"top_k": 1, "temperature": 1.0}
        elif options.temperature is not None:
            sampler = {"temperature": options.temperature, "top_p": 1.0}
            sampler["seed"] = options.seed or 0
        self._options = {"count": options.max_new_tokens, "sampler": sampler}

    def prepare(self) -> None:
        """Does nothing: the engine is started for each reply."""

    def prompt(self, chat: Chat) -> str:
        from keras_posenc.text.chat_template import render

        return render(self._template, chat, tokens={})

    def reply(self, chat: Chat) -> Iterator[str]:
        import dataclasses

        from keras_posenc.export.formats.litertlm_run import (
            limits_of_engine,
            named_package,
        )
        from keras_posenc.export.worker_client import Worker, WorkerError
        from keras_posenc_worker import run_litertlm

        # A reply takes as long as its reader likes.
        limits = dataclasses.replace(
            limits_of_engine(self._path, 0), seconds=None
        )
        with (
            named_package(self._path) as package,
            Worker(run_litertlm.__name__) as worker,
        ):
            worker.call(
                "reply", str(package), chat, self._options, limits=limits
            )
            try:
                while "piece" in (found := worker.response()):
                    yield found["piece"]
            except WorkerError as error:
                raise ValueError(
                    f"LiteRT-LM's engine {error} while it ran '{self._path}'"
                ) from error
        if "error" in found:
            raise ValueError(
                f"LiteRT-LM's engine does not reply: {found['error']}"
            )


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
        message = _read_all() if options.prompt is None else options.prompt
        if not message.strip():
            where = "standard input" if options.prompt is None else "--prompt"
            raise UsageError(f"{where} is empty")
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
    replies.prepare()
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
    replies: Any,
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
    replies: Any,
    chat: list[dict[str, str]],
    is_stopped: Callable[[], bool],
) -> tuple[str, bool]:
    """Prints a reply as it is generated; returns it, and whether it ended."""
    from keras_posenc.progress import progress

    with progress(sys.stderr.isatty()) as step:
        step(replies.waiting)
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
