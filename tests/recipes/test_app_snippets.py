"""The names in the snippets for apps are those in the exported files."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc_worker import cases, codec
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

WEB = ["web/cases.js", "web/replay.js"]


@pytest.fixture(scope="module")
def signatures(tmp_path_factory):
    """Of the files that the page on Android exports, by their names."""
    pytest.importorskip("mediapipe")
    folder = tmp_path_factory.mktemp("app")
    export = functools.partial(kp.export_litert, verify=False, verbose=False)
    namespace = {"generator": toy.generator()}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(kp, "export_litert", export)
        for code in snippets("android"):
            exec(code, namespace)
    rows = json.loads((folder / "expected.json").read_text("utf-8"))
    assert all(row["scores"].keys() == {"no", "yes"} for row in rows)
    return {
        path.name: kp.inspect_export(path).signatures
        for path in folder.glob("*.tflite")
    }


def snippets(platform):
    """The Python of a page."""
    readme = (EXPORT / platform / "README.md").read_text("utf-8")
    return re.findall(r"(?ms)^```python\n(.*?)^```$", readme)


def loaded(snippet):
    """The name of the file that a snippet of code loads."""
    (name,) = re.findall(
        r'"(\w+\.tflite)"|forResource: "(\w+)", ofType: "tflite"',
        (EXPORT / snippet).read_text(),
    )
    return name[0] or f"{name[1]}.tflite"


# Names of signatures, inputs and outputs are tested with each export, too.
@pytest.mark.slow
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
    ((name, signature),) = signatures[loaded(snippet)].items()
    outputs = set(signature["outputs"])
    # LiteRT in Kotlin fills all outputs at once, and in Swift who asks.
    asked = outputs if snippet.endswith(".kt") else outputs & found["output"]
    assert found == {
        "signature": {name},
        "input": set(signature["inputs"]),
        "output": asked,
    }
    assert asked


@pytest.mark.slow
@pytest.mark.parametrize("snippet", ["PlainLiteRt", "GeneratorLiteRt"])
def test_kotlin_has_the_length_of_its_export(signatures, snippet):
    text = (EXPORT / "android" / f"{snippet}.kt").read_text()
    (length,) = re.findall(r"length: Int = (\d+)", text)
    found = signatures[loaded(f"android/{snippet}.kt")]["serving_default"]
    spec = str(found["inputs"]["ids"])
    assert spec == f"int32 (1, {length})"
    readme = (EXPORT / "android" / "README.md").read_text()
    assert f'{{"ids": (1, {length})}}' in readme


@pytest.mark.parametrize(
    "snippets", [["android/Replay.kt"], ["ios/Replay.swift"], WEB]
)
def test_replay_reads_each_part_of_a_case(snippets):
    zeros = np.zeros(2, "float32")
    case = cases.make_case("s", {"x": zeros}, {"y": zeros}, {"y": zeros}, {}, 1)
    (array,) = json.loads(codec.encoded([zeros])[0])
    texts = [(EXPORT / snippet).read_text() for snippet in snippets]
    words = {*re.findall(r"\w+", "\n".join(texts))}
    names = {"cases", *case, *case["outputs"]["y"]} - {"not_compared"}
    if snippets == ["android/Replay.kt"]:
        names.remove("shape")  # its buffers have none
    assert names <= words
    (marker,) = array
    written = {marker.replace("\0", each) for each in (r"\0", r"\u0000")}
    written.add(marker.replace("\0", r"\u{0}"))
    assert any(f'"{each}"' in text for each in written for text in texts)
