"""Files that MediaPipe's text tasks take as they are."""

import dataclasses
import functools
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


@functools.cache
def vocabulary():
    return kp.WordpieceTokenizer.learn(TEXTS * 3, 120).get_vocabulary()


def tokenizer(**options):
    return kp.WordpieceTokenizer(vocabulary(), **options)


@functools.cache
def classifier(is_deep=False, **options):
    """A model that no test changes."""
    keras.utils.set_random_seed(0)
    tokens = tokenizer(**options)
    encoder = kp.TransformerEncoder(1, num_heads=2, intermediate_dim=32)
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokens,
            layers.Embedding(tokens.vocabulary_size(), 16, mask_zero=True),
            *([kp.PositionalEncoding(), encoder] if is_deep else []),
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
    tmp_path, contents, monkeypatch, pack, message
):
    monkeypatch.setattr(litert, "with_metadata", pack)
    with pytest.raises(kp.ExportVerificationError, match=f"(?is){message}"):
        export(classifier(), tmp_path / "m.tflite")
    assert contents(tmp_path) == []


def test_classifier_answers_as_keras(tmp_path):
    model = classifier(is_deep=True, sequence_length=8)
    signatures = {"serving_default": (model, {"ids": (1, 8)})}
    artifact = export(
        model, tmp_path / "m.tflite", labels=LABELS, signatures=signatures
    )
    assert artifact.report.passed
    inspection = kp.inspect_export(artifact.path)
    inputs = inspection.signatures["serving_default"]["inputs"]
    assert {*inputs} == {"ids", "mask", "segment_ids"}
    assert {*map(str, inputs.values())} == {"int32 (1, 8)"}
    expected = model.predict(tf.constant(SAME), verbose=0)
    assert np.min(np.ptp(expected, axis=0)) > 0.02  # else all is alike
    np.testing.assert_allclose(
        classify(artifact.path, SAME), expected, rtol=0, atol=1e-5
    )


def test_embedder_answers_as_keras(tmp_path):
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


@pytest.mark.slow
def test_quantized_classifier(tmp_path):
    model = classifier(is_deep=True)
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
def made(tmp_path_factory):
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


def repacked(path, folder, **changes):
    """The same graph, with other contents of `vocab` and `labels`, or none."""
    with zipfile.ZipFile(path) as archive:
        end = archive.infolist()[0].header_offset
        files = {name: archive.read(name) for name in archive.namelist()}
    files |= {f"{name}.txt": value for name, value in changes.items()}
    found = folder / "again.tflite"
    found.write_bytes(path.read_bytes()[:end])
    with zipfile.ZipFile(found, "a") as archive:
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
    assert (
        "metadata for MediaPipe: task: text_classifier; labels: bad, fair, good"
    ) in str(found)
    assert found.metadata == {"task": "text_classifier", "labels": LABELS}
    report = kp.verify_export(path, model, max_length=4)
    assert report.passed
    assert "lowercases only ASCII letters" in str(report)
    assert report.unverified == ["labels"]
    assert "MediaPipe gave the model's outputs for " in report.details()
    assert report.different_weights == []
    report = kp.verify_export(path, model, max_length=4, labels=LABELS)
    assert report.passed
    assert report.unverified == []
    assert with_metadata(content, task) == path.read_bytes()


def test_labels_that_are_others(made, tmp_path):
    model, path, content, task = made
    for labels, message in (
        ("fair\nbad\ngood\n", "MediaPipe finds the labels ['fair', 'bad', 'g"),
        (None, "damaged (KeyError"),
        ("a" * 2**21, "more than 1 MiB"),
        ("\x1b[2J\n" * 3, "MediaPipe finds the labels ['\\x1b[2J', "),
    ):
        found = repacked(path, tmp_path, labels=labels)
        record = record_path(found)
        record.write_text("{}")
        with pytest.raises(
            kp.ExportVerificationError, match=re.escape(message)
        ):
            kp.verify_export(found, model, labels=LABELS, max_length=2)
        assert record.read_text() == "{}"
    assert "\x1b" not in str(kp.inspect_export(found))
    # A file without labels, and one of no task.
    found.write_bytes(
        with_metadata(content, dataclasses.replace(task, labels=None))
    )
    with pytest.raises(
        kp.ExportVerificationError, match="MediaPipe finds the labels"
    ):
        kp.verify_export(found, model, labels=LABELS, max_length=2)
    found.write_bytes(content)
    assert "metadata" not in str(kp.inspect_export(found))
    with pytest.raises(ValueError, match="`labels` apply to SavedModels"):
        kp.verify_export(found, model, labels=LABELS, max_length=2)


