"""Sentence encoders compared with sentence-transformers, on random weights."""

import functools
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_posenc as kp
from keras_posenc.export.signatures.resolve import resolve_serving_signatures

pytestmark = [
    pytest.mark.tensorflow,
    # By `eager` below, of a dataset, which stays a graph.
    pytest.mark.filterwarnings("ignore:Even though the `tf.config"),
    pytest.mark.filterwarnings("ignore:Cut to 24 tokens"),
]
FIXTURES = Path(__file__).parent.parent / "fixtures"
SAID = json.loads((FIXTURES / "sentences" / "variants.json").read_text())
VARIANTS, TEXTS = SAID["variants"], SAID["texts"]
CUT = 5
# Relative to the largest number: two blocks, sums of up to 32 terms.
TOLERANCE = 5e-6
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module", autouse=True)
def eager():
    """Without graphs, whose tracing takes most of the time."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def expected():
    with np.load(FIXTURES / "sentences" / "expected.npz") as arrays:
        return dict(arrays)


def write(folder, files):
    """Writes the folder of a sentence encoder, with files of a variant."""
    encoder = FIXTURES / "pairs" / "bert"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(encoder / name, folder)
    tensors = load_file(encoder / WEIGHTS)
    kept = {k: v for k, v in tensors.items() if "classifier" not in k}
    save_file(kept, folder / WEIGHTS)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("sentences")
    return {name: write(root / name, VARIANTS[name]) for name in VARIANTS}


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture(scope="module")
def models(folders):
    """Each loaded once, for tests that change nothing of it."""
    return functools.cache(lambda name: load(folders[name]))


@pytest.fixture(scope="module")
def model(models, variant):
    return models(variant)


@pytest.fixture(scope="module")
def searching(models):
    """Its prompts are not pooled."""
    return models("several")


def load(folder, **options):
    return kp.load_hugging_face(folder, verbose=False, **options)


def near(found, wanted):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


def test_vectors(model, variant, expected):
    near(model.predict(TEXTS, verbose=0), expected[f"{variant}/usual"])


def test_prompts(model, variant, expected):
    for way in ("query", "document"):
        encode = getattr(model, f"encode_{way}")
        near(encode(TEXTS, verbose=0), expected[f"{variant}/{way}"])
    found = model.encode_query(TEXTS, prompt="find this: ", verbose=0)
    near(found, expected[f"{variant}/own"])


def test_many_texts_come_back_in_their_order(models):
    texts = [f"{'a ' * (number % 7)}b" for number in range(1_100)]
    found = models("lasttoken").encode_document(
        texts, prompt="", batch_size=256, verbose=0
    )
    wanted = models("lasttoken").predict(texts[:7], verbose=0)
    near(found, wanted[np.arange(1_100) % 7])


def test_parts_of_a_package_count_the_ids_of_the_model(models):
    model = models("lasttoken")
    (ids,) = model.layers[0](["a b"]).numpy().tolist()
    assert model.embedder_parts().ids(["a b"]) == [ids]


def test_what_was_cut_is_told(searching):
    with pytest.warns(UserWarning, match="Cut to 24 tokens: 1 of 5") as caught:
        vectors = searching.encode_query(TEXTS, verbose=0)
    (each,) = (x for x in caught if "Cut to" in str(x.message))
    assert each.filename == __file__
    near(searching.encode_query(TEXTS[0], verbose=0), vectors[0])


class TestPromptsOfModels:
    def test_saved(self, models, expected, tmp_path):
        for name in ("weightedmean", "several"):
            models(name).save(tmp_path / "model.keras")
            again = keras.saving.load_model(tmp_path / "model.keras")
            for way in ("query", "document"):
                encode = getattr(again, f"encode_{way}")
                near(encode(TEXTS, verbose=0), expected[f"{name}/{way}"])
            near(again.predict(TEXTS, verbose=0), expected[f"{name}/usual"])

    def test_given(self, folders):
        """They come before those of the folder."""
        prompts = {"query": "ask: ", "topic": "t: "}
        model = load(folders["lasttoken"], prompts=prompts)
        assert model.prompts == {**prompts, "document": "text: "}
        found = model.encode_query(TEXTS, verbose=0)
        near(found, model.predict([f"ask: {x}" for x in TEXTS], verbose=0))
        found = model.encode_query(TEXTS, prompt_name="topic", verbose=0)
        near(found, model.predict([f"t: {x}" for x in TEXTS], verbose=0))

    def test_of_documents_by_other_names(self, folders, tmp_path):
        files = {**VARIANTS["lasttoken"]}
        files["config_sentence_transformers.json"] = {
            "prompts": {"query": "q: ", "passage": "p: ", "document": None}
        }
        model = load(write(tmp_path / "passage", files))
        found = model.encode_document(TEXTS, verbose=0)
        near(found, model.predict([f"p: {x}" for x in TEXTS], verbose=0))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"prompt_name": "x"}, "has no prompt 'x', only 'query', 'documen"),
            ({"prompt_name": "query", "prompt": ""}, "give one of them"),
            ({"prompt": 3}, "`prompt` must be a string"),
        ],
    )
    def test_refused(self, models, options, message):
        with pytest.raises(ValueError, match=message):
            models("several").encode_query(TEXTS, **options)

    def test_ids(self, folders):
        """A prompt cannot be put before ids, nor found among them."""
        model = load(folders["lasttoken"], from_ids=True)
        ids = np.array([[2, 9, 3]], "int32")
        with pytest.raises(ValueError, match="list or an array of texts"):
            model.encode_query(ids)
        with pytest.raises(ValueError, match="takes no texts"):
            model.with_prompt("q: ")
        with pytest.warns(UserWarning, match="puts the prompt 'x: ' before"):
            load(folders["default"], from_ids=True)
        with pytest.raises(ValueError, match="Load it without `from_ids`"):
            load(folders["several"], from_ids=True)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"prompts": ["query: "]}, "'prompts': it must be an object"),
            (
                {"prompts": {"q": "q: "}, "default_prompt_name": "x"},
                "there is no prompt 'x'. Prompts are: q",
            ),
            ({"truncate_dim": 17}, "`truncate_dim` must be at most 16"),
        ],
    )
    def test_files(self, tmp_path, content, message):
        files = {**VARIANTS["lasttoken"]}
        files["config_sentence_transformers.json"] = content
        with pytest.raises(ValueError, match=message):
            load(write(tmp_path / "folder", files))


class TestTruncation:
    @pytest.mark.parametrize("variant", ["lasttoken", "two"])
    def test_vectors(self, folders, variant, expected):
        """... of length 1 again where the folder normalizes."""
        model = load(folders[variant], truncate_dim=CUT)
        found = model.predict(TEXTS, verbose=0)
        wanted = expected[f"{variant}/cut"]
        if variant == "two":  # which ends without Normalize
            near(found, expected[f"{variant}/usual"][:, :CUT])
            found /= np.linalg.norm(found, axis=-1, keepdims=True)
        near(found, wanted)

    def test_by_the_folder(self, folders, expected, tmp_path):
        """As sentence-transformers does: not of length 1 again."""
        files = {**VARIANTS["lasttoken"]}
        files["config_sentence_transformers.json"] = {"truncate_dim": CUT}
        model = load(write(tmp_path / "cut", files))
        wanted = expected["lasttoken/usual"][:, :CUT]
        near(model.predict(TEXTS, verbose=0), wanted)
        assert model.layers[-1].name == "embedding"

    @pytest.mark.parametrize("dim", [2.5, 17])
    def test_refused(self, folders, dim):
        with pytest.raises(ValueError, match="`truncate_dim` must be"):
            load(folders["lasttoken"], truncate_dim=dim)


class TestOutput:
    def test_int8(self, folders, expected):
        model = load(folders["lasttoken"], output="int8", truncate_dim=CUT)
        found = model.predict(TEXTS, verbose=0)
        exact = expected["lasttoken/cut"]
        exact = 127 * exact / np.abs(exact).max(axis=-1, keepdims=True)
        assert found.dtype == np.int8
        assert np.abs(found - exact).max() <= 0.5 + 1e-3
        assert (np.abs(found.astype(int)).max(axis=-1) == 127).all()

    def test_binary(self, folders, expected):
        model = load(folders["several"], output="binary", truncate_dim=CUT)
        found = model.predict(TEXTS, verbose=0)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, expected["several/bits"])


@pytest.mark.parametrize(
    "option",
    [{"prompts": {}}, {"output": "int8"}],
    ids=lambda option: next(iter(option)),
)
def test_options_of_sentence_encoders_alone(folders, option):
    (name,) = option
    for folder, more in (
        (FIXTURES / "hugging_face" / "bert", {"from_ids": True}),
        (FIXTURES / "hugging_face" / "vit", {}),
        (folders["lasttoken"], {"encoder_only": True}),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be .* for a mod"):
            load(folder, **more, **option)


class TestExports:
    def test_signatures(self, searching, expected):
        """Each puts its prompt first; files of ids take the prompt's ids."""
        import tensorflow as tf

        found = {
            each.name: each for each in resolve_serving_signatures(searching)
        }
        usual = {"serving_default": "usual", "encode_query": "query"}
        usual["encode_document"] = "document"
        assert {*found} == {*usual, "from_ids"}
        for name, way in usual.items():
            outputs = found[name].call({"text": tf.constant(TEXTS)})
            near(outputs["embedding"].numpy(), expected[f"several/{way}"])

    @pytest.mark.slow
    def test_files(self, searching, tmp_path):
        import tensorflow as tf

        tf.config.run_functions_eagerly(False)  # no function would be saved
        artifact = kp.export_saved_model(
            searching, tmp_path / "m", verbose=False
        )
        signatures = {case.signature for case in artifact.report.cases}
        assert {"encode_query", "encode_document"} <= signatures
        for export, name in (
            (kp.export_litert, "m.tflite"),
            (kp.export_onnx, "m.onnx"),
        ):
            artifact = export(searching, tmp_path / name, verbose=False)
            assert artifact.report.passed
