"""`keras-posenc chat`."""

import builtins
import io
import os
import signal
import sys

import pytest

from keras_posenc_cli import main

pytestmark = pytest.mark.tensorflow

# Each message on a line of its own: its role and its text.
TEMPLATE = "{% for m in messages %}{{ m.role + ':' + m.content }}\n{% endfor %}"
STRICT = "{{ raise_exception('no chats') if messages | length > 1 }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Language models of bytes, with random weights, and an export of one."""
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    folder = tmp_path_factory.mktemp("chat")
    model = kp.TransformerDecoderModel(
        260, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
    )
    for each in model.weights:
        each.assign(keras.random.normal(each.shape, seed=len(each.path)))
    options = {
        "source_tokenizer": kp.ByteTokenizer(add_start=False, add_end=False),
        "max_length": 9,
        "max_positions": 80,
    }
    chats = kp.PretrainedGenerator(model, chat_template=TEMPLATE, **options)
    chats.save(folder / "chats.keras")
    kp.PretrainedGenerator(
        model, chat_template=TEMPLATE + STRICT, **options
    ).save(folder / "strict.keras")
    kp.PretrainedGenerator(model, **options).save(folder / "plain.keras")
    kp.export_saved_model(
        chats,
        folder / "exported",
        signatures={"serving_default": chats},
        verify=False,
        verbose=False,
    )
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    import keras

    return keras.saving.load_model(folder / "chats.keras")


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
    converse(
        monkeypatch, "Hi", "", "and?", "/help", None, "x" * 99, "/reset", "Hi"
    )
    assert main(["chat", str(folder / "chats.keras")]) == 0
    found = capfd.readouterr()
    first = model.chat([user("Hi")])
    reply = {"role": "assistant", "content": first}
    second = model.chat([user("Hi"), reply, user("and?")])
    assert found.out == "\n".join([first, second, "", first, "", ""])
    assert found.err.count("/reset starts again") == 3
    assert "80 positions of the checkpoint" in found.err


def test_ctrl_c_stops_the_reply_alone(folder, model, capfd, monkeypatch):
    from keras_posenc_cli import chat_models

    converse(monkeypatch, "Hi", "/quit", "not read")
    reply = chat_models._Model.reply

    def interrupted(self, chat):
        found = reply(self, chat)
        os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(chat_models._Model, "reply", interrupted)
    assert main(["chat", str(folder / "chats.keras")]) == 0
    found = capfd.readouterr()
    pieces = [*model.stream_chat([user("Hi")])]
    assert found.out == pieces[0] + "\n"
    assert found.err.splitlines()[-1] == "keras-posenc: stopped"


def test_an_exported_model(folder, model, capfd):
    given = [str(folder / "exported"), "--prompt", "Hi"]
    assert main(["chat", *given, "--template", str(folder / "checkpoint")]) == 0
    assert capfd.readouterr().out == model.chat([user("Hi")]) + "\n"
    assert main(["chat", *given]) == 2
    assert "--template FOLDER" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("plain.keras", [], "has no chat template"),
        ("strict.keras", ["--system", "S"], "roles system, user: no chats"),
        ("chats.keras", ["--seed", "1"], "does not sample"),
        ("chats.keras", ["--prompt", " "], "--prompt is empty"),
        ("chats.keras", ["--template", "x"], "has its own"),
        ("exported", ["--max-new-tokens", "3"], "has it fixed"),
        ("missing", [], "does not exist"),
    ],
)
def test_what_is_refused(folder, file, options, message, capfd):
    given = ["--prompt", "Hi", *options]
    assert main(["chat", str(folder / file), *given]) == 2
    assert message in capfd.readouterr().err