def test_archive_that_is_damaged(made, tmp_path):
    model, path, *_ = made
    found = tmp_path / "m.tflite"
    found.write_bytes(path.read_bytes()[:-1])
    said = str(kp.inspect_export(found))
    assert "for MediaPipe: error: it is cut off, or damaged" in said
    with pytest.raises(kp.ExportVerificationError, match="no readable labels"):
        kp.verify_export(found, model, max_length=2)


def test_vocabulary_that_mediapipe_would_misread(monkeypatch):
    model = classifier()
    for tokens in (
        ["[UNK]", "[CLS]", "[SEP]", "[PAD]"],
        ["[PAD]", "[UNK]", "[SEP]", "[CLS]"],
    ):
        monkeypatch.setattr(
            kp.WordpieceTokenizer,
            "get_vocabulary",
            lambda self, tokens=tokens: tokens,
        )
        with pytest.raises(ValueError, match="vocabulary begins with"):
            resolve_task(model, "text_classifier")


@functools.cache
def one_output(layer, from_text=True):
    """The classifier's pooled vectors, or what is before them, in one layer."""
    whole = classifier()
    x = whole.layers[-2].output if from_text else whole.layers[1].output
    return keras.Model(whole.inputs, layer(x))


def given(*shapes, of=classifier, names="m"):
    """Options with signatures of a tokenizer of 8 ids."""
    model = classifier(sequence_length=8)
    signatures = {name: (of(sequence_length=8), *shapes) for name in names}
    return {"model": model, "signatures": signatures}


REFUSED = {
    "`task` must be one of": lambda: [{"task": "text_generator"}],
    "each of the 3 scores, and are 2": lambda: [{"labels": ["a", "b"]}],
    "Of one sigmoid p make two scores": lambda: [
        {"labels": ["a", "b"], "model": one_output(layers.Dense(1))}
    ],
    "given twice": lambda: [{"labels": ["a", "b", "b"]}],
    "must be a list": lambda: [{"labels": {"scores": LABELS}}],
    "`labels` name the scores": lambda: [
        {"labels": LABELS, "task": task} for task in ("text_embedder", None)
    ],
    "single texts with lowercase=True": lambda: [
        {"model": classifier(lowercase=False)}
    ],
    "needs one output of floats, of shape": lambda: [
        {"model": one_output(layers.Identity(), from_text=False)},
        {"model": one_output(lambda x: x > 0)},
    ],
    "`signatures` must map names": lambda: [
        given({}, names=["my text"]),
        given((1, 8)),
    ],
    "task has one signature, of": lambda: [given({}, names="ab")],
    "of the model itself": lambda: [
        given({}, of=lambda **_: classifier(max_length=8))
    ],
    "Signature 'm'": lambda: [
        given({"ids": shape})
        for shape in ((2, 8), (1, 1), (None, 8), (1, 9), (1, 7), (8,))
    ],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(tmp_path, message):
    for options in REFUSED[message]():
        options = {"model": classifier(), **options}
        with pytest.raises(ValueError, match=re.escape(message)):
            export(options.pop("model"), tmp_path / "m.tflite", **options)
    assert list(tmp_path.iterdir()) == []


def test_model_that_is_for_no_task(make):
    reason = (
        r"needs a model that takes strings, .+ Leave out `task` .+ Of "
        "a model with a prompt give model.with_prompt"
    )
    with pytest.raises(ValueError, match=reason):
        resolve_task(make.classifier(), "text_classifier")


def test_loops_that_mediapipe_does_not_take(tmp_path, contents):
    tokens = tokenizer(sequence_length=6)
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokens,
            layers.Embedding(tokens.vocabulary_size(), 4, mask_zero=True),
            layers.LSTM(4),
            layers.Dense(3, activation="softmax", name="scores"),
        ]
    )
    with pytest.raises(kp.ExportError, match="has loops or branches, as recur"):
        export(model, tmp_path / "m.tflite")
    assert contents(tmp_path) == []


def test_extra_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mediapipe.tasks.metadata", None)
    with pytest.raises(ImportError, match=r"keras-posenc\[mediapipe\]"):
        export(classifier(), tmp_path / "m.tflite")
