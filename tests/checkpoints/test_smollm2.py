"""SmolLM2-135M-Instruct itself, against transformers: `make test-slow`."""

import json

import pytest

import keras_posenc as kp
from tests.checkpoints import smollm2
from tests.text.files import FIXTURES

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]
EXPECTED = json.loads((FIXTURES / "chats.json").read_text("utf-8"))
NEW = EXPECTED["max_new_tokens"]


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
