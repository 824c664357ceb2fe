"""Renders a chat by the template of a checkpoint, whoever wrote it."""

import datetime
import functools
import json
from typing import Any, ClassVar

LONGEST = 4_000_000  # characters that a template may return


def main(
    template: str, messages: list[dict[str, Any]], variables: dict[str, Any]
) -> dict[str, str]:
    """Returns the `text`, an `error`, or what the template has `raised`.

    As transformers renders: blocks are trimmed, and loops have `break`.
    """
    import jinja2.ext
    import jinja2.sandbox
    from jinja2 import nodes

    class Raised(Exception):
        pass

    def raise_exception(message: str) -> None:
        raise Raised(message)

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    class Generation(jinja2.ext.Extension):
        """`{% generation %}`, around what a model writes: for training only."""

        tags: ClassVar[set[str]] = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(
                ("name:endgeneration",), drop_needle=True
            )
            return nodes.Scope(body, lineno=line)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
    )
    # Jinja's own escapes what HTML does not take.
    dumps = functools.partial(json.dumps, ensure_ascii=False)
    environment.filters["tojson"] = dumps
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    try:
        pieces, length = [], 0
        for piece in environment.from_string(template).generate(
            messages=messages,
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **variables,
        ):
            pieces.append(piece)
            length += len(piece)
            if length > LONGEST:
                return {"error": f"returns more than {LONGEST:,} characters"}
        return {"text": "".join(pieces)}
    except Raised as error:
        return {"raised": str(error)}
    except MemoryError:
        raise
    except jinja2.TemplateSyntaxError as error:
        return {"error": f"is no valid Jinja: line {error.lineno}, {error}"}
    except Exception as error:  # whatever a template calls may raise anything
        return {"error": f"fails: {type(error).__name__}, {error}"}
