"""SmolLM2-135M-Instruct itself, against transformers: `make test-slow`."""

import json

import pytest

import keras_posenc as kp
from tests import test_c_program as c
from tests.checkpoints import smollm2
from tests.text.files import FIXTURES

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]
EXPECTED = json.loads((FIXTURES / "chats.json").read_text("utf-8"))
NEW = EXPECTED["max_new_tokens"]
# Of one turn and of several, and of different lengths.
CHATS = sorted(EXPECTED["chats"], key=lambda chat: len(chat["ids"]))[::9]
TEXTS = [*(chat["text"] for chat in CHATS), ""]

program = c.program


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not smollm2.is_installed():
        pytest.skip("requirements/weights.txt is not installed")
    folder = tmp_path_factory.mktemp("smollm2")
    smollm2.write_folder(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return kp.load_hugging_face(folder, verbose=False)


def test_replies_are_those_of_transformers(model):
    assert len(EXPECTED["chats"]) >= 20
    for chat in EXPECTED["chats"]:
        tokenizer = model.source_tokenizer
        ids = tokenizer.split([chat["text"]]).numpy()[0]
        assert ids.tolist() == chat["ids"]
        assert model.chat(chat["messages"], max_new_tokens=NEW) == chat["reply"]


@pytest.fixture(scope="module")
def replies(model):
    """transformers' for each text, and the model's own after no prompt."""
    (alone,) = model.generate([""], max_new_tokens=NEW)
    assert alone
    return [*(chat["reply"] for chat in CHATS), alone]


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """The version folder of a SavedModel from text to text."""
    generator = model.with_options(max_new_tokens=NEW)
    exported = kp.export_saved_model(
        generator,
        tmp_path_factory.mktemp("served"),
        max_length=32,
        verbose=False,
    )
    print(exported.report)
    return exported.path


def test_c_program_turns_text_into_text(program, exported, replies, tmp_path):
    """... without operators of TF-Text."""
    file = tmp_path / "requests"
    with c.tf.io.TFRecordWriter(str(file)) as writer:
        for texts in TEXTS, TEXTS[:1]:
            writer.write(c.record("serving_default", text=texts))
    process = c.run(program, exported, file, timeout=900)
    found = [
        value.tolist()
        for _, output, value in c.answers(process)
        if output == "text"
    ]
    assert found == [replies, replies[:1]]
