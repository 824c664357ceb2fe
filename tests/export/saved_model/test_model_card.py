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
from keras_posenc.export import units

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def card(served):
    return (served.path / "MODEL_CARD.md").read_text(encoding="utf-8")


def sections(card):
    """The parts of a card by their headings."""
    parts = re.split(r"(?m)^## ", card)[1:]
    return {part.splitlines()[0].strip("`"): part for part in parts}


def test_every_signature_is_described(served, card):
    found = kp.inspect_export(served.path).signatures
    parts = sections(card)
    names = ["serving_default", "from_ids"]
    assert list(parts) == ["Warm-up and batching", *names, "Python"]
    for name, sides in found.items():
        for side, tensors in sides.items():
            for tensor, info in tensors.items():
                row = f"| {side[:-1]} | `{tensor}` | {info} | "
                assert row in parts[name]
    assert "in their order: yes, no, vielleicht, später |" in card
    row = (
        "| output | `label` | string (None) | the class of the highest score |"
    )
    assert row in parts["from_ids"]
    assert "after the example's length count as padding" in parts["from_ids"]


def test_samples_are_never_quoted(served, card):
    assert served.report.cases[0].is_sample
    # Those of `served`, in whatever words the card writes them.
    for sample in ("one two", '"x"', "'x'", "[[2, 5, 3]]", "[2, 5, 3]"):
        assert sample not in card
    assert '"inputs": {"text": ["a text"]}' in card


def test_requests_to_copy_can_be_answered(card, served, run_saved_model):
    for name in ("serving_default", "from_ids"):
        part = sections(card)[name]
        (command,) = re.findall("```sh\n(.*?)\n```", part, re.DOTALL)
        program, address, flag, body = shlex.split(command)
        assert (program, flag) == ("curl", "-d")
        assert address == "http://localhost:8501/v1/models/judge:predict"
        request = json.loads(body)
        assert request.get("signature_name", "serving_default") == name
        run = run_saved_model(served.path, name)
        outputs = run(
            {key: np.array(value) for key, value in request["inputs"].items()}
        )
        assert set(outputs) == set(
            kp.inspect_export(served.path).signatures[name]["outputs"]
        )
        assert all(len(value) == 1 for value in outputs.values())


def run_in_folder(path, monkeypatch):
    """What the card's code gives, in the folder."""
    monkeypatch.chdir(path)
    card = (path / "MODEL_CARD.md").read_text(encoding="utf-8")
    (code,) = re.findall("```python\n(.*?)\n```", card, re.DOTALL)
    scope = {}
    exec(code, scope)
    return card, scope["outputs"]


def test_python_code_runs_in_the_folder(served, tmp_path, monkeypatch):
    _, found = run_in_folder(served.path, monkeypatch)
    signatures = kp.inspect_export(served.path).signatures
    assert found.keys() == signatures["serving_default"]["outputs"].keys()

    model = keras.Sequential([keras.Input((40, 30, 1), name="image")])
    model.add(layers.GlobalAveragePooling2D())
    exported = kp.export_saved_model(
        model, tmp_path, max_length=4, verbose=False
    )
    card, outputs = run_in_folder(exported.path, monkeypatch)
    assert len(card) < 2000
    assert "curl" not in card  # a large request is not quoted
    (output,) = outputs.values()
    assert output.shape == (1, 1)
    files = [p for p in exported.path.rglob("*") if p.is_file()]
    size = sum(file.stat().st_size for file in files)
    assert exported.report.size_bytes == size


def test_what_was_proved_is_told(served, card):
    cases = len(served.report.cases)
    assert f"{cases} cases, largest difference " in card
    weights = kp.inspect_export(served.path).weight_bytes
    assert f"of which weights {units.size(weights)}" in card
    assert "Warm-up: 2 requests" in card
    assert "A request may have 32 examples; the server rejects" in card
    assert "FastWordpieceTokenizeWithOffsets" in card
    assert "In Python, `import tensorflow_text` before" in card
    assert "`loaded.serve` takes and returns what the model does" in card
    assert f"TensorFlow {tf.__version__} and Keras {keras.__version__}" in card


def test_padding_that_is_wrong_is_warned_of(make, card, tmp_path):
    assert "wrong outputs" not in card  # text, and ids with lengths
    path = kp.export_saved_model(
        make.classifier(), tmp_path / "ids", verify=False, verbose=False
    ).path
    text = (path / "MODEL_CARD.md").read_text()
    assert "tensorflow_text" not in text
    assert "lengths give wrong outputs in `serving_default`**" in text
    assert "send `from_ids` with `lengths`" in text
    assert "Not verified" in text
