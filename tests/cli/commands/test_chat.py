"""`keras-posenc chat`."""

import builtins
import io
import os
import re
import signal
import sys

import pytest

from keras_posenc_cli import main

pytestmark = pytest.mark.tensorflow

# Each message on a line of its own: its role and its text.
TEMPLATE = "{% for m in messages %}{{ m.role + ':' + m.content }}\n{% endfor %}"
STRICT = "{{ raise_exception('no chats') if messages | length > 1 }}"


@pytest.fixture(scope="module")
def models():
    """Language models of bytes, with random weights, by names of files."""
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    model = kp.TransformerDecoderModel(
        260, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
    )
    for each in model.weights:
        each.assign(keras.random.normal(each.shape, seed=len(each.path)))
    options = {
        "source_tokenizer": kp.ByteTokenizer(add_start=False, add_end=False),
        "max_length": 9,
        "max_positions": 80,
        "beams": 2,  # which a chat does without
    }
    templates = {
        "chats": TEMPLATE,
        "strict": STRICT,
        "user": "{{ messages[-1].content }}",
        "plain": None,
    }
    found = {
        f"{name}.keras": kp.PretrainedGenerator(
            model, chat_template=template, **options
        )
        for name, template in templates.items()
    }
    del options["max_positions"]
    return {**found, "texts.keras": kp.Generator(model, **options)}


@pytest.fixture
def folder(models, tmp_path, monkeypatch):
    """Their files, which are not read: a loaded model is compiled again."""
    (tmp_path / "exported").mkdir()
    for name in (*models, "exported/saved_model.pb"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(
        "keras_posenc_cli.commands.chat.load_model",
        lambda path, imports: models[path.name],
    )
    return tmp_path


@pytest.fixture(scope="module")
def model(models):
    return models["chats.keras"].with_options(beams=1)


def user(text):
    return {"role": "user", "content": text}


def test_one_reply(folder, model, capfd, monkeypatch):
    given = [str(folder / "chats.keras"), "--system", "S"]
    chat = [{"role": "system", "content": "S"}, user("Hi")]
    assert main(["chat", *given, "--prompt", "Hi"]) == 0
    found = capfd.readouterr()
    assert found.out == model.chat(chat) + "\n"
    assert "cut off: --max-new-tokens" in found.err
    # Without a terminal, standard input is the message.
    sampled = ["--temperature", "9", "--seed", "3", "--max-new-tokens", "5"]
    stdin = io.TextIOWrapper(io.BytesIO(b"Hi"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["chat", *given, *sampled]) == 0
    options = {"temperature": 9.0, "seed": 3, "max_new_tokens": 5}
    assert capfd.readouterr().out == model.chat(chat, **options) + "\n"


def converse(monkeypatch, *lines):
    """Lets a user type these lines, or press Ctrl-C for None, then Ctrl-D."""
    left = iter(lines)

    def typed(prompt):
        try:
            line = next(left)
        except StopIteration:
            raise EOFError from None
        if line is None:
            os.kill(os.getpid(), signal.SIGINT)
        return line

    monkeypatch.setattr(builtins, "input", typed)
    monkeypatch.setattr(
        "keras_posenc_cli.commands.chat._is_terminal", lambda: True
    )


def test_a_chat(folder, model, capfd, monkeypatch):
    long = "x" * 99, "/reset", "x" * 68
    converse(monkeypatch, "Hi", "", "and?", "/help", None, *long, "Hi")
    assert main(["chat", str(folder / "chats.keras")]) == 0
    found = capfd.readouterr()
    first = model.chat([user("Hi")])
    reply = {"role": "assistant", "content": first}
    second = model.chat([user("Hi"), reply, user("and?")])
    assert found.out == "\n".join([first, second, "", first, "", ""])
    assert found.err.count("/reset starts again") == 3
    assert "into the 80 positions of the checkpoint" in found.err
    assert "first messages. /reset starts a new chat" in found.err
    assert "give --max-new-tokens of at most 6" in found.err


def test_ctrl_c_stops_the_reply_alone(folder, model, capfd, monkeypatch):
    from keras_posenc_cli.commands import chat

    converse(monkeypatch, "Hi", "/quit", "not read")
    reply = chat._Model.reply

    def interrupted(self, chat):
        found = reply(self, chat)
        os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(chat._Model, "reply", interrupted)
    assert main(["chat", str(folder / "chats.keras")]) == 0
    found = capfd.readouterr()
    pieces = [*model.stream_chat([user("Hi")])]
    assert found.out == pieces[0] + "\n"
    assert found.err.splitlines()[-1] == "keras-posenc: stopped"


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("plain.keras", [], "no chat template: .* attribute chat_template in"),
        ("texts.keras", [], "is a Generator, .* template. Give the folder of"),
        ("strict.keras", ["--system", "S"], "--system: .* user: no chats"),
        (
            "user.keras",
            ["--system", "S"],
            "has no place for it. Put its",
        ),
        ("chats.keras", ["--seed", "1"], "does not sample"),
        ("chats.keras", ["--prompt", " "], "--prompt is empty"),
        ("exported", [], "must be the folder of a checkpoint, a .keras file"),
        ("missing", [], "does not exist"),
        ("model.gguf", [], "is a GGUF file"),
    ],
)
def test_what_is_refused(folder, file, options, message, capfd, monkeypatch):
    if file.endswith(".gguf"):
        monkeypatch.undo()
        (folder / file).touch()
    given = ["--prompt", "Hi", *options]
    assert main(["chat", str(folder / file), *given]) == 2
    assert re.search(message, capfd.readouterr().err)
