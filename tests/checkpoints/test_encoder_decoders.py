"""T5, BART, mBART and Marian against `transformers`, on random weights."""

import json
import shutil

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests.checkpoints.folders import copied
from tests.layers import by_steps
from tests.text.files import FIXTURES

FOLDER = FIXTURES / "encoder_decoders"
NAMES = ("t5", "flan_t5", "bart", "mbart", "marian", "marian_two")
# Relative to the largest logit, as in `test_parity.py`. In float64 only for
# activations that Keras computes in it: its GELU has constants of float32.
TOLERANCE = {"float32": 5e-6, "float64": 1e-10}
WIDE = ("t5", "mbart", "marian")
DTYPES = [("float32", NAMES), ("float64", WIDE)]
CASES = [
    pytest.param(
        name,
        dtype,
        marks=[pytest.mark.tensorflow] if dtype == "float64" else [],
    )
    for dtype, names in DTYPES
    for name in names
]


def expected(name):
    with np.load(FOLDER / name / "expected.npz") as arrays:
        return dict(arrays)


def loaded(folder, dtype="float32"):
    made = kp.load_hugging_face(
        folder, from_ids=True, dtype=dtype, verbose=False
    )
    return made.model


def largest(found, arrays):
    """The largest difference of real tokens, relative to the largest logit."""
    real = arrays["target_mask"].astype(bool)
    logits = arrays["logits"][real]
    found = ops.convert_to_numpy(found)[real]
    return np.abs(found - logits).max() / np.abs(logits).max()


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_computes_what_transformers_does(name, dtype):
    arrays = expected(name)
    model = loaded(FOLDER / name, dtype)
    assert (model.pad_id, model.target_pad_id) == (
        json.loads((FOLDER / name / "config.json").read_text())["pad_token_id"],
        -1,
    )
    source = arrays["source"]
    target = np.where(arrays["target_mask"], arrays["target"], -1)
    if dtype == "float32":
        logits = model({"source": source, "target": target})
        assert largest(logits, arrays) <= TOLERANCE[dtype]
        if name in WIDE:
            return
    logits = by_steps(model, model.build_cache(source, 7), target, 5)
    assert largest(logits, arrays) <= TOLERANCE[dtype]


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("export", "name", "file"),
    [
        (kp.export_litert, "t5", "t5.tflite"),
        (kp.export_saved_model, "marian_two", "two"),
        (kp.export_onnx, "marian", "marian.onnx"),
    ],
)
def test_exports(export, name, file, tmp_path):
    said = json.loads((FOLDER / name / "config.json").read_text())
    generator = kp.Generator(
        loaded(FOLDER / name),
        max_length=3,
        start_id=said["decoder_start_token_id"],
        end_ids=said["eos_token_id"],
    )
    samples = expected(name)["source"]
    exported = export(
        generator, tmp_path / file, samples=samples, max_length=9, verbose=False
    )
    assert exported.report.passed


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_the_encoder_alone(name):
    arrays = expected(name)
    model = kp.load_hugging_face(
        FOLDER / name, from_ids=True, encoder_only=True, verbose=False
    )
    found = ops.convert_to_numpy(model(arrays["source"]))
    real = arrays["source_mask"].astype(bool)
    error = np.abs(found[real] - arrays["memory"][real]).max()
    assert error <= 5e-6 * np.abs(arrays["memory"][real]).max()


class TestTables:
    """Which tensors a file has of those that are one, and under which names."""

    @pytest.mark.parametrize(
        ("name", "add", "drop"),
        [
            ("t5", ["decoder.embed_tokens", "lm_head"], ["shared"]),
            ("bart", ["lm_head"], ["model.shared"]),
        ],
    )
    def test_other_names(self, tmp_path, name, add, drop):
        prefix = "model." if name == "bart" else ""

        def change(tensors):
            table = tensors[f"{prefix}shared.weight"]
            for each in add:
                tensors[f"{each}.weight"] = table.copy()
            return {
                key: value
                for key, value in tensors.items()
                if key not in {f"{each}.weight" for each in drop}
            }

        arrays = expected(name)
        model = loaded(copied(FOLDER / name, tmp_path, change))
        assert model.embeddings == "shared"
        found = model({"source": arrays["source"], "target": arrays["target"]})
        assert largest(found, arrays) <= TOLERANCE["float32"]

    def test_tables_that_differ(self, tmp_path):
        def change(tensors):
            table = tensors["shared.weight"] + 1
            return {**tensors, "encoder.embed_tokens.weight": table}

        with pytest.raises(ValueError, match="must be one table"):
            loaded(copied(FOLDER / "t5", tmp_path, change))


@pytest.fixture(scope="module")
def said():
    path = FOLDER / "zero_shot.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of entailment of one tokenizer."""
    pytest.importorskip("tensorflow_text")
    pairs = FIXTURES / "pairs" / "roberta"
    bart = tmp_path_factory.mktemp("zero_shot") / "bart"
    shutil.copytree(FOLDER / "bart_mnli", bart)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pairs / file, bart)
    return {
        name: kp.load_hugging_face(
            folder, pairs=True, max_length=60, verbose=False
        )
        for name, folder in {"bart": bart, "roberta": pairs}.items()
    }


@pytest.mark.tensorflow
class TestClassesGivenAsWords:
    @pytest.mark.parametrize("name", ["bart", "roberta"])
    def test_scores_of_the_pipeline(self, said, models, name):
        """As docs/pretrained.md has it."""
        pairs = [
            [text, said["template"].format(each)]
            for text in said["texts"]
            for each in said["candidates"]
        ]
        labels = [label.lower() for label in models[name].labels]
        found = np.asarray(models[name](pairs), "float64")
        yes, no = (
            found[:, labels.index(each)]
            for each in ("entailment", "contradiction")
        )
        wanted = said[f"{name}/several"]
        np.testing.assert_allclose(
            (yes / (yes + no)).reshape(np.shape(wanted)),
            wanted,
            rtol=0,
            atol=5e-6,
        )

    def test_saved(self, models, tmp_path):
        model = models["bart"]
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        pairs = [["a text", "is it?"]]
        np.testing.assert_array_equal(again(pairs), model(pairs))
        assert again.labels == ("contradiction", "neutral", "entailment")
