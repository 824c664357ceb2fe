"""What an operator needs to know of a version, beside the model."""

import json
import re
import shlex

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_posenc as kp
from tests.export.files import run_file

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def card(served):
    return (served.path / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_every_signature_has_its_tensors_and_a_request_to_copy(served, card):
    found = kp.inspect_export(served.path).signatures
    parts = re.split(r"(?m)^## ", card)[1:]
    assert [x.split("\n")[0] for x in parts] == [
        "`serving_default`",
        "`from_ids`",
        "Python",
    ]
    for part, name in zip(parts, ("serving_default", "from_ids"), strict=False):
        sides = found[name]
        for side, tensors in sides.items():
            for tensor, info in tensors.items():
                assert f"| {side[:-1]} | `{tensor}` | {info} |" in part
        (command,) = re.findall("```sh\n(.*?)\n```", part, re.DOTALL)
        program, address, flag, body = shlex.split(command)
        assert (program, flag) == ("curl", "-d")
        assert address == "http://localhost:8501/v1/models/judge:predict"
        request = json.loads(body)
        assert request["signature_name"] == name
        inputs = {k: np.array(value) for k, value in request["inputs"].items()}
        outputs = run_file(served.path, inputs, name)
        assert outputs.keys() == sides["outputs"].keys()


def test_what_the_export_did_and_no_samples(served, card):
    cases = len(served.report.cases)
    assert f"{cases} cases, largest difference " in card
    assert '["yes", "no", "vielleicht, später"]' in card
    assert "Warm-up requests: 2." in card
    assert "the server rejects more than 32 examples" in card
    assert "import tensorflow_text\n" in card
    assert "wrong outputs" not in card  # text, and ids with lengths
    assert f"TensorFlow {tf.__version__} and Keras" in card
    assert served.report.cases[0].is_sample
    for sample in ("one two", '"x"', "[[2, 5, 3]]", "[2, 5, 3]"):
        assert sample not in card


def test_card_of_a_plain_model(make, tmp_path):
    path = kp.export_saved_model(
        make.classifier(), tmp_path / "my ids", verify=False, verbose=False
    ).path
    text = (path / "MODEL_CARD.md").read_text()
    assert "tensorflow_text" not in text
    assert "/models/my%20ids:predict -d" in text
    assert "lengths give wrong outputs in serving_default**" in text
    assert "Not verified" in text
    image = keras.Input((40, 30, 1), name="image")
    exported = kp.export_saved_model(
        keras.Model(image, layers.GlobalAveragePooling2D()(image)),
        tmp_path / "images",
        verbose=False,
    )
    text = (exported.path / "MODEL_CARD.md").read_text()
    assert "curl" not in text  # a large request is not quoted
    files = [p for p in exported.path.rglob("*") if p.is_file()]
    size = sum(file.stat().st_size for file in files)
    assert exported.report.size_bytes == size
