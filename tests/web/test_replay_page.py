"""The page that runs a file's cases in a browser judges it as `verify` does."""

import itertools
import shutil

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.record import record_path
from keras_posenc_worker import cases
from tests.web.browsing import PAGE, browser, copy_of_page, drive, node

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

PLACES = [f"serving_default/{name}" for name in ("best", "scores", "vectors")]


def build():
    """Ids of which one output has more numbers than are kept."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    vectors = keras.layers.Embedding(40, 16)(ids)
    scores = keras.layers.Dense(3, activation="softmax")(vectors)
    return keras.Model(
        ids,
        {
            "best": keras.ops.argmax(scores, axis=-1),
            "scores": scores,
            "vectors": vectors,
        },
    )


def changed(path, name, change):
    """A copy of a file, and of its cases with a change of the last one."""
    found = path.with_name(name)
    shutil.copy(path, found)
    record = cases.unpack(record_path(path).read_bytes())
    change(record["cases"][-1]["outputs"])
    record_path(found).write_bytes(cases.pack(record))


def add(output, number):
    def change(outputs):
        outputs[output]["values"].flat[-1] += number

    return change


def reshape(outputs):
    outputs["scores"]["shape"][-1] = 4


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the page shows of files, by their names."""
    browser()
    folder = tmp_path_factory.mktemp("web")
    site = copy_of_page(folder)
    model, silent = build(), {"verbose": False, "max_length": 600}
    fixed = {"serving_default": (model, {"ids": (1, 300)})}
    paths = [
        kp.export_litert(
            model, site / "m.tflite", signatures=fixed, verbose=False
        ).path,
        kp.export_onnx(model, site / "m.onnx", **silent).path,
    ]
    for path in paths:
        kept = cases.unpack(record_path(path).read_bytes())["cases"]
        assert any("places" in x["outputs"]["vectors"] for x in kept)
        end = path.suffix
        changed(path, f"vectors{end}", add("vectors", 1e-3))
        changed(path, f"best{end}", add("best", 1))
        changed(path, f"shape{end}", reshape)
    dynamic = kp.export_litert(model, site / "dynamic.tflite", **silent).path
    record = record_path(dynamic).read_bytes()
    shutil.copy(paths[0], site / "other.tflite")
    record_path(site / "other.tflite").write_bytes(record)
    shutil.copy(paths[0], site / "torn.tflite")
    record_path(site / "torn.tflite").write_bytes(record[:-100])
    return drive(
        "drive_replay.mjs",
        folder,
        site,
        names=[path.name for path in site.glob("*.*") if path.suffix in ENDS]
        + ["absent.onnx"],
        chosen=[str(paths[1]), str(record_path(paths[1]))],
    )


ENDS = {".tflite": "LiteRT.js", ".onnx": "ONNX Runtime Web"}


@pytest.mark.parametrize("end", ENDS)
def test_file_that_is_right(shown, end):
    found = shown["byName"][f"m{end}"]
    assert found["status"].startswith(f"m{end}: equal in ")
    assert found["status"].endswith(f" cases in {ENDS[end]}.")
    for place, line in zip(PLACES, found["outputs"], strict=True):
        name, state, share = line.split(": ")
        assert (name, state) == (place, "equal")
        assert float(share.removesuffix(" of what is allowed")) <= 1
    if end == ".onnx":
        assert shown["chosen"] == found


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("name", "place", "words"),
    [
        ("vectors", PLACES[2], "of what is allowed"),
        ("best", PLACES[0], "Infinity of what is allowed"),
        ("shape", PLACES[1], "300,3, and the model 1,300,4"),
    ],
)
def test_file_that_differs_in_one_number(shown, end, name, place, words):
    found = shown["byName"][f"{name}{end}"]
    assert found["status"].startswith(f"{name}{end}: DIFFERENT in ")
    wrong = [line for line in found["outputs"] if ": DIFFERENT: " in line]
    assert [line.partition(":")[0] for line in wrong] == [place]
    if end == ".tflite" or name != "shape":
        assert words in wrong[0]


def test_file_whose_lengths_litert_does_not_take_there(shown):
    found = shown["byName"]["dynamic.tflite"]
    assert "dynamic.tflite: DIFFERENT in" in found["status"]
    assert "serving_default: DIFFERENT: " in found["outputs"][0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent.onnx", "There is no absent.onnx (404)."),
        ("other.tflite", "other.tflite is not the file that its cases are of"),
        ("torn.tflite", "no whole zip file"),
    ],
)
def test_trouble_is_named(shown, name, words):
    found = shown["byName"][name]
    assert words in found["error"]
    assert found["status"] == ""


def test_nothing_leaves_the_browser_and_nothing_scrolls_sideways(shown):
    assert shown["outside"] == []
    assert shown["widths"] == {"desktop": 1280, "phone": 390}


SCRIPT = """
const { readFileSync } = require("node:fs");
require("vm").runInThisContext(readFileSync(process.argv[1], "utf8"));
const { cases } = readCases(new Uint8Array(readFileSync(process.argv[2])));
console.log(JSON.stringify(cases.map(({ outputs: { x }, got, is_sample }) => {
  const off = difference(x.values, got.values, x.scale, is_sample);
  const { type, shape, values } = x.values;
  return [type, shape, [...values].map(String), `${off}`];
})));
"""

NUMBERS = [0.0, -0.0, 1.0, 1.5, 3e38, np.nan, np.inf, -np.inf]
TYPES = ("float32", "float64", "int64", "uint64", "int32", "uint8", "bool")


def test_numbers_are_read_and_compared_as_python_does(tmp_path):
    """Without a browser: under node."""
    rng = np.random.default_rng(0)
    pairs = [
        (np.full((1, 1), x, "float32"), np.full((1, 1), y, "float32"))
        for x, y in itertools.product(NUMBERS, repeat=2)
    ]
    for dtype in TYPES:
        x, y = rng.integers(0, 2, (2, 5, 3)).astype(dtype)
        pairs += [(x, y), (x[0], x[0]), (x.T, y.T), (x[:0], y[:0])]
        pairs.append((x[0, 0], y[0, 0]))  # without dimensions
    kept = [
        {
            "is_sample": is_sample,
            "outputs": {"x": {"values": np.asarray(x), "scale": 0.5}},
            "got": np.asarray(y),
        }
        for is_sample in (False, True)
        for x, y in pairs
    ]
    path = tmp_path / "x.cases.npz"
    path.write_bytes(cases.pack({"cases": kept}))
    seen = set()
    for case, found in zip(
        kept, node(SCRIPT, PAGE / "cases.js", path), strict=True
    ):
        wanted, got = case["outputs"]["x"]["values"], case["got"]
        is_sample = case["is_sample"]
        off = cases.difference(wanted, got, 0.5, is_sample=is_sample)
        seen.add(off)
        dtype, shape, values, text = found
        assert (dtype, tuple(shape)) == (wanted.dtype.str[1:], wanted.shape)
        if wanted.dtype.kind in "iub":
            assert values == [str(int(value)) for value in wanted.flat]
        assert float(text.replace("Infinity", "inf")) == pytest.approx(off)
    assert {0.0, 1.0, np.inf} < seen
