"""The models of `keras-posenc chat`: Keras's, and exported ones."""

import argparse
from collections.abc import Iterator
from typing import Any, Protocol

from keras_posenc_cli.checkpoints import is_checkpoint
from keras_posenc_cli.loading import load_model
from keras_posenc_cli.process import UsageError

Chat = list[dict[str, str]]


class Replies(Protocol):
    """Replies to chats; `reading` says what is done before the first piece.

    A reply is an iterator of pieces of text. Its `ended`, if it has one, is
    False once it was cut off.
    """

    reading: str

    def prompt(self, chat: Chat) -> str: ...

    def reply(self, chat: Chat) -> Any: ...


def chat_model(options: argparse.Namespace) -> Replies:
    """Returns what the options name, loaded.

    Raises:
        UsageError: It has no chats, or an option is not for it.
    """
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

    reading = (
        "Reading the chat, and compiling the model for it: once for each of "
        "the first two lengths"
    )

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
            raise UsageError(
                f"'{options.model}' has no chat template: it continues texts. "
                "If it was trained on chats, write their template into the "
                "folder of the checkpoint, as 'chat_template.jinja', and give "
                "that folder. To continue a text, save a .keras file by "
                "`keras-posenc import FOLDER` and use `keras-posenc generate`"
            )
        given: dict[str, Any] = {}
        if options.max_new_tokens is not None:
            given["max_new_tokens"] = options.max_new_tokens
        if options.temperature is not None:
            given["temperature"] = options.temperature
        if model.beams > 1:
            given["beams"] = 1
        self._model = model.with_options(**given)
        if options.seed is not None and not self._model.is_drawn:
            raise UsageError(
                f"--seed: '{options.model}' does not sample. Give "
                "--temperature 0.7, say"
            )

    def prompt(self, chat: Chat) -> str:
        return str(self._model.prompt_of(chat))

    def reply(self, chat: Chat) -> Any:
        return self._model.stream_chat(chat, seed=self._seed)


class _Package:
    """A LiteRT-LM package, in the engine in a process of its own each time."""

    reading = "Loading the package, and reading the chat"

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
