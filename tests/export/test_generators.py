"""Generators as files: what they choose is what their model would choose."""

import numpy as np
import pytest

import keras_posenc as kp
from tests.export.files import run_file
from tests.generation.toy import SIZES, shaken, twins

pytestmark = pytest.mark.tensorflow

SMALL = {**SIZES, "num_layers": 1}
SOURCES = np.array([[5, 6, 7, 3, 0], [4, 3, 0, 0, 0], [9, 8, 7, 6, 3]], "int32")


def generator(make=kp.TransformerDecoderModel, **options):
    given = {"max_length": 5, "start_id": 2, "end_ids": 3, **options}
    return kp.Generator(shaken(make(12, **SMALL)), **given)


def test_a_file_that_chose_otherwise(tmp_path):
    """It passes where it was a tie, and fails by its ids where it was none."""
    path = tmp_path / "generator.tflite"
    made = generator(min_length=2, max_length=3)
    first, second = twins(made, SOURCES)
    kp.export_litert(made, path, verify=False, verbose=False)
    table = made.model.target_embedding.embeddings
    values = np.array(table)
    ids = np.asarray(made.search(SOURCES)["ids"])

    def move(apart):
        values[second] = np.float32(1 + apart) * values[first]
        table.assign(values)
        return np.any(np.asarray(made.search(SOURCES)["ids"]) != ids)

    # One of both signs lets the other twin win.
    (sign,) = (sign for sign in (1, -1) if move(3e-7 * sign))
    seen = []
    for apart in (3e-7 * sign, 0.05 * sign):
        assert move(apart)
        report = kp.verify_export(
            path, made, samples=SOURCES, max_length=1, verbose=False
        )
        is_told = "rounding alone" in str(report)
        by_ids = report.largest_difference == np.inf
        assert not by_ids or report.worst.where.startswith("ids[")
        seen.append((report.passed, is_told, by_ids))
    assert seen == [(True, True, False), (False, False, True)]


def test_onnx_files_have_the_whole_loop(tmp_path):
    """Of texts; beams over turned keys, whose tables the loop reads."""
    model = kp.TransformerDecoderModel(
        12, **SMALL, attention=kp.RotaryEmbedding()
    )
    made = kp.Generator(
        shaken(model),
        source_tokenizer=kp.CharacterTokenizer("abcdefgh"),
        max_length=5,
        beams=2,
        length_penalty=0.6,
    )
    path = tmp_path / "generator.onnx"
    kp.export_onnx(made, path, verify=False, max_length=4, verbose=False)
    assert "Loop" in kp.inspect_export(path).operators
    expected = made.search(SOURCES)
    found = run_file(path, {"ids": SOURCES})
    np.testing.assert_array_equal(found["output_ids"], expected["ids"])
    np.testing.assert_allclose(
        found["token_score"], expected["token_score"], atol=1e-5
    )
