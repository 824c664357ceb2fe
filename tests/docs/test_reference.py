"""The reference of the site has every public name, once."""

import re
from pathlib import Path

import pytest

import keras_posenc as kp
from keras_posenc import analysis, distribution, positions, training, types

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def shown():
    """The names on the pages."""
    for page in sorted(REFERENCE.glob("*.md")):
        module = None
        for line in page.read_text("utf-8").splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif found := re.match(r"\.\. (?:auto\w+|py:data):: (\w+)", line):
                yield f"{module}.{found[1]}"


@pytest.mark.tensorflow
def test_every_public_name_is_there_once():
    public = {
        *(f"keras_posenc.{name}" for name in kp.__all__),
        *(
            f"{module.__name__}.{name}"
            for module in (analysis, distribution, positions, training, types)
            for name in module.__all__
        ),
    }
    assert sorted(shown()) == sorted(public)
