"""Serves an exported model by the endpoints of OpenAI's API too.

    python openai_api.py --model_name chat --model_dir serving/chat
        --checkpoint SmolLM2-135M-Instruct
    python openai_api.py --model_name minilm --model_dir serving/minilm

`/openai/v1/chat/completions` writes the next message of a chat, at once or as a
stream. It needs a SavedModel with the signatures of `chat_signatures()`, and
the folder that the model was loaded from, for its template of chats. The tokens
are chosen here: the most likely one each time, or sampled where a request has a
`temperature` above 0.

`/openai/v1/embeddings` gives a vector for each text. It needs a SavedModel from
texts to vectors.

All else is as in predictor.py, of the same folder. Needs what that needs for
SavedModels, and jinja2.
"""

import asyncio
import base64
import datetime
import json
import re
import time
import uuid
from pathlib import Path
from types import NoneType

import numpy as np
import orjson
import predictor
from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse
from kserve.errors import InvalidInput
from kserve.logging import logger
from kserve.model_server import app

SERVED = re.compile(
    predictor.SERVED.pattern
    + "|POST /openai/v1/(chat/completions|embeddings)|GET /openai/v1/models"
)
# What a request may have, and of which types.
_CHAT = {
    "model": str,
    "messages": list,
    "stream": (bool, NoneType),
    "stream_options": (dict, NoneType),
    "max_tokens": (int, NoneType),
    "max_completion_tokens": (int, NoneType),
    "stop": (str, list, NoneType),
    "temperature": (int, float, NoneType),
    "top_p": (int, float, NoneType),
    "seed": (int, NoneType),
}
_EMBEDDINGS = {
    "model": str,
    "input": (str, list),
    "encoding_format": (str, NoneType),
    "dimensions": (int, NoneType),
}
# What may be given, but not changed. Nothing depends on `user`.
_FIXED = {
    "n": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logprobs": False,
}


class Template:
    """How a checkpoint makes a text of a chat."""

    def __init__(self, folder):
        import jinja2.sandbox

        given = _read(folder / "tokenizer_config.json")
        template = given.get("chat_template")
        file = folder / "chat_template.jinja"
        if file.exists():
            template = file.read_text("utf-8")
        if isinstance(template, list):  # several, by name
            template = {each["name"]: each["template"] for each in template}
            template = template.get("default")
        if template is None:
            raise ValueError(f"{folder} has no template of chats")
        # As transformers has them.
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _now
        self.template = environment.from_string(template)
        self.tokens = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in given.items()
            if name.endswith("_token") and isinstance(value, dict | str)
        }
        config = _read(folder / "config.json")
        self.positions = config.get("max_position_embeddings")

    def render(self, messages):
        """The text that the model continues."""
        import jinja2

        chat = [_message(each) for each in messages]
        if not chat or chat[-1]["role"] == "assistant":
            raise InvalidInput("`messages` must end with one to reply to")
        try:
            return self.template.render(
                messages=chat,
                tools=None,
                add_generation_prompt=True,
                **self.tokens,
            )
        except jinja2.TemplateError as error:
            raise InvalidInput(
                f"The template does not take this chat: {error}"
            ) from None


def _read(path):
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _to_json(value, **options):
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _raise(message):
    raise InvalidInput(f"The template does not take this chat: {message}")


def _now(form):
    return datetime.datetime.now().strftime(form)


def _message(each):
    """A message whose content is a text, also if given in parts."""
    content = each.get("content") if isinstance(each, dict) else None
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text"
        for part in content
    ):
        content = "".join(str(part.get("text")) for part in content)
    roles = ("system", "user", "assistant", "tool")
    if not isinstance(content, str) or each.get("role") not in roles:
        raise InvalidInput(
            "Each of `messages` must have a `role`, system, user, assistant or "
            "tool, and a text as its `content`"
        )
    return {**each, "content": content}


