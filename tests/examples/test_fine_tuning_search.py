"""The example of fine-tuning for search: a small encoder learns to find."""

import re

import keras
import pytest

from tests.examples import encoder_folder, scripts

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def test_learns_to_find(tmp_path):
    encoder_folder.write(tmp_path / "encoder")
    report = scripts.run(
        "fine_tuning_search",
        *("--model", "encoder", "--out", "out", "--texts", 1500),
        *("--epochs", 10, "--batch", 16, "--dims", 32, 8),
        folder=tmp_path,
    )
    for dim in (32, 8):
        (cells,) = re.findall(rf"│ {dim} +│(.*)│", report)
        _, recall, _, gain = cells.split("│")
        for cell in (recall, gain):
            before, after = map(float, cell.split("→"))
            assert after > before, report
    model = keras.saving.load_model(tmp_path / "out" / "search.keras")
    assert model.predict(["Return a path."], verbose=0).shape == (1, 32)
    assert not any("lora" in weight.name for weight in model.weights)
