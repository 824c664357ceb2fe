"""What every tokenizer keeps to: lengths, masks, models, files and bytes."""

import json

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras_posenc as kp  # noqa: E402
from tests.layers import MaskSeen  # noqa: E402
from tests.text.files import content, sentencepiece_json  # noqa: E402

WORDS = ["token", "##s", "##ize", "a", "b", "!", "[", "]", "字"]
TEXTS = ["Tokens tokenize! a b 字", "a b", "", "[P] nothing", "5월 7일 é"]
# Padding that is neither the first id nor 0.
NAMES = {
    "start_token": "<s>",
    "pad_token": "<pad>",
    "end_token": "</s>",
    "unknown_token": "<unk>",
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
TOKENIZERS = {
    "character": lambda **options: kp.CharacterTokenizer(
        "월일57Tokens a[]", **options
    ),
    "byte": kp.ByteTokenizer,
    "wordpiece": lambda **options: kp.WordpieceTokenizer(
        [*SPECIAL, *WORDS], **options
    ),
    "wordpiece-bert": lambda **options: kp.WordpieceTokenizer(
        [*NAMES.values(), *WORDS],
        normalization="bert",
        strip_accents=False,
        split_on_cjk=False,
        special_tokens=["<pad>"],
        **NAMES,
        **options,
    ),
}
FILES = {
    "sentencepiece": (kp.SentencepieceTokenizer, sentencepiece_json),
    "byte-pair": (
        kp.BytePairTokenizer,
        lambda: content("byte_pair")["tokenizers"]["modernbert"]["json"],
    ),
}


@pytest.fixture(scope="module", params=[*TOKENIZERS, *FILES])
def make(request, tmp_path_factory):
    """Makes a tokenizer with options; one of a file from the file's config."""
    if request.param in TOKENIZERS:
        return TOKENIZERS[request.param]
    kind, said = FILES[request.param]
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(json.dumps(said()), encoding="utf-8")
    config = kind.from_tokenizer_json(path).get_config()
    return lambda **options: kind.from_config({**config, **options})


@pytest.fixture(scope="module")
def tokenizer(make):
    """One whose rows are as long as the longest text."""
    return make()


def test_lengths_frames_and_masks(make, tokenizer):
    whole = tokenizer(TEXTS).numpy()
    start, end, pad = (
        getattr(tokenizer, f"{name}_id") for name in ("start", "end", "pad")
    )
    assert whole.dtype == "int32"
    counts = (whole != pad).sum(axis=1)
    assert counts.max() == whole.shape[1] > 6
    for length in (None, 2, np.int64(6)):
        cut = tokenizer if length is None else make(sequence_length=length)
        ids = cut(TEXTS).numpy()
        width = whole.shape[1] if length is None else length
        assert ids.shape == (len(TEXTS), width)
        for row, all_ids, count in zip(ids, whole, counts, strict=True):
            kept = min(count, width)
            assert row[: kept - 1].tolist() == all_ids[: kept - 1].tolist()
            assert (row[0], row[kept - 1]) == (start, end)
            assert np.all(row[kept:] == pad)
        mask = ids != pad
        np.testing.assert_array_equal(cut.compute_mask(TEXTS), mask)
        np.testing.assert_array_equal(MaskSeen()(cut(TEXTS)), mask)
        for nothing in ([], tf.constant([], tf.string)):
            assert cut(nothing).shape == (0, length or 2)
        symbolic = cut(keras.Input((), batch_size=3, dtype="string"))
        assert (symbolic.shape, symbolic.dtype) == ((3, length), "int32")
        assert cut.compute_output_shape((None,)) == (None, length)
    longest = make(max_length=6)(TEXTS).numpy()
    np.testing.assert_array_equal(longest, make(sequence_length=6)(TEXTS))


@pytest.fixture(scope="module")
def padded():
    """One whose padding is not 0: for what the base class alone does."""
    return TOKENIZERS["wordpiece-bert"]()


def test_texts_of_any_form(padded):
    expected = padded(TEXTS)
    for form in (np.array, lambda x: np.array(x, object), tf.constant):
        np.testing.assert_array_equal(padded(form(TEXTS)), expected)
    unknown = tf.data.Dataset.from_generator(
        lambda: [TEXTS], output_signature=tf.TensorSpec(None, tf.string)
    )
    for dataset in (tf.data.Dataset.from_tensors(TEXTS), unknown):
        ids = dataset.map(padded)
        assert ids.element_spec.dtype == tf.int32
        np.testing.assert_array_equal(next(iter(ids)), expected)


def test_models_see_the_mask(padded):
    text, texts = keras.Input((), dtype="string"), tf.constant(TEXTS)
    expected = padded.compute_mask(TEXTS)
    for model in (
        keras.Model(text, MaskSeen()(padded(text))),
        keras.Sequential([padded, MaskSeen()]),
    ):
        np.testing.assert_array_equal(model(texts), expected)
        for inputs in (texts, np.array(TEXTS, object)):
            found = model.predict(inputs, verbose=0)
            np.testing.assert_array_equal(found, expected)


def test_config_and_file(make, tokenizer, tmp_path):
    named = make(name="words")
    config = json.loads(json.dumps(named.get_config()))
    kind = type(named)
    assert kind.from_config(config).get_config() == named.get_config()
    assert config["name"] == "words"
    registered = keras.saving.get_registered_name(kind)
    assert registered == f"keras_posenc>{kind.__name__}"
    # XLA has no strings. `jit_compile="auto"` asks each layer.
    assert not named.supports_jit
    assert named.weights == []
    text = keras.Input((), dtype="string")
    model = keras.Sequential([text, named, MaskSeen()])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.layers[0](TEXTS), tokenizer(TEXTS))
    expected = tokenizer.compute_mask(TEXTS)
    np.testing.assert_array_equal(loaded(tf.constant(TEXTS)), expected)


@pytest.mark.parametrize(
    ("inputs", "received"),
    [
        ([["a"], ["b"]], "dtype=string, shape=(2, 1)"),
        (keras.Input(()), "dtype=float32, shape=(None,)"),
    ],
)
def test_what_are_no_texts(inputs, received):
    with pytest.raises(ValueError, match="'words' expects strings") as error:
        kp.ByteTokenizer(name="words")(inputs)
    assert received in str(error.value)


@pytest.mark.parametrize("text", [b"a\xff b", b"\xed\xa0\x80", b""])
def test_any_bytes(tokenizer, text):
    """... half of a surrogate pair among them."""
    ids = tokenizer([text]).numpy()
    assert (ids[0, 0], ids[0, -1]) == (tokenizer.start_id, tokenizer.end_id)
    assert 0 <= ids.min() <= ids.max() < tokenizer.vocabulary_size()
    (found,) = tokenizer.detokenize(ids).numpy()
    found.decode()


@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16"])
def test_policies_do_not_touch_the_ids(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        tokenizer = TOKENIZERS["wordpiece"]()
        embedding = keras.layers.Embedding(tokenizer.vocabulary_size(), 2)
        ids = tokenizer(keras.Input((), dtype="string"))
        assert (ids.dtype, tokenizer(TEXTS).dtype) == ("int32", "int32")
        dtype = keras.config.dtype_policy().compute_dtype
        assert embedding(np.array(tokenizer(TEXTS))).dtype == dtype
    finally:
        keras.config.set_dtype_policy(before)
