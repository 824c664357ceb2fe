"""The names in the snippets for apps are those in the exported files."""

import re
from pathlib import Path

import keras
import pytest
from keras import layers

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow

EXPORT = Path(__file__).resolve().parents[2] / "export"
# What each call of the snippets is given as the name of.
NAMES = {
    "android/PlainLiteRt.kt": {
        "signature": r'val signature = "(\w+)"',
        "input": r'createInputBuffer\("(\w+)"|mapOf\("(\w+)" to ids\)',
        "output": r'createOutputBuffer\("(\w+)"|mapOf\("(\w+)" to scores\)',
    },
    "ios/PlainLiteRt.swift": {
        "signature": r'signatureRunner\(with: "(\w+)"\)',
        "input": r'resizeInput\(named: "(\w+)"|invoke\(with: \["(\w+)"',
        "output": r'output\(named: "(\w+)"\)',
    },
}


@pytest.fixture(scope="module")
def signatures(tmp_path_factory):
    """Of the file that the READMEs export for the plain snippets."""
    keras.utils.set_random_seed(0)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "one", "two"]
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            kp.WordpieceTokenizer(tokens),
            layers.Embedding(20, 4, mask_zero=True),
            kp.MaskedAveragePooling1D(),
            layers.Dense(2, activation="softmax", name="scores"),
        ]
    )
    path = kp.export_litert(
        model,
        tmp_path_factory.mktemp("app") / "model.tflite",
        signatures={"serving_default": (model, {"ids": (1, 128)})},
        verify=False,
        verbose=False,
    ).path
    return kp.inspect(path).signatures


@pytest.mark.parametrize("snippet", NAMES)
def test_plain_snippet_names_what_is_exported(signatures, snippet):
    text = (EXPORT / snippet).read_text()
    found = {
        kind: {
            name
            for match in re.finditer(pattern, text)
            for name in match.groups()
            if name is not None
        }
        for kind, pattern in NAMES[snippet].items()
    }
    ((name, signature),) = signatures.items()
    assert found == {
        "signature": {name},
        "input": set(signature["inputs"]),
        "output": set(signature["outputs"]),
    }


def test_plain_kotlin_has_the_length_of_its_export(signatures):
    text = (EXPORT / "android" / "PlainLiteRt.kt").read_text()
    (length,) = re.findall(r"length: Int = (\d+)", text)
    spec = str(signatures["serving_default"]["inputs"]["ids"])
    assert spec == f"int32 (1, {length})"
    readme = (EXPORT / "android" / "README.md").read_text()
    assert f'{{"ids": (1, {length})}}' in readme


@pytest.mark.parametrize(
    ("snippet", "call"),
    [
        ("android/TextTask.kt", r"classify\(normalize\(text\)\)"),
        ("ios/TextTask.swift", r"classify\(text: normalize\(text\)\)"),
        ("web/classify.js", r"normalized = normalize\(text\)"),
    ],
)
def test_text_is_normalised_before_mediapipe_sees_it(snippet, call):
    text = (EXPORT / snippet).read_text()
    assert re.search(call, text)
    if not snippet.startswith("web"):
        assert re.search(r"fun[c]? normalize\(", text)


@pytest.mark.parametrize("platform", ["android", "ios", "web"])
def test_readme_names_each_file_and_a_file_of_the_right_name(platform):
    folder = EXPORT / platform
    readme = (folder / "README.md").read_text()
    for file in folder.iterdir():
        if file.suffix in {".kt", ".kts", ".swift", ".js"}:
            assert f"`{file.name}`" in readme
    loads = re.compile(r'model\.tflite"|forResource: "model", ofType: "tflite"')
    code = [
        file.read_text()
        for file in folder.iterdir()
        if file.suffix in {".kt", ".swift", ".js"}
        and file.name != "normalize.js"
    ]
    assert code
    assert all(loads.search(text) for text in code)
    assert 'model.tflite"' in readme
    assert 'task="text_classifier"' in readme
