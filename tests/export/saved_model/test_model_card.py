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
    assert list(parts) == [
        "Warm-up and batching",
        "serving_default",
        "from_ids",
        "encode",
        "Python",
    ]
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
    assert "true for tokens, false for padding" in parts["encode"]


def test_an_output_of_ones_own_is_not_taken_for_another(tmp_path):
    x = keras.Input((2,), name="x")
    model = keras.Model(x, {"mask": keras.layers.Dense(3)(x)})
    path = kp.export_saved_model(
        model, tmp_path, verify=False, verbose=False
    ).path
    row = "| output | `mask` | float32 (None, 3) | the model's output |"
    assert row in (path / "MODEL_CARD.md").read_text()


def test_samples_are_never_quoted(served, card):
    assert served.report.cases[0].is_sample
    # Those of `served`, in whatever words the card writes them.
    for sample in ("one two", '"x"', "'x'", "[[2, 5, 3]]", "[2, 5, 3]"):
        assert sample not in card
    assert '"inputs": {"text": ["a text"]}' in card


def test_requests_to_copy_can_be_answered(card, served, run_saved_model):
    for name in ("serving_default", "from_ids", "encode"):
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
    return scope["outputs"]


def test_python_code_runs_in_the_folder(served, monkeypatch):
    found = run_in_folder(served.path, monkeypatch)
    outputs = kp.inspect_export(served.path).signatures["serving_default"][
        "outputs"
    ]
    assert found.keys() == outputs.keys()


def test_large_request_is_not_quoted(tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input((40, 30, 1), name="image")])
    model.add(layers.GlobalAveragePooling2D())
    path = kp.export_saved_model(
        model, tmp_path, max_length=4, verbose=False
    ).path
    card = (path / "MODEL_CARD.md").read_text()
    assert len(card) < 2000
    assert "curl" not in card
    (output,) = run_in_folder(path, monkeypatch).values()
    assert output.shape == (1, 1)


def test_what_was_proved_is_told(served, card):
    cases = len(served.report.cases)
    assert f"{cases} cases, largest difference " in card
    weights = kp.inspect_export(served.path).weight_bytes
    assert f"of which weights {units.size(weights)}" in card
    assert "Warm-up: 3 requests" in card
    assert "A request may have 32 examples; the server rejects" in card
    assert "FastWordpieceTokenizeWithOffsets" in card
    assert "In Python, `import tensorflow_text` before" in card
    assert "`loaded.serve` takes and returns what the model does" in card
    assert f"TensorFlow {tf.__version__} and Keras {keras.__version__}" in card


def test_size_of_the_report_is_that_of_the_folder(make, tmp_path):
    served = kp.export_saved_model(
        make.embedder(), tmp_path / "sized", max_length=2, verbose=False
    )
    files = [p for p in served.path.rglob("*") if p.is_file()]
    size = sum(file.stat().st_size for file in files)
    assert served.report.size_bytes == size


def test_padding_that_is_wrong_is_warned_of(make, card, tmp_path):
    assert "wrong outputs" not in card  # text, and ids with lengths
    path = kp.export_saved_model(
        make.classifier(), tmp_path / "ids", verify=False, verbose=False
    ).path
    text = (path / "MODEL_CARD.md").read_text()
    assert "tensorflow_text" not in text
    assert "lengths give wrong outputs in `serving_default`, `encode`**" in text
    assert "send `from_ids` with `lengths`" in text
    assert "Not verified" in text


def test_card_goes_back_with_its_version(make, tmp_path):
    for labels in (["a", "b", "c"], None):
        kp.export_saved_model(
            make.classifier(),
            tmp_path,
            labels=labels,
            verify=False,
            verbose=False,
        )
    path = kp.rollback_export(tmp_path, 1, verify=False, verbose=False).path
    assert path.name == "3"
    card = (path / "MODEL_CARD.md").read_text()
    assert "in their order: a, b, c" in card
    origin = "\n\n**A copy of version 1.**"
    assert card.count(origin) == 1
    earlier = (tmp_path / "1" / "MODEL_CARD.md").read_text()
    assert card.replace(origin, "") == earlier
