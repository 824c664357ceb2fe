"""A few models of the table, and what is written of all."""

import pytest

from tests.zoo import page
from tests.zoo.entries import FORMATS, table
from tests.zoo.run import export

pytestmark = pytest.mark.tensorflow
ENTRIES = table()
# Of every kind, and quick: no two have the same layers.
SAMPLE = [
    "keras-hub images/ViTImageClassifier",
    "keras-hub text/GPT2CausalLM",
    "nlp/text_classification_from_scratch",
    "nlp/text_classification_with_transformer",
    "rl/ddpg_critic",
    "tensorflow/beginner",
    "tensorflow/regression",
    "tensorflow/time_series_baseline",
    "timeseries/anomaly_detection",
    "vision/autoencoder",
    "vision/mnist_convnet",
]


# The graph of a SavedModel is that of the model: no operator is converted. What
# is left are tables of strings.
TEXTS = "nlp/text_classification_from_scratch"


@pytest.mark.parametrize("name", SAMPLE)
def test_model_is_exported(name):
    model, arguments = ENTRIES[name].build()
    for each in FORMATS[name != TEXTS :]:
        cell = export(model, each, arguments)
        assert cell["state"] == "verified", cell


def test_page_is_of_its_results():
    text = page.page(ENTRIES, page.load())
    assert page.PAGE.read_text(encoding="utf-8") == text
