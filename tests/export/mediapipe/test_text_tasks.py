"""Files that MediaPipe's text tasks take as they are."""

import dataclasses
import functools
import hashlib
import re
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_posenc as kp
from keras_posenc.export.formats import litert
from keras_posenc.export.formats import mediapipe as task_metadata
from keras_posenc.export.formats.mediapipe import resolve_task, with_metadata
from keras_posenc.export.record import record_path

pytestmark = pytest.mark.tensorflow

TEXTS = [
    "the student who failed the exam received a warning",
    "to be, or not to be: that is the question!",
    "a cat sat on the mat (again) and a dog did not",
]
# Where MediaPipe's own tokens are ours: no accents, no capitals beyond ASCII.
SAME = [
    *TEXTS,
    "",
    " \t ",
    "The CAT sat; the Dog?  It did NOT...",
    "unknownwordxyz",
    "x" * 300,
    "\u4f60\u597d the cat",
    "the cat \U0001f642\U0001f642 sat",
    "don't e-mail me@example.com $5.00 50% [CLS] [SEP] ##the",
    "the cat sat on the mat " * 40,
]


@pytest.fixture(scope="module")
def mediapipe():
    return pytest.importorskip("mediapipe")


@functools.cache
def vocabulary():
    return kp.WordpieceTokenizer.learn(TEXTS * 3, 120).get_vocabulary()


def tokenizer(**options):
    return kp.WordpieceTokenizer(vocabulary(), **options)


@functools.cache
def classifier(**options):
    """A model that no test changes."""
    keras.utils.set_random_seed(0)
    tokens = tokenizer(**options)
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokens,
            layers.Embedding(tokens.vocabulary_size(), 16, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(1, num_heads=2, intermediate_dim=32),
            kp.Pooling1D("mean"),
            layers.Dense(3, activation="softmax", name="scores"),
        ]
    )
    # Scores that differ from text to text.
    pooled = keras.Model(model.inputs, model.layers[-2].output)
    features = pooled(tf.constant(SAME)).numpy()
    kernel = np.random.default_rng(0).standard_normal((16, 3))
    bias = -np.mean(features, axis=0) @ kernel
    model.layers[-1].set_weights([kernel, bias])
    return model


@functools.cache
def pooled():
    """Converted sooner, where all depends on what is packed."""
    keras.utils.set_random_seed(0)
    tokens = tokenizer()
    kernel = keras.initializers.RandomNormal(stddev=5.0)
    return keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokens,
            layers.Embedding(tokens.vocabulary_size(), 8, mask_zero=True),
            kp.Pooling1D("mean"),
            layers.Dense(
                *(3, "softmax"), name="scores", kernel_initializer=kernel
            ),
        ]
    )


LABELS = ["bad", "fair", "good"]


def export(model, path, **options):
    options = {"task": "text_classifier", "verbose": False, **options}
    return kp.export_litert(model, path, max_length=32, **options)


def classify(path, texts):
    from mediapipe.tasks.python.core.base_options import BaseOptions
    from mediapipe.tasks.python.text import (
        TextClassifier,
        TextClassifierOptions,
    )

    options = TextClassifierOptions(BaseOptions(model_asset_path=str(path)))
    rows = []
    with TextClassifier.create_from_options(options) as task:
        for text in texts:
            (head,) = task.classify(text).classifications
            found = {c.category_name: c.score for c in head.categories}
            rows.append([found[label] for label in LABELS])
    return np.array(rows)


def embed(path, texts):
    from mediapipe.tasks.python.core.base_options import BaseOptions
    from mediapipe.tasks.python.text import TextEmbedder, TextEmbedderOptions

    options = TextEmbedderOptions(BaseOptions(model_asset_path=str(path)))
    with TextEmbedder.create_from_options(options) as task:
        return np.stack(
            [task.embed(text).embeddings[0].embedding for text in texts]
        )