class Reply:
    """The next message of a chat, in pieces.

    Attributes:
        ended: Whether it is complete; else it was cut off.
        prompt_tokens: How many tokens come before it.
        ids: Its tokens so far.
    """

    def __init__(self, signatures, prompt, body, positions):
        self.signatures, self.prompt = signatures, prompt
        self.positions = positions
        stop = body.get("stop") or []
        self.stop = [stop] if isinstance(stop, str) else stop
        if not all(isinstance(each, str) and each for each in self.stop):
            raise InvalidInput("`stop` must be a text or texts, none empty")
        limits = (
            body.get(f"max_{which}tokens") for which in ("completion_", "")
        )
        limits = [each for each in limits if each is not None]
        self.most = min(limits, default=np.inf)
        if self.most < 1:
            raise InvalidInput("`max_tokens` must be above 0")
        self.temperature = body.get("temperature") or 0
        self.top_p = body["top_p"] if body.get("top_p") is not None else 1
        # Logits that are divided by less are infinite.
        is_known = self.temperature == 0 or 1e-30 <= self.temperature <= 2
        if not (is_known and 0 < self.top_p <= 1):
            raise InvalidInput(
                "`temperature` must be 0, or in [1e-30, 2], and `top_p` in "
                "(0, 1]"
            )
        seed = body.get("seed")
        self.draw = np.random.default_rng(None if seed is None else abs(seed))
        self.ended, self.ids, self.prompt_tokens = False, [], 0

    def __iter__(self):
        """Yields a piece for each token, which may be empty."""
        sent = ""
        for text, is_last in self._texts():
            places = [text.find(each) for each in self.stop if each in text]
            if places:
                text, self.ended = text[: min(places)], True
            elif not is_last:
                text = text[: self._certain(text)]
            if text.startswith(sent):
                yield text[len(sent) :]
                sent = text
            if places:
                return

    def _texts(self):
        """Yields the text so far, and whether it is all of it."""
        run = {name: each.run for name, each in self.signatures.items()}
        state = run["prompt"](
            {"text": np.array([self.prompt.encode()], object)}
        )
        # The last one of a prompt is read in the first step.
        self.prompt_tokens = int(state["tokens"].sum()) + 1
        room = (self.positions or np.inf) - self.prompt_tokens
        if room < 1:
            raise InvalidInput(
                f"The chat has {self.prompt_tokens} tokens, and the model has "
                f"{self.positions} positions"
            )
        text = ""
        while len(self.ids) < min(room, self.most):
            found = run["decode"](state)
            logits = found.pop("logits")[0]
            if np.isnan(logits).any():  # there is no room for another one
                break
            token = self._choose(logits)
            state.update(found, token=np.array([token], "int32"))
            self.ids.append(token)
            said = run["detokenize"]({"ids": np.array([self.ids], "int32")})
            text, self.ended = said["text"][0].decode(), bool(said["ended"][0])
            if self.ended:
                break
            yield text, False
        if not self.ids:
            raise InvalidInput("The model gives NaN: the chat may be too long")
        yield text, True

    def _choose(self, logits):
        if not self.temperature:
            return int(logits.argmax())
        logits = logits.astype("float64") / self.temperature
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        if self.top_p < 1:  # the fewest that have this share together
            order = np.argsort(-shares)
            before = np.cumsum(shares[order]) - shares[order]
            shares[order[before >= self.top_p]] = 0
        return int(self.draw.choice(len(shares), p=shares / shares.sum()))

    def _certain(self, text):
        """How many characters no later token changes, or makes a stop of."""
        text = text.rstrip("\ufffd")  # a part of a character
        for begin in range(len(text)):
            if any(each.startswith(text[begin:]) for each in self.stop):
                return begin
        return len(text)

    def usage(self):
        """The numbers of tokens."""
        counts = self.prompt_tokens, len(self.ids)
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        return dict(zip(names, (*counts, sum(counts)), strict=True))


