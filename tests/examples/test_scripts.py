"""The scripts of `examples/` run, and what they report is right."""

import json
import re

import keras
import pytest
import tensorflow as tf

from keras_posenc import analysis
from tests.examples import encoder_folder, scripts

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
PNG = b"\x89PNG"


def test_word_order(tmp_path):
    report = scripts.run(
        "word_order", "--quick", "--out", "out", folder=tmp_path
    )
    for part in (
        *("without positions", "with positions", "Held-out sentences"),
        *("worst difference", "MediaPipe, word_order_int8.tflite"),
    ):
        assert part in report
    # MediaPipe's score of the same sentence is Keras's.
    found = [
        re.search(rf"│ {name} +│ +(0\.\d+) ", report)[1]
        for name in ("Keras", r"MediaPipe, word_order\.tflite")
    ]
    assert abs(float(found[0]) - float(found[1])) <= 2e-6
    version = tmp_path / "out" / "word_order" / "1"
    assert (version / "saved_model.pb").is_file()
    assert (tmp_path / "out" / "word_order.tflite").stat().st_size > 0


@pytest.mark.parametrize(
    "content",
    [None, b"\xff\xfe\xfa caf\xe9 " * 50, b"This is the only sentence here.\n"],
    ids=["missing", "not UTF-8", "too few sentences"],
)
def test_word_order_refuses_in_one_line(tmp_path, content):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    finished = scripts.run_any("word_order", "--texts", path, folder=tmp_path)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir() if p != path] == []


def test_dates(tmp_path):
    report = scripts.run("dates", "--quick", "--out", "out", folder=tmp_path)
    for part in ("no positions", "rotary positions", "dateutil"):
        assert part in report
    # Keras, the SavedModel and the LiteRT file answer alike, Korean first.
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in report.partition("From raw text")[2].splitlines()
        if line.startswith("│")
    ]
    assert rows[0][0] == "2031년 8월 25일 월요일"
    assert len(rows) == 7
    assert all(len({*answers}) == 1 for _, *answers in rows)
    for name in ("dates.tflite", "dates.keras"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert (tmp_path / "out" / "dates" / "1" / "saved_model.pb").is_file()


def test_extrapolation(tmp_path):
    kinds = {*scripts.load("extrapolation").KINDS}
    assert kinds == {*analysis.SCHEMES, "none", "randomized"}
    scripts.run("extrapolation", "--quick", folder=tmp_path)
    out = tmp_path / "extrapolation"
    found = json.loads((out / "accuracies.json").read_text())
    assert list(found) == ["none", "sinusoidal", "alibi"]
    # Without positions both orders give one answer, whatever was learned.
    assert set(found["none"][0].values()) == {0.5}
    for (run,) in found.values():
        assert len(run) == 6
    table = (out / "accuracies.md").read_text(encoding="utf-8")
    assert len(table.splitlines()) == 2 + 3
    assert (out / "accuracies.png").read_bytes().startswith(PNG)


def test_fine_tuning(tmp_path):
    """A small encoder learns to tell packages apart."""
    pytest.importorskip("mediapipe")
    encoder_folder.write(tmp_path / "encoder")
    report = scripts.run(
        "fine_tuning",
        *("--model", "encoder", "--out", "out", "--classes", 3),
        *("--texts", 150, "--epochs", 8, "--rate", 0.01),
        folder=tmp_path,
    )
    report = " ".join(report.split())
    before, after = map(
        float, re.findall(r"([\d.]+)% (?:are right|after)", report)
    )
    assert after > before + 5
    assert report.count("verified: ") == 2
    model = keras.saving.load_model(tmp_path / "out" / "packages.keras")
    assert len(model.labels) == 3
    assert not any("lora" in weight.name for weight in model.weights)
    served = tf.saved_model.load(tmp_path / "out" / "packages" / "1")
    text = "Return the path of a file."
    found = served.signatures["serving_default"](text=tf.constant([text]))
    (scores,) = model.predict([text], verbose=0)
    label = model.labels[scores.argmax()]
    assert found["label"].numpy()[0].decode() == label


def test_fine_tuning_search(tmp_path):
    """A small encoder learns to find."""
    encoder_folder.write(tmp_path / "encoder")
    report = scripts.run(
        "fine_tuning_search",
        *("--model", "encoder", "--out", "out", "--texts", 1500),
        *("--epochs", 10, "--batch", 16, "--dims", 32, 8),
        folder=tmp_path,
    )
    for dim in (32, 8):
        (cells,) = re.findall(rf"│ {dim} +│(.*)│", report)
        _, recall, _, gain = cells.split("│")
        for cell in (recall, gain):
            before, after = map(float, cell.split("→"))
            assert after > before, report
    model = keras.saving.load_model(tmp_path / "out" / "search.keras")
    assert model.predict(["Return a path."], verbose=0).shape == (1, 32)
    assert not any("lora" in weight.name for weight in model.weights)


def test_gallery_shows_every_scheme(tmp_path):
    given = ("--length", 8, "--dim", 4)
    report = scripts.run("gallery", *given, folder=tmp_path)
    assert report.startswith("Wrote gallery.html")
    page = (tmp_path / "gallery.html").read_text(encoding="utf-8")
    assert re.findall("<section><h2>([^:]+):", page) == list(analysis.SCHEMES)
    pictures = re.findall(r"<img src='([^']{30})", page)
    assert len(pictures) >= 4 + 2 * len(analysis.SCHEMES)
    assert set(pictures) == {"data:image/png;base64,iVBORw0K"}
    assert "http" not in page


def test_heat_map(tmp_path):
    report = scripts.run("heat_map", folder=tmp_path)
    assert report == "Wrote encoding.png\n"
    assert (tmp_path / "encoding.png").read_bytes().startswith(PNG)


def test_causal_positions_go_on_where_they_were_interrupted(tmp_path):
    folder = tmp_path / "causal_positions"
    arguments = "--quick", "--kinds", "none", "alibi"
    scripts.run("causal_positions", *arguments, folder=tmp_path)
    path = folder / "runs.json"
    kept = json.loads(path.read_text())
    del kept["runs"]["alibi"]["0"]
    kept["runs"]["none"]["0"]["text"]["64"] = 1.0  # a mark
    path.write_text(json.dumps(kept))
    scripts.run("causal_positions", *arguments, folder=tmp_path)
    runs = json.loads(path.read_text())["runs"]
    assert runs["none"]["0"]["text"]["64"] == 1.0
    assert len(runs["alibi"]["0"]) > 1
    page = (folder / "tables.md").read_text(encoding="utf-8")
    assert page.count("\n| alibi |") == 4
    assert (folder / "tables.png").read_bytes().startswith(PNG)
    kept["setting"]["steps"] = 7
    path.write_text(json.dumps(kept))
    refused = scripts.run_any("causal_positions", *arguments, folder=tmp_path)
    assert refused.returncode == 1
    assert "give another --out" in refused.stderr
