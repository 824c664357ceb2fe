"""The page of export/web, in a browser, answers as the model in Keras."""

import re
import unicodedata
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_posenc as kp
from tests import reference
from tests.layers import text_classifier
from tests.web.browsing import browser, copy_of_page, drive

# In a browser: `make test-web`.
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

CORPUS = [
    "the student who failed the exam received a warning",
    "to be, or not to be: that is the question!",
    "a cat sat on the mat (again) and a dog did not",
]
TEXTS = [
    *CORPUS,
    "The CAT sat; the Dog?  It did NOT...",
    "unknownwordxyz",
    "x" * 300,
    "\u4f60\u597d the cat",
    "the cat \U0001f642\U0001f642 sat",
    "don't e-mail me@example.com $5.00 50% [CLS] [SEP] ##the",
    "the cat sat on the mat " * 40,
    "a < b + c = `d` | ~e^f \u2014 the \u201ccat\u201d\n\tsat",
    # What MediaPipe by itself takes for other words.
    "The C\u00c1T s\u00e5t \u2026 on the m\u0430t",
    "\uff34\uff28\uff25\u3000\uff43\uff41\uff54\u00a0sat \U0001d41e\u1e9e",
    "the\u200b c\u00adat\u2028sat\x07on \u0130t, \u03c3\u03a3 \ud55c \u3005",
]
LABELS = ["bad", "fair", "good"]


def classifier():
    """A model whose scores differ from text to text."""
    keras.utils.set_random_seed(0)
    model = text_classifier(CORPUS * 3, 120, classes=3)
    pooled = keras.Model(model.inputs, model.layers[-2].output)
    features = pooled.predict(tf.constant(TEXTS), verbose=0)
    kernel = np.random.default_rng(0).standard_normal((16, 3))
    bias = -np.mean(features, axis=0) @ kernel
    model.layers[-1].set_weights([kernel, bias])
    return model


# Unicode's Default_Ignorable_Code_Point, which Python does not know.
IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def normalize(text):
    """`normalize` of export/web, export/ios and export/android once more."""

    def fold_case(letter):
        if letter == "\u0131":
            return letter
        if unicodedata.name(letter, "").startswith("CHEROKEE"):
            return letter.upper()
        return letter.lower().upper().lower()

    decomposed = unicodedata.normalize("NFKD", text)
    folded = "".join(map(fold_case, decomposed))
    return "".join(
        " " if unicodedata.category(letter) in BLANK else letter
        for letter in IGNORABLE.sub("", unicodedata.normalize("NFKD", folded))
        if unicodedata.category(letter) != "Mn"
    )


BLANK = {"Cc", "Cf", "Zs", "Zl", "Zp"}


def characters():
    """Texts of every character that Python knows, each inside of a word.

    Except U+1171E, which Unicode 17 no longer calls a nonspacing mark.
    """
    found = [
        f"a{chr(code)}b"
        for code in range(0x110000)
        if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")
        and code != 0x1171E
    ]
    return ["|".join(found[i : i + 500]) for i in range(0, len(found), 500)]


@pytest.fixture(scope="module")
def model():
    return classifier()


@pytest.fixture(scope="module")
def shown(model, tmp_path_factory):
    """What the page shows to someone at its keyboard."""
    pytest.importorskip("mediapipe")
    browser()
    folder = tmp_path_factory.mktemp("web")
    site = copy_of_page(folder)
    path = kp.export_litert(
        model,
        site / "model.tflite",
        task="text_classifier",
        labels=LABELS,
        max_length=32,
        verbose=False,
    ).path
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        graph = content[: archive.infolist()[0].header_offset]
    (site / "plain.tflite").write_bytes(graph)
    noise = np.random.default_rng(0).bytes(4000)
    corrupt = content[:8] + noise + content[8 + len(noise) :]
    (site / "corrupt.tflite").write_bytes(corrupt)

    return drive(
        "drive_page.mjs",
        folder,
        site,
        file=str(site / "index.html"),
        texts=TEXTS,
        characters=characters(),
        model=str(path),
    )


def test_answers_are_keras(shown, model):
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    assert np.min(np.ptp(expected, axis=0)) > 0.05  # else all is alike
    for row, answer in zip(expected, shown["answers"], strict=True):
        assert list(answer["scores"]) == LABELS
        scores = [answer["scores"][label]["raw"] for label in LABELS]
        np.testing.assert_allclose(scores, row, rtol=0, atol=1e-5)
        best = LABELS[np.argmax(row)]
        assert answer["best"] == best
        assert answer["status"] == f"{best}, {100 * max(scores):.1f} %"
        for label, score in zip(LABELS, scores, strict=True):
            written = answer["scores"][label]["text"]
            assert written.split("\n") == [label, f"{100 * score:.1f} %"]


def test_tokens_are_keras(shown, model):
    tokenizer = model.layers[0]
    vocabulary = tokenizer.get_vocabulary()
    for text, answer in zip(TEXTS, shown["answers"], strict=True):
        ids = np.asarray(tokenizer([text]))[0]
        assert answer["tokens"] == [vocabulary[index] for index in ids]


def test_texts_are_normalized_as_the_tokenizer_does(
    shown,
):
    assert shown["normalized"] == [*map(normalize, characters())]


def test_heat_map_is_the_encoding(shown):
    for answer in shown["answers"]:
        found = answer["encoding"]
        shape = (found["height"], found["width"])
        assert shape == (len(answer["tokens"]), 64)
        assert f"{shape[0]} tokens" in answer["name"]
        expected = reference.positional_encoding(*shape, layout="halves")
        expected = np.reshape(expected, (*shape, 1))
        ends = np.where(expected < 0, [33, 102, 172], [178, 24, 43])
        colors = 247 + np.abs(expected) * (ends - 247)
        pixels = np.reshape(found["pixels"], (*shape, 4))
        np.testing.assert_allclose(pixels[..., :3], colors, rtol=0, atol=0.51)
        assert np.all(pixels[..., 3] == 255)


def test_keyboard_is_enough(shown):
    assert shown["before"] == {"focus": "text", "status": "Ready: type a text."}
    assert [stop["id"] for stop in shown["stops"]] == [
        "classify",
        "scroll",
        "file",
    ]
    assert all(stop["outline"] != "none" for stop in shown["stops"])
    assert shown["emptied"] == "Ready: type a text."


def test_phone_needs_no_sideways_scrolling(shown):
    assert shown["widths"] == {"desktop": 1280, "phone": 390}


def test_nothing_leaves_the_browser(shown):
    assert "violates the following Content Security" in shown["metrics"]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("absent", ["no absent.tflite", "404", "beside index.html"]),
        ("corrupt", ["cannot run corrupt.tflite", "not a valid Flatbuffer"]),
        ("page", ["index.html is not a LiteRT file"]),
        ("plain", ["no vocabulary", 'task="text_classifier"']),
        ("mediapipe", ["MediaPipe is not here", "npm ci"]),
        ("wasm", ["WebAssembly is not here", "404", "npm ci"]),
        ("file", ["file://", "python -m http.server"]),
    ],
)
def test_trouble_is_named(shown, trouble, words):
    found = shown["troubles"][trouble]
    assert found["role"] == "alert"
    assert found["disabled"]
    for word in words:
        assert word in found["message"]


def test_model_chosen_after_trouble_answers(shown):
    assert shown["chosen"] == shown["answers"][0]["scores"]