class Api:
    """The routes of a predictor.

    Args:
        model: A `Predictor`.
        template: A `Template`, or None without chats.
    """

    def __init__(self, model, template):
        self.model, self.template = model, template

    async def models(self):
        """The model's name."""
        return {
            "object": "list",
            "data": [
                {
                    "id": self.model.name,
                    "object": "model",
                    "created": 0,
                    "owned_by": "",
                }
            ],
        }

    async def embeddings(self, request: Request):
        """A vector for each text."""
        return await self._answer(request, _EMBEDDINGS, self._embed)

    async def chat(self, request: Request):
        """The next message of a chat."""
        return await self._answer(request, _CHAT, self._chat)

    async def _answer(self, request, known, answer):
        try:
            found = await answer(self._checked(await request.body(), known))
            return JSONResponse(found) if isinstance(found, dict) else found
        except InvalidInput as error:
            logger.warning("Refused: %.200r", str(error))
            said = {
                "message": str(error),
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
            return JSONResponse({"error": said}, 400)

    def _checked(self, content, known):
        try:
            body = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise InvalidInput(f"The body is not JSON: {error}") from None
        if not isinstance(body, dict) or body.get("model") != self.model.name:
            raise InvalidInput(f"`model` must be {self.model.name!r}")
        for name, value in body.items():
            if name in known:
                is_flag = isinstance(value, bool) and name != "stream"
                if is_flag or not isinstance(value, known[name]):
                    raise InvalidInput(f"`{name}` cannot be {value!r:.40}")
            elif name != "user" and value not in (None, [], _FIXED.get(name)):
                raise InvalidInput(f"`{name}` is not supported")
        for name in known:
            if not isinstance(None, known[name]) and name not in body:
                raise InvalidInput(f"`{name}` is missing")
        return body

    async def _in_turn(self, function, *args):
        """Runs it in a thread, of as many as there are processors."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self.model.executor, function, *args
            )
        except self.model.signatures[predictor.DEFAULT].refusals as error:
            raise InvalidInput(
                f"The model does not take it: {predictor.reason(error)}"
            ) from None

    async def _embed(self, body):
        signature = self.model.signatures[predictor.DEFAULT]
        if [each.dtype for each in signature.inputs.values()] != [object]:
            raise InvalidInput("The model does not take texts")
        form = body.get("encoding_format") or "float"
        if form not in ("float", "base64"):
            raise InvalidInput("`encoding_format` must be float or base64")
        rows = (
            [body["input"]] if isinstance(body["input"], str) else body["input"]
        )
        self.model.validate({"instances": rows})
        ((name, spec),) = signature.inputs.items()
        texts = self.model.tensor("input", spec, rows, True)
        outputs = await self._in_turn(signature.run, {name: texts})
        vectors = [each for each in outputs.values() if each.ndim == 2]
        if len(vectors) != 1 or vectors[0].dtype.kind != "f":
            raise InvalidInput("The model does not give one vector for a text")
        width = vectors[0].shape[1]
        if body.get("dimensions") not in (None, width):
            raise InvalidInput(f"`dimensions` can only be {width}")
        found = vectors[0].astype("<f4")
        return {
            "object": "list",
            "model": self.model.name,
            "data": [
                {
                    "object": "embedding",
                    "index": place,
                    "embedding": base64.b64encode(each.tobytes()).decode()
                    if form == "base64"
                    else each.tolist(),
                }
                for place, each in enumerate(found)
            ],
        }

    async def _chat(self, body):
        signatures = self.model.signatures
        if self.template is None or not {"prompt", "decode"} <= set(signatures):
            raise InvalidInput(
                "The model does not chat: export it with signatures="
                "model.chat_signatures(), and give the server --checkpoint"
            )
        prompt = self.template.render(body["messages"])
        if len(prompt.encode()) > self.model.max_bytes:
            raise InvalidInput(f"A chat may have {self.model.max_bytes} bytes")
        reply = Reply(signatures, prompt, body, self.template.positions)
        steps = iter(reply)
        # Before the status of the response: a chat may be refused.
        first = await self._in_turn(next, steps, None)

        async def pieces():
            piece = first
            while piece is not None:
                yield piece
                piece = await self._in_turn(next, steps, None)

        about = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": self.model.name,
        }
        if body.get("stream"):
            counts = (body.get("stream_options") or {}).get("include_usage")
            return StreamingResponse(
                _events(pieces(), reply, about, counts),
                media_type="text/event-stream",
            )
        content = "".join([piece async for piece in pieces()])
        message = {"role": "assistant", "content": content}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": _reason(reply),
        }
        return {
            **about,
            "object": "chat.completion",
            "choices": [choice],
            "usage": reply.usage(),
        }


def _reason(reply):
    return "stop" if reply.ended else "length"


async def _events(pieces, reply, about, counts):
    """The lines of a stream."""
    about = {**about, "object": "chat.completion.chunk"}

    def line(delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _line({**about, "choices": [choice]})

    yield line({"role": "assistant", "content": ""})
    async for piece in pieces:
        if piece:
            yield line({"content": piece})
    yield line({}, _reason(reply))
    if counts:
        yield _line({**about, "choices": [], "usage": reply.usage()})
    yield "data: [DONE]\n\n"


def _line(content):
    return f"data: {orjson.dumps(content).decode()}\n\n"


def add_routes(app, model, template):
    """Adds the endpoints of a `Predictor`; `template` may be None."""
    api, root = Api(model, template), "/openai/v1"
    app.add_api_route(f"{root}/models", api.models)
    for name, route in (
        ("chat/completions", api.chat),
        ("embeddings", api.embeddings),
    ):
        app.add_api_route(
            f"{root}/{name}", route, methods=["POST"], response_model=None
        )


def main():
    """Serves until it is ended."""
    parser = predictor.command_line(__doc__)
    parser.add_argument(
        "--checkpoint", type=Path, help="the folder of the model, for chats"
    )
    options = parser.parse_args()

    folder = options.checkpoint
    template = None if folder is None else Template(folder)
    predictor.serve(
        options, SERVED, lambda model: add_routes(app, model, template)
    )


if __name__ == "__main__":
    main()
