"""The names in the snippets for apps are those in the exported files."""

import re
from pathlib import Path

import keras
import pytest
from keras import layers

import keras_posenc as kp
from tests.generation import toy

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
    "android/GeneratorLiteRt.kt": {
        "signature": r'val signature = "(\w+)"',
        "input": r'createInputBuffer\("(\w+)"|"(\w+)" to source\b',
        "output": r'createOutputBuffer\("(\w+)"'
        r'|"(\w+)" to (?:target|score|tokenScore|ended)\b',
    },
    "ios/GeneratorLiteRt.swift": {
        "signature": r'signatureRunner\(with: "(\w+)"\)',
        "input": r'resizeInput\(named: "(\w+)"|invoke\(with: \["(\w+)"',
        "output": r'output\(named: "(\w+)"\)',
    },
}


def classifier():
    """What the READMEs export for the plain snippets, and its length."""
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
    return model, {"ids": (1, 128)}


def generator():
    """The same for those of generators."""
    return toy.generator().from_ids, {"ids": (1, 64)}


@pytest.fixture(scope="module")
def signatures(tmp_path_factory):
    """Of the files that the READMEs export, by the snippets' names."""
    folder = tmp_path_factory.mktemp("app")
    found = {}
    for name, make in {
        "PlainLiteRt": classifier,
        "GeneratorLiteRt": generator,
    }.items():
        model, shapes = make()
        path = kp.export_litert(
            model,
            folder / f"{name}.tflite",
            signatures={"serving_default": (model, shapes)},
            verify=False,
            verbose=False,
        ).path
        found[name] = kp.inspect(path).signatures
    return found


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
    ((name, signature),) = signatures[Path(snippet).stem].items()
    outputs = set(signature["outputs"])
    # LiteRT in Kotlin fills all outputs at once, and in Swift who asks.
    asked = outputs if snippet.endswith(".kt") else outputs & found["output"]
    assert found == {
        "signature": {name},
        "input": set(signature["inputs"]),
        "output": asked,
    }
    assert asked


@pytest.mark.parametrize("snippet", ["PlainLiteRt", "GeneratorLiteRt"])
def test_kotlin_has_the_length_of_its_export(signatures, snippet):
    text = (EXPORT / "android" / f"{snippet}.kt").read_text()
    (length,) = re.findall(r"length: Int = (\d+)", text)
    spec = str(signatures[snippet]["serving_default"]["inputs"]["ids"])
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
    loads = re.compile(
        r'(embedder|generator|model)\.tflite"'
        r'|forResource: "model", ofType: "tflite"'
    )
    code = [
        file.read_text()
        for file in folder.iterdir()
        if file.suffix in {".kt", ".swift", ".js"}
        and file.name not in ("normalize.js", "characters.js")
    ]
    assert code
    assert all(loads.search(text) for text in code)
    assert 'model.tflite"' in readme
    assert 'task="text_classifier"' in readme
