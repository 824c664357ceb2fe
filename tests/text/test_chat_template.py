"""Chats as texts, by templates of any origin."""

import json

import pytest

from keras_posenc.text.chat_template import render
from tests.text.files import FIXTURES

EXPECTED = json.loads((FIXTURES / "chats.json").read_text("utf-8"))
HELLO = {"role": "user", "content": "Hello"}
REPLY = {"role": "assistant", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
USERS = "{% for each in messages if each.role == 'user' %}{{ each.content }}"


def test_texts_are_those_of_transformers():
    for chat in EXPECTED["chats"]:
        found = render(EXPECTED["template"], chat["messages"], tokens={})
        assert found == chat["text"]


def test_what_transformers_adds_to_jinja():
    odd = EXPECTED["odd"]
    tokens = {"bos_token": "<s>"}
    found = render(odd["template"], odd["messages"], tokens=tokens)
    assert found == odd["text"]


def test_tools_and_documents_are_none():
    """As transformers has them, rather than undefined."""
    some = "{% if tools is not none or documents is not none %}X{% endif %}"
    assert render(f"{some}{USERS}{{% endfor %}}", [HELLO], tokens={}) == "Hello"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must altern"),
        ("{% if %}", "no valid Jinja: line 1"),
        ("{# #}", r"makes an empty text.*Received: '{# #}'"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.append(1) }}Hello", "SecurityError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 'x' * 10000000000 }}", "256 MiB of memory.*without end"),
        (f"{USERS}{{% endfor %}}", "leaves out message 0.*'system'"),
    ],
)
def test_a_template_fails_with_its_reason(template, message):
    with pytest.raises(ValueError, match=message):
        render(template, [SYSTEM, HELLO], tokens={})


def test_a_template_that_loops_is_ended(monkeypatch):
    from keras_posenc.text import chat_template

    monkeypatch.setitem(chat_template._LIMITS, "seconds", 1)
    loop = "{% for _ in range(99999) %}{% for _ in range(99999) %}"
    with pytest.raises(ValueError, match=r"1 s of processor.*without end"):
        render(f"{loop}{'{% endfor %}' * 2}", [HELLO], tokens={})


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "at least one dict"),
        (HELLO, "must be a list of .* dict"),
        ([HELLO, "Hello"], "Message 1 .* 'role' and 'content'"),
        ([{"role": "human", "content": "a"}], "role='human'"),
        ([{"role": "user", "content": "\ud800"}], "lone surrogates"),
        ([{**HELLO, "time": {1, 2}}], "Message 0 .* JSON"),
        ([HELLO, REPLY], "ends with one of the role 'assistant'"),
    ],
)
def test_messages_are_checked(messages, message):
    with pytest.raises(ValueError, match=message):
        render(USERS + "{% endfor %}", messages, tokens={})