def with_tokens_reversed(content, task):
    vocabulary = [*task.vocabulary[:4], *task.vocabulary[:3:-1]]
    return with_metadata(
        content, dataclasses.replace(task, vocabulary=vocabulary)
    )


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (lambda content, task: content, "MediaPipe failed .*metadata"),
        (
            with_tokens_reversed,
            "MediaPipe's outputs differ from the model's",
        ),
    ],
    ids=["nothing", "other vocabulary"],
)
def test_what_mediapipe_does_not_take(
    mediapipe, tmp_path, contents, monkeypatch, pack, message
):
    monkeypatch.setattr(litert, "with_metadata", pack)
    with pytest.raises(kp.ExportVerificationError, match=f"(?is){message}"):
        export(pooled(), tmp_path / "m.tflite")
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        pytest.param({"sequence_length": 8}, None, marks=pytest.mark.slow),
        ({"sequence_length": 8}, (1, 8)),
        pytest.param({"max_length": 8}, None, marks=pytest.mark.slow),
        pytest.param({"max_length": 8}, (1, 8), marks=pytest.mark.slow),
        pytest.param({}, (1, 2048), marks=pytest.mark.slow),
    ],
)
def test_classifier_answers_as_keras(mediapipe, tmp_path, options, shape):
    model = classifier(**options)
    signatures = shape and {"serving_default": (model, {"ids": shape})}
    artifact = export(
        model, tmp_path / "m.tflite", labels=LABELS, signatures=signatures
    )
    assert artifact.report.passed
    inspection = kp.inspect_export(artifact.path)
    found = inspection.signatures["serving_default"]["inputs"]
    wanted = f"int32 {shape or (1, None)}"
    assert {
        name: str(tensor) for name, tensor in found.items()
    } == dict.fromkeys(("ids", "mask", "segment_ids"), wanted)
    expected = model.predict(tf.constant(SAME), verbose=0)
    assert np.min(np.ptp(expected, axis=0)) > 0.02  # else all is alike
    np.testing.assert_allclose(
        classify(artifact.path, SAME), expected, rtol=0, atol=1e-5
    )


def test_embedder_answers_as_keras(mediapipe, tmp_path):
    whole = classifier()
    model = keras.Model(whole.inputs, whole.layers[-2].output)
    artifact = export(model, tmp_path / "m.tflite", task="text_embedder")
    details = artifact.report.details()
    assert "lowercases only ASCII letters" in details
    np.testing.assert_allclose(
        embed(artifact.path, SAME),
        model.predict(tf.constant(SAME), verbose=0),
        rtol=0,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("options", "same", "other"),
    [
        ({}, ["the cat", "\u4f60\u597d cat"], ["the c\u00e1t", "\u00c9t"]),
        ({"strip_accents": False}, ["the c\u00e1t"], ["\u00c9t"]),
        ({"split_on_cjk": False}, ["the cat"], ["\u4f60\u597d cat"]),
    ],
)
def test_texts_beyond_ascii_get_other_ids(
    mediapipe, tmp_path, options, same, other
):
    words = ["the", "cat", "c\u00e1t", "\u00e9t", "et", "\u4f60", "\u597d"]
    tokens = kp.WordpieceTokenizer(
        [*FOUR, *words, "##\u597d", "\u4f60\u597d"],
        sequence_length=8,
        normalization="bert",
        **options,
    )
    text = keras.Input((), dtype="string", name="text")
    model = keras.Model(text, layers.Rescaling(1.0)(tokens(text)))
    path = export(
        model,
        tmp_path / "ids.tflite",
        task="text_embedder",
        signatures={"serving_default": (model, {"ids": (1, 8)})},
        verify=False,
    ).path
    found = embed(path, [*same, *other])
    ids = np.asarray(tokens([*same, *other]))
    wanted = [True] * len(same) + [False] * len(other)
    assert (found == ids).all(axis=1).tolist() == wanted


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_what_an_application_should_know_is_said(
    mediapipe, tmp_path, activation
):
    tokens = tokenizer(max_length=16)
    bias = keras.initializers.Constant(2.0)
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokens,
            layers.Embedding(tokens.vocabulary_size(), 4, mask_zero=True),
            kp.Pooling1D("mean"),
            layers.Dense(3, activation=activation, bias_initializer=bias),
        ]
    )
    signatures = {"serving_default": (model, {"ids": (1, 16)})}
    path = tmp_path / "m.tflite"
    report = str(export(model, path, signatures=signatures).report)
    assert ("scores are not all from 0" in report) == (activation is None)


def between(mark, count=1):
    """Puts a mark between every few letters."""
    return lambda text: re.sub(f"(\\w{{{count}}})(?=\\w)", rf"\1{mark}", text)


