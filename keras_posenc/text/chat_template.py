"""The text of a chat, by the template of a checkpoint."""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import Any

_WORKER = "keras_posenc_worker.render_chat"
# A template takes milliseconds. What it may use is limited all the same:
# whoever wrote the checkpoint wrote it too, and it may loop without end.
_LIMITS = {"memory": 2**28, "seconds": 4, "timeout": 30}
ROLES = ("system", "user", "assistant", "tool")


def render(
    template: str,
    messages: Any,
    *,
    tokens: Mapping[str, str],
    source: str = "The chat template",
) -> str:
    """Returns the text that a model continues with its reply.

    The template runs in Jinja's sandbox, in a process with limits of time and
    memory, as transformers' `apply_chat_template(chat, tokenize=False,
    add_generation_prompt=True)` runs it. `tokens` are special ones by the names
    that templates have for them, such as `bos_token`; `source` is what messages
    call the template.
    """
    chat = check_messages(messages)
    if importlib.util.find_spec("jinja2") is None:
        raise ImportError(
            "Chats need the library jinja2: pip install 'keras-posenc[chat]'"
        )
    from keras_posenc.export.worker_client import (
        Limits,
        WorkerError,
        run_in_worker,
    )

    try:
        found = run_in_worker(
            _WORKER,
            template,
            chat,
            dict(tokens),
            limits=Limits(**_LIMITS),
        )
    except WorkerError as error:
        raise ValueError(
            f"{source} {error}: it may loop without end. Edit the template, "
            "or render the chat yourself and pass its text to `generate`"
        ) from error
    if "raised" in found:
        raise ValueError(
            f"{source} does not take this chat, of the roles "
            f"{', '.join(each['role'] for each in chat)}: {found['raised']}"
        )
    if "error" in found:
        raise ValueError(
            f"{source} {found['error'].rstrip('.')}. Edit the template, or "
            "render the chat yourself and pass its text to `generate`"
        )
    text: str = found["text"]
    if not text.strip():
        raise ValueError(
            f"{source} makes an empty text of this chat. Edit the template, "
            "or render the chat yourself and pass its text to `generate`. "
            f"Received: {template!r:.80}"
        )
    for number, each in enumerate(chat):
        # A model's own earlier thoughts may be left out on purpose.
        if each["role"] in ("system", "user") and not _has(
            text, each["content"]
        ):
            raise ValueError(
                f"{source} leaves out message {number}, of the role "
                f"'{each['role']}': this checkpoint has no place for it. Put "
                "its content into a message of the role 'user'"
            )
    return text


def _has(text: str, content: str) -> bool:
    as_json = json.dumps(content, ensure_ascii=False)[1:-1]
    whole = "".join(text.split())
    return any("".join(x.split()) in whole for x in (content, as_json))


def check_messages(messages: Any) -> list[dict[str, str]]:
    """Returns the messages of a chat."""
    if (
        isinstance(messages, str | Mapping)
        or not isinstance(messages, Sequence)
        or not messages
    ):
        raise ValueError(
            "`messages` must be a list of at least one dict, such as "
            "[{'role': 'user', 'content': 'Hello'}]. Received: "
            f"messages={messages!r:.80}"
        )
    chat: list[dict[str, str]] = []
    for number, each in enumerate(messages):
        if not isinstance(each, Mapping) or not (
            isinstance(each.get("role"), str)
            and isinstance(each.get("content"), str)
        ):
            raise ValueError(
                f"Message {number} of `messages` must be a dict with 'role' "
                f"and 'content', both strings. Received: {each!r:.80}"
            )
        if each["role"] not in ROLES:
            raise ValueError(
                f"Message {number} of `messages` must have one of the roles "
                f"{', '.join(map(repr, ROLES))}. Received: "
                f"role={each['role']!r:.40}"
            )
        try:  # as the template's process receives it
            each["content"].encode()
            chat.append(json.loads(json.dumps(dict(each))))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Message {number} of `messages` must hold only what JSON can: "
                "Unicode without lone surrogates, numbers, lists and dicts. "
                f"Received: {each!r:.80}"
            ) from error
    if chat[-1]["role"] == "assistant":
        raise ValueError(
            "`messages` must end with a message to reply to, and ends with one "
            "of the role 'assistant'. Leave it out, or add one of the role "
            "'user'"
        )
    return chat
