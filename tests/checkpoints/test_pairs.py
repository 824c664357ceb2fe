"""Pairs of texts against `transformers` and `sentence-transformers`."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras_posenc as kp  # noqa: E402
from keras_posenc.checkpoints.folder import Folder  # noqa: E402
from keras_posenc.checkpoints.heads import scoring_of  # noqa: E402
from keras_posenc.text.tokenizer_file import pairing  # noqa: E402
from tests.checkpoints.folders import changed as in_file  # noqa: E402
from tests.checkpoints.folders import copied  # noqa: E402

FIXTURES = Path(__file__).parent.parent / "fixtures" / "pairs"
TEXTS = json.loads((FIXTURES / "texts.json").read_text(encoding="utf-8"))
NAMES = ("bert", "roberta")
# As in `test_parity.py`.
TOLERANCE = 5e-6


def loaded(folder, **options):
    return kp.load_hugging_face(folder, pairs=True, verbose=False, **options)


@pytest.fixture(scope="module")
def cross_encoder():
    return loaded(FIXTURES / "bert")


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name, cross_encoder):
    return cross_encoder if name == "bert" else loaded(FIXTURES / name)


@pytest.fixture(scope="module")
def expected(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        return dict(arrays)


@pytest.fixture
def changed(tmp_path):
    """A copy of a folder, with other keys in a file of it."""

    def changed(name, **files):
        folder = copied(FIXTURES / name, tmp_path)
        for file, keys in files.items():
            for key, value in keys.items():
                in_file(folder / f"{file}.json", [key], value)
        return folder

    return changed


def answers_of(model, texts, layer=None):
    if layer is not None:
        model = keras.Model(model.inputs[0], model.get_layer(layer).output)
    return keras.ops.convert_to_numpy(model(tf.constant(texts)))


@pytest.mark.parametrize("length", [23, 60])
def test_ids(model, expected, length):
    tokenizer = model.layers[0]
    assert tokenizer.max_length == 24
    tokenizer = type(tokenizer).from_config(
        tokenizer.get_config() | {"max_length": length}
    )
    run = tf.function(tokenizer) if length == 60 else tokenizer
    ids = keras.ops.convert_to_numpy(run(TEXTS))
    np.testing.assert_array_equal(ids, expected[f"ids_{length}"])


def test_answers(name, model, expected):
    logits = answers_of(model, TEXTS, "logits")
    errors = np.abs(logits - expected["logits"]).max(1)
    errors /= np.abs(expected["logits"]).max()
    assert errors.max() <= TOLERANCE


def test_ids_of_pairs_answer_alike(model, expected):
    folder = FIXTURES / model.origin["model_type"]
    found = loaded(folder, from_ids=True)(expected["ids_24"].astype("int32"))
    answers = answers_of(model, TEXTS)
    # In ids, padding that a text spells is padding.
    plain = ["[PAD]" not in first + second for first, second in TEXTS]
    assert 290 < sum(plain) < len(TEXTS)
    errors = np.abs(found - answers)[plain]
    assert errors.max() <= TOLERANCE


@pytest.mark.parametrize("is_typed", [False, True])
@pytest.mark.parametrize("between", [1, 2])
def test_templates(between, is_typed):
    """As `tokenizers` writes them: `<s> $A </s> </s> $B:1 </s>:1`, say."""

    def part(kind, name, type_id=0):
        return {kind: {"id": name, "type_id": type_id}}

    end = part("SpecialToken", "</s>")
    one = [part("SpecialToken", "<s>"), part("Sequence", "A"), end]
    second = part("Sequence", "B", int(is_typed))
    pair = [*one, *[end] * (between - 1), second]
    pair.append(part("SpecialToken", "</s>", int(is_typed)))
    made = {"type": "TemplateProcessing", "single": one, "pair": pair}
    assert pairing(made) == (between, is_typed)


SIGMOID = "torch.nn.modules.activation.Sigmoid"


class TestCrossEncoders:
    """`expected.npz` has what `CrossEncoder.predict` answers: logits."""

    def test_what_its_own_file_says(self, cross_encoder, changed):
        assert cross_encoder.layers[-1].name == "logits"
        activation = {"activation_fn": SIGMOID}
        folder = changed("bert", config_sentence_transformers=activation)
        answers = answers_of(loaded(folder), TEXTS[:8])
        logits = answers_of(cross_encoder, TEXTS[:8])
        scores = 1 / (1 + np.exp(-logits))
        np.testing.assert_allclose(answers, scores, rtol=TOLERANCE)

    @pytest.mark.parametrize(
        "said",
        [
            {"sentence_transformers": {"activation_fn": SIGMOID}},
            {"sbert_ce_default_activation_function": SIGMOID},
        ],
    )
    def test_what_config_json_says(self, said):
        assert scoring_of(Folder(FIXTURES / "roberta"), said) == "sigmoid"
        assert scoring_of(Folder(FIXTURES / "roberta"), {}) is None
        # The file of its own goes first.
        assert scoring_of(Folder(FIXTURES / "bert"), said) == "linear"
        other = {"sbert_ce_default_activation_function": "torch.nn.Softplus"}
        with pytest.raises(ValueError, match="Softplus' is not supported"):
            scoring_of(Folder(FIXTURES / "roberta"), other)


class TestWhatTheTokenizerSays:
    @pytest.mark.parametrize(
        "names",
        [
            {"model_input_names": ["input_ids", "attention_mask"]},
            # What transformers 5 writes; it has no types of its own.
            {"tokenizer_class": "TokenizersBackend"},
        ],
    )
    def test_of_one_type(self, changed, names):
        folder = changed("bert", tokenizer_config=names)
        assert loaded(folder).encoder.separator_id is None

    def test_another_frame(self, changed):
        whole = json.loads((FIXTURES / "bert/tokenizer.json").read_text())
        end = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
        whole["post_processor"]["pair"].insert(0, end)
        folder = changed("bert", tokenizer=whole)
        with pytest.raises(ValueError, match="a pair of texts must be"):
            loaded(folder)

    def test_settings_that_frame_otherwise(self, changed):
        """As versions of transformers read them: `<s> a </s> <s> b </s>`."""
        adds = {"add_bos_token": True, "add_eos_token": True}
        folder = changed("roberta", tokenizer_config=adds)
        with pytest.raises(ValueError, match="'add_bos_token': pairs of texts"):
            loaded(folder)


class TestAsAModel:
    def test_keras_file_and_saved_model(self, cross_encoder, tmp_path):
        cross_encoder.save(tmp_path / "pairs.keras")
        again = keras.saving.load_model(tmp_path / "pairs.keras")
        np.testing.assert_array_equal(
            answers_of(again, TEXTS[:8]), answers_of(cross_encoder, TEXTS[:8])
        )
        artifact = kp.export_saved_model(
            again,
            tmp_path / "saved",
            samples=np.array(TEXTS[:4]),
            max_length=60,
            verbose=False,
        )
        assert artifact.report.passed
        found = kp.inspect_export(artifact.path).signatures["serving_default"]
        assert tuple(found["inputs"]["pairs"].shape) == (None, 2)

    def test_what_was_cut_is_told(self, cross_encoder):
        """Once for each call, the next one too, which traces nothing."""
        given = [
            ["of it", "the end"],
            ["the end " * 30, "it"],
            ["it " * 40, ""],
        ]
        wanted = "Cut to 24 tokens: 2 of 3 pairs of texts. Split them, or load"
        for run in (cross_encoder.predict, cross_encoder.predict):
            with pytest.warns(UserWarning, match=wanted) as caught:
                run(given[::-1], batch_size=2, verbose=0)
            (each,) = caught
            assert str(each.message).endswith("`max_length` of up to 64")
            assert each.filename == __file__
        cross_encoder.predict(given[:1], verbose=0)

    def test_refusals(self, cross_encoder):
        with pytest.raises(ValueError, match="`max_length` must be at least 4"):
            loaded(FIXTURES / "bert", max_length=3)
        with pytest.raises(ValueError, match="must be None where there is non"):
            kp.ByteTokenizer(num_separators=1, add_end=False)
        with pytest.raises(ValueError, match=r"pairs of strings, of shape \("):
            cross_encoder.layers[0](["a text"])