def shifted(start, letter="a"):
    """Letters of ASCII from another place of Unicode."""
    return lambda text: re.sub(
        f"[{letter}-{chr(ord(letter) + 25)}]",
        lambda found: chr(start + ord(found[0]) - ord(letter)),
        text,
    )


# What people, and what they copy from, make of a text.
KINDS = {
    "plain": str,
    "capitals": str.upper,
    "accents": lambda text: text.translate(
        str.maketrans("aeioucn", "\u00e1\u00ea\u00ef\u014d\u016f\u00e7\u00f1")
    ),
    "accents apart": between("\u0301"),
    "accented capitals": lambda text: text.upper().replace("E", "\u00c9"),
    "full width": shifted(0xFF41),
    "full width and blank": lambda text: shifted(0xFF41)(text).replace(
        " ", "\u3000"
    ),
    "bold": shifted(0x1D41A),
    "in circles": shifted(0x24D0),
    "ligatures": lambda text: text.replace("fi", "\ufb01").replace(
        "st", "\ufb06"
    ),
    "unbreakable": lambda text: text.replace(" ", "\u00a0"),
    "thin blanks": lambda text: text.replace(" ", "\u2009"),
    "lines": lambda text: text.replace(" ", "\u2028"),
    "zero width": between("\u200b", 2),
    "soft hyphens": between("\u00ad", 3),
    "controls": lambda text: text.replace(" ", "\x07") + "\x00 the exam",
    "marks of order": lambda text: f"\ufeff\u202b{text}\u202c",
    "Chinese": between("\u4f60", 4),
    "Korean": lambda text: f"{text} \ud55c\uad6d\uc5b4",
    "emoji": between("\U0001f468\u200d\U0001f469\ufe0f", 5),
    "Greek": lambda text: f"{text.upper()} \u039f\u0394\u039f\u03a3 \u1fb3",
    "Cyrillic": lambda text: f"{text} \u0419\u041e\u0416\u0418\u041a \u1c81",
    "German and Turkish": lambda text: f"{text} STRA\u1e9eE \u0130\u0131",
    "quotes": lambda text: f"\u201c{text}\u201d \u2014 \u2026 \u00bd \u2122",
    "Hindi": lambda text: f"\u0939\u093f\u0928\u094d\u0926\u0940 {text}",
    "Arabic": lambda text: f"\u0645\u064f\u062d\u0640 {text} \u060c \ufefb",
}


