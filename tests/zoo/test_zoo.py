"""A few models of the table, and what is written of all."""

import pytest

from tests.zoo import page
from tests.zoo.entries import FORMATS, table
from tests.zoo.run import export

pytestmark = pytest.mark.tensorflow
ENTRIES = table()
# Of every kind, and quick: the formats of all within half a minute.
SAMPLE = [
    "audio/uk_ireland_accent_recognition",
    "generative/vae_decoder",
    "guides/sequential_features",
    "keras-hub images/ViTImageClassifier",
    "keras-hub text/GPT2CausalLM",
    "nlp/text_classification_from_scratch",
    "nlp/text_classification_with_transformer",
    "rl/ddpg_critic",
    "structured/imbalanced_classification",
    "tensorflow/beginner",
    "tensorflow/regression",
    "tensorflow/time_series_baseline",
    "timeseries/anomaly_detection",
    "vision/autoencoder",
    "vision/mnist_convnet",
]


# The graph of a SavedModel is that of the model: no operator is converted.
PLAIN = ("generative", "keras-hub images", "rl", "tensorflow", "vision")


@pytest.mark.parametrize("name", SAMPLE)
def test_model_is_exported(name):
    model, arguments = ENTRIES[name].build()
    is_plain = name.startswith(PLAIN)
    for each in FORMATS[is_plain:]:
        cell = export(model, each, arguments)
        assert cell["state"] == "verified", cell


def test_page_is_of_its_results():
    text = page.page(ENTRIES, page.load())
    assert page.PAGE.read_text(encoding="utf-8") == text
