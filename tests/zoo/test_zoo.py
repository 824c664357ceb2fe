"""A few models of the table, and what is written of all."""

import pytest

import keras_posenc as kp
from tests.zoo import page
from tests.zoo.entries import FORMATS, table
from tests.zoo.run import FILES

pytestmark = pytest.mark.tensorflow
ENTRIES = table()
# Of every kind, and quick: the three formats of all within a minute.
SAMPLE = [
    "keras-hub images/ViTBackbone",
    "keras-hub text/BertTextClassifier",
]


@pytest.mark.parametrize("name", SAMPLE)
def test_model_is_exported(tmp_path, name):
    model, arguments = ENTRIES[name].build()
    options = {k: v for k, v in arguments.items() if k not in FORMATS}
    for each in FORMATS:
        exported = getattr(kp, f"export_{each}")(
            model,
            tmp_path / FILES[each],
            verbose=False,
            **{**options, **arguments.get(each, {})},
        )
        assert exported.report.passed


def test_page_is_of_its_results():
    text = page.page(ENTRIES, page.load())
    assert page.PAGE.read_text(encoding="utf-8") == text