def test_texts_of_all_kinds_once_they_are_normalised(
    mediapipe, tmp_path, mediapipe_normalize
):
    rng = np.random.default_rng(0)
    words = sorted(set(re.findall(r"\w+", " ".join(TEXTS))))
    texts = [
        kind(" ".join(rng.choice(words, 6)))
        for kind in KINDS.values()
        for _ in range(16)
    ]
    letters = sorted(set(map(mediapipe_normalize, "".join(texts))) - {"", " "})
    pieces = {p for letter in letters for p in (*letter, f"##{letter[-1]}")}
    vocabulary = tokenizer().get_vocabulary()
    vocabulary += sorted(pieces - {*vocabulary})
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            kp.WordpieceTokenizer(vocabulary),
            layers.Embedding(len(vocabulary), 8, mask_zero=True),
            kp.Pooling1D("mean"),
            layers.Dense(3, activation="softmax", name="scores"),
        ]
    )
    _, table, _, dense = model.layers
    table.set_weights([rng.standard_normal(table.embeddings.shape)])
    dense.set_weights([4 * rng.standard_normal((8, 3)), np.zeros(3)])
    path = export(
        model, tmp_path / "m.tflite", labels=LABELS, verify=False
    ).path
    expected = model.predict(tf.constant(texts), verbose=0)
    winners = np.argmax(expected, axis=1)
    assert min(np.bincount(winners, minlength=3)) > 20

    as_they_are = classify(path, texts)
    assert np.mean(np.argmax(as_they_are, axis=1) == winners) < 0.9
    normalised = classify(path, [*map(mediapipe_normalize, texts)])
    assert np.mean(np.argmax(normalised, axis=1) == winners) >= 0.995
    np.testing.assert_allclose(normalised, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_quantized_classifier(mediapipe, tmp_path):
    model = classifier()
    artifact = export(
        model,
        tmp_path / "m.tflite",
        labels=LABELS,
        quantization="int8",
        samples=TEXTS,
    )
    report = artifact.report
    (ran,) = (x for x in report.checks if x.startswith("MediaPipe gave"))
    assert int(ran.split()[-2]) == len(TEXTS)
    (found,) = report.quality.values()
    assert found.rows == len(TEXTS)
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    difference = np.abs(classify(artifact.path, TEXTS) - expected)
    assert 1e-6 < np.max(difference) <= report.largest_difference


@pytest.fixture(scope="module")
def made(mediapipe, tmp_path_factory):
    """A model, its file, and what the file was packed from."""
    packed = []

    def pack(*arguments):
        packed.extend(arguments)
        return with_metadata(*arguments)

    model = classifier()
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(litert, "with_metadata", pack)
        path = export(model, folder / "m.tflite", labels=LABELS).path
    return model, path, *packed


def repacked(path, folder, method=zipfile.ZIP_STORED, **changes):
    """The same graph, with other contents of `vocab` and `labels`, or none."""
    with zipfile.ZipFile(path) as archive:
        end = archive.infolist()[0].header_offset
        files = {name: archive.read(name) for name in archive.namelist()}
    files |= {f"{name}.txt": value for name, value in changes.items()}
    found = folder / "again.tflite"
    found.write_bytes(path.read_bytes()[:end])
    with zipfile.ZipFile(found, "a", method) as archive:
        for name, content in files.items():
            if content is not None:
                archive.writestr(name, content)
    return found


def test_what_is_packed_and_verified(made):
    model, path, content, task = made
    expected = model.predict(tf.constant(SAME), verbose=0)
    np.testing.assert_allclose(
        classify(path, SAME), expected, rtol=0, atol=1e-5
    )
    with zipfile.ZipFile(path) as archive:
        vocabulary = archive.read("vocab.txt").decode().splitlines()
        assert archive.read("labels.txt").decode() == "bad\nfair\ngood\n"
    assert vocabulary == model.layers[0].get_vocabulary()
    found = kp.inspect_export(path)
    tokens = len(vocabulary)
    assert (
        "metadata for MediaPipe: task: text_classifier; labels: bad, fair, "
        f"good; tokens: {tokens}; vocabulary: "
    ) in str(found)
    assert found.metadata == {
        "task": "text_classifier",
        "labels": LABELS,
        "tokens": tokens,
        "vocabulary": hashlib.sha256(
            "\n".join(vocabulary).encode()
        ).hexdigest(),
    }
    report = kp.verify_export(path, model, max_length=32)
    assert report.passed
    assert "lowercases only ASCII letters" in str(report)
    assert "scores are" not in str(report)
    assert report.unverified == ["labels"]
    assert "MediaPipe gave the model's outputs for " in report.details()
    assert report.different_weights == []
    report = kp.verify_export(path, model, max_length=32, labels=LABELS)
    assert report.passed
    assert report.unverified == []
    assert with_metadata(content, task) == path.read_bytes()

    other = kp.WordpieceTokenizer.learn(["another text"], 40)
    stranger = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            other,
            layers.Embedding(other.vocabulary_size(), 4, mask_zero=True),
            kp.Pooling1D("mean"),
        ]
    )
    with pytest.raises(kp.ExportVerificationError, match="vocabulary in"):
        kp.verify_export(path, stranger)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("fair\nbad\ngood\n", "MediaPipe finds the labels ['fair', 'bad', 'g"),
        (None, "must hold 'labels.txt' once, which its metadata names"),
    ],
)
def test_labels_that_are_others(made, tmp_path, labels, message):
    model, path, *_ = made
    found = repacked(path, tmp_path, labels=labels)
    record = record_path(found)
    record.write_text("{}")
    with pytest.raises(kp.ExportVerificationError, match=re.escape(message)):
        kp.verify_export(found, model, labels=LABELS)
    assert record.read_text() == "{}"


def test_labels_that_a_terminal_would_obey(made, tmp_path):
    _, path, *_ = made
    found = kp.inspect_export(repacked(path, tmp_path, labels="\x1b[2J\n" * 6))
    assert "labels: \\x1b[2J, " in str(found)
    assert ", ...; tokens: 114" in str(found)


def test_labels_of_a_file_that_has_none(made, tmp_path):
    model, _, content, task = made
    path = tmp_path / "m.tflite"
    path.write_bytes(
        with_metadata(content, dataclasses.replace(task, labels=None))
    )
    with pytest.raises(
        kp.ExportVerificationError, match="MediaPipe finds the labels"
    ):
        kp.verify_export(path, model, labels=LABELS)
    path.write_bytes(content)
    assert "metadata" not in str(kp.inspect_export(path))
    record = record_path(path)
    record.write_text("{}")
    with pytest.raises(ValueError, match="`labels` apply to SavedModels"):
        kp.verify_export(path, model, labels=LABELS)
    assert record.exists()  # nothing was compared


def test_metadata_that_mediapipe_does_not_take(made, tmp_path, monkeypatch):
    """Of which the file's own signature tells nothing."""
    model, _, content, task = made
    names = task_metadata._metadata
    monkeypatch.setattr(
        task_metadata,
        "_metadata",
        lambda task, inputs: names(task, inputs[:2]),
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(with_metadata(content, task))
    with pytest.raises(kp.ExportVerificationError, match="MediaPipe"):
        kp.verify_export(path, model, max_length=8)


def test_metadata_of_another_task_is_named(made, tmp_path, monkeypatch):
    """Its own tokenizer and labels would be what an app sees."""
    model, _, content, task = made
    schema = task_metadata.require_schema()
    monkeypatch.setattr(
        schema, "BertTokenizerOptionsT", schema.RegexTokenizerOptionsT
    )
    monkeypatch.setattr(
        schema.ProcessUnitOptions,
        "BertTokenizerOptions",
        schema.ProcessUnitOptions.RegexTokenizerOptions,
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(with_metadata(content, task))
    found = kp.inspect_export(path)
    assert found.metadata == {}
    assert task_metadata.packed_task(model, found, None, None) == (
        None,
        ["the metadata for MediaPipe"],
    )


def test_vocabulary_that_grows(made, tmp_path):
    model, path, *_ = made
    found = repacked(
        path, tmp_path, zipfile.ZIP_DEFLATED, vocab=bytes(33 * 2**20)
    )
    assert found.stat().st_size < 2**20
    with pytest.raises(kp.ExportVerificationError, match="more than 32 MiB"):
        kp.verify_export(found, model)


def encrypted(content, end):
    at = content.rindex(b"PK\1\2")
    return content[: at + 8] + b"\1" + content[at + 9 :]


def method_unknown(content, end):
    at = content.rindex(b"PK\1\2")
    return content[: at + 10] + b"\x63" + content[at + 11 :]


@pytest.mark.parametrize(
    "damage",
    [
        encrypted,
        method_unknown,
        lambda content, end: content[:-1],
        lambda content, end: content[:end] + bytes(9) + content[end + 9 :],
        lambda content, end: content.replace(b"good", b"goof"),
    ],
)
def test_archive_that_is_damaged(made, tmp_path, damage):
    model, path, *_ = made
    with zipfile.ZipFile(path) as archive:
        end = archive.infolist()[0].header_offset
    found = tmp_path / "m.tflite"
    found.write_bytes(damage(path.read_bytes(), end))
    said = str(kp.inspect_export(found))
    assert "for MediaPipe: error: it is cut off, or damaged" in said
    with pytest.raises(kp.ExportVerificationError, match="no readable vocab"):
        kp.verify_export(found, model)


class Tokenizer(layers.Layer):
    """Looks like a WordPiece tokenizer, and makes two ids of any text."""

    def __init__(self, vocabulary, lowercase=True, ids=(2, 3), **kwargs):
        super().__init__(**kwargs)
        self.tokens, self.lowercase, self.ids = vocabulary, lowercase, ids
        self.sequence_length = None

    def get_vocabulary(self):
        return list(self.tokens)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((None, len(self.ids)), "int32")

    def call(self, inputs):
        shape = (tf.shape(inputs)[0], len(self.ids))
        return tf.broadcast_to(tf.constant(self.ids), shape)

    @classmethod
    def from_config(cls, config):
        return cls(config["vocabulary"], config["lowercase"], config["ids"])

    def get_config(self):
        return {
            "vocabulary": self.tokens,
            "lowercase": self.lowercase,
            "ids": self.ids,
        }


def with_tokenizer(*arguments, **options):
    return keras.Sequential(
        [
            keras.Input((), dtype="string"),
            Tokenizer(*arguments, **options),
            layers.Embedding(10, 4),
            kp.Pooling1D("mean"),
        ]
    )


FOUR = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


@pytest.mark.parametrize(
    ("make_model", "message"),
    [
        *(
            (lambda tokens=tokens: with_tokenizer(tokens), "each token once")
            for tokens in (
                [*FOUR, "a", "b", "a"],
                ["[PAD]", "x", *FOUR[2:]],
                [*FOUR[1:], "[PAD]"],
                [*FOUR, "a\nb"],
            )
        ),
        (lambda: with_tokenizer(FOUR, lowercase=False), "lowercase=True"),
        (lambda: with_tokenizer(FOUR, ids=(1, 3)), "[CLS] before a text"),
    ],
)
def test_vocabulary_that_mediapipe_would_misread(
    mediapipe, tmp_path, make_model, message
):
    with pytest.raises(ValueError, match=re.escape(message)):
        export(make_model(), tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "text_generator"}, "`task` must be one of"),
        ({"labels": ["a", "b"]}, "each of the 3 scores. Received: 2 labels"),
        ({"labels": ["a", "b", "b"]}, "must differ"),
        ({"labels": ["a", "b", "c\nd"]}, "must each be one line"),
        ({"labels": {"scores": LABELS}}, "must be a list"),
        ({"labels": LABELS, "task": "text_embedder"}, "`labels` name the"),
        ({"labels": LABELS, "task": None}, "`labels` name the scores"),
    ],
)
def test_arguments_that_do_not_fit(mediapipe, tmp_path, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        export(classifier(), tmp_path / "m.tflite", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make_signatures", "message"),
    [
        (lambda model: {"my text": model}, "must map names, of letters"),
        (lambda model: {"main": (model, (1, 8))}, "shapes must be a dict"),
        (lambda model: {"a": model, "b": model}, "of a task must be one, of"),
        (lambda model: {"a": classifier(max_length=8)}, "of the model itself"),
        *(
            (
                lambda model, shape=shape: {"main": (model, {"ids": shape})},
                "Signature 'main'",
            )
            for shape in ((2, 8), (1, 1), (None, 8), (1, 9), (1, 7), (8,))
        ),
    ],
)
def test_signatures_that_are_none(
    mediapipe, tmp_path, make_signatures, message
):
    model = classifier(sequence_length=8)
    with pytest.raises(ValueError, match=re.escape(message)):
        export(model, tmp_path / "m.tflite", signatures=make_signatures(model))


def test_shape_that_is_longer_than_the_tokenizer_s_texts(mediapipe):
    model = classifier(max_length=8)
    with pytest.raises(ValueError, match=r"makes 2 to 8 ids of it: ids must"):
        resolve_task(
            model, "text_classifier", signatures={"a": (model, {"ids": (1, 9)})}
        )


@pytest.mark.slow
def test_loops_that_mediapipe_does_not_take(mediapipe, tmp_path, contents):
    def build(**options):
        tokens = tokenizer(sequence_length=6)
        return keras.Sequential(
            [
                keras.Input((), dtype="string", name="text"),
                tokens,
                layers.Embedding(tokens.vocabulary_size(), 4, mask_zero=True),
                layers.LSTM(4, **options),
                layers.Dense(3, activation="softmax", name="scores"),
            ]
        )

    with pytest.raises(kp.ExportError, match="has loops or branches, as recur"):
        export(build(), tmp_path / "m.tflite")
    assert contents(tmp_path) == []
    model = build(unroll=True)
    path = export(
        model,
        tmp_path / "m.tflite",
        signatures={"serving_default": (model, {"ids": (1, 6)})},
        labels=LABELS,
    ).path
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    np.testing.assert_allclose(
        classify(path, TEXTS), expected, rtol=0, atol=1e-5
    )


def test_models_that_are_for_no_task(mediapipe, tmp_path, make):
    reason = r"needs a model that takes strings, .+ Leave out `task` \(--task"
    with pytest.raises(ValueError, match=reason):
        export(make.classifier(), tmp_path / "m.tflite")
    whole = classifier()
    tokens = keras.Model(whole.inputs, whole.layers[2].output)
    reason = (
        "needs one output, of shape .+ such as kp.Pooling1D.'mean'., or "
        "leave out"
    )
    with pytest.raises(ValueError, match=reason):
        export(tokens, tmp_path / "m.tflite")


def test_extra_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mediapipe.tasks.metadata", None)
    with pytest.raises(ImportError, match=r"keras-posenc\[mediapipe\]"):
        export(classifier(), tmp_path / "m.tflite")
