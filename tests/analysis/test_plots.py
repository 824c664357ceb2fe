"""Pictures: what they show, in numbers, and that they need no screen."""

import sys
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc import analysis
from keras_posenc.export.quantize import QuantizedModel, WeightBits
from tests.refusals import check, names, table

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plot")
from matplotlib import pyplot  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

ENCODING = kp.PositionalEncoding()
FLAT = {
    "heatmap": lambda **options: analysis.plot_heatmap(ENCODING, **options),
    "waves": lambda **options: analysis.plot_waves(ENCODING, **options),
    "circle": lambda **options: analysis.plot_circle(ENCODING, **options),
    "similarity": lambda **options: analysis.plot_similarity(
        ENCODING, **options
    ),
    "bias": lambda **options: analysis.plot_bias(kp.AlibiBias(), **options),
    "wavelengths": lambda **options: analysis.plot_wavelengths(**options),
}
UNITS = ("tokens", "column", "value", "pair")


@pytest.mark.parametrize("name", FLAT)
def test_axes_are_given_back_and_labeled(name, tmp_path):
    ax = Figure().add_subplot()
    assert FLAT[name](ax=ax) is ax
    for label in (ax.get_xlabel(), ax.get_ylabel()):
        assert any(unit in label for unit in UNITS), label
    own = FLAT[name]()
    assert own is not ax
    path = tmp_path / "picture.png"
    own.figure.savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == []  # whose figures may open windows


ALIBI = kp.AlibiBias()
VECTORS = analysis.encoding_vectors(ENCODING, 6, 4)
SCORES = analysis.score_matrix(ALIBI, 6, 4)


@pytest.mark.parametrize(
    ("draw", "shown"),
    [
        (lambda: analysis.plot_heatmap(ENCODING, 6, 4), VECTORS),
        (lambda: analysis.plot_similarity(ENCODING, 6, 4), VECTORS @ VECTORS.T),
        (lambda: analysis.plot_similarity(ALIBI, 6, 4), np.mean(SCORES, 0)),
        (lambda: analysis.plot_bias(ALIBI, 6, 4, head=3), SCORES[3]),
    ],
)
def test_images_show_positions_downwards(draw, shown):
    (image,) = draw().get_images()
    np.testing.assert_array_equal(image.get_array(), shown)


def test_waves_of_chosen_dimensions():
    ax = analysis.plot_waves(ENCODING, 6, 4, dimensions=[0, 3])
    for line, column in zip(ax.get_lines(), (0, 3), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), VECTORS[:, column])
        assert line.get_label() == str(column)


def test_positions_on_a_circle():
    """32 positions in 2 dimensions, as in the source notes."""
    ax = analysis.plot_circle(ENCODING)
    points = ax.collections[0].get_offsets()
    assert points.shape == (32, 2)
    np.testing.assert_allclose(np.linalg.norm(points, axis=-1), 1, atol=1e-6)
    assert ax.get_aspect() == 1


def test_positions_round_a_cylinder():
    """500 positions in 3 dimensions, likewise."""
    ax = analysis.plot_winding(ENCODING)
    x, y, z = ax.get_lines()[0].get_data_3d()
    assert len(x) == 500
    np.testing.assert_allclose(np.hypot(x, y), 1, atol=1e-6)
    want = np.sin(np.arange(500) * 10000 ** (-2 / 3))
    np.testing.assert_allclose(z, want, atol=1e-6)
    for label in (ax.get_xlabel(), ax.get_ylabel(), ax.get_zlabel()):
        assert "value" in label
    again = Figure().add_subplot(projection="3d")
    assert analysis.plot_winding(ENCODING, ax=again) is again


def test_wavelengths():
    """From 2 pi to 10000 times that, evenly in the logarithm."""
    (line,) = analysis.plot_wavelengths(8).get_lines()
    want = 2 * np.pi * 10000.0 ** (np.arange(4) / 4)
    np.testing.assert_allclose(line.get_ydata(), want, rtol=1e-12)


ATTENTION = analysis.AttentionMap(
    "cross",
    np.arange(24.0).reshape(1, 2, 3, 4) / 24,
    ["2", "<end>", "a"],
    ["7", "␣", "b", "é"],
)


def test_attention_has_a_label_for_each_token():
    ax = analysis.plot_attention(ATTENTION, head=1)
    (image,) = ax.get_images()
    np.testing.assert_array_equal(image.get_array(), ATTENTION.weights[0, 1])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[:2] == ["2", "<end>"]
    assert len(ax.get_xticklabels()) == 4
    assert "source" in ax.get_xlabel()
    assert ax.get_title() == "one layer, head 1 of 2"
    ax.figure.canvas.draw()  # without a warning of a character
    own = Figure().add_subplot()
    assert analysis.plot_attention(ATTENTION, ax=own) is own


def test_quantization_fills_the_dots_of_chosen_modes():
    weights = [
        WeightBits("kernel", 64, "int8", {"int4": 0.5, "int8": 0.1}),
        WeightBits("table", 32, "int4", {"int4": 0.2, "float32": 0.0}),
    ]
    found = QuantizedModel(Path("m.tflite"), None, [{}], weights)
    ax = analysis.plot_quantization(found)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "table: int4",
        "kernel: int8",
    ]
    drawn = {each.get_label(): each for each in ax.collections}
    assert set(drawn) == {"int4", "int8"}
    assert drawn["int4"].get_offsets().tolist() == [[0.2, 0], [0.5, 1]]
    filled = [color[3] for color in drawn["int4"].get_facecolors()]
    assert filled == [1, 0]
    assert drawn["int8"].get_facecolors()[0][3] == 1


SCOPE = {**names(analysis, kp), "MAP": ATTENTION, "Figure": Figure}
WRONG = """
plot_quantization([])
    `found` must be what `quantize` returns
plot_attention(MAP, layer=1)
    `layer` must be from 0 to 0, or None for the mean
plot_attention(None)
    `attention` must be what `attention_map` returns
plot_winding(PositionalEncoding(), dim=2)
    at least 3 wide for this picture. Received: width 2
plot_winding(PositionalEncoding(), ax=Figure().add_subplot())
    `ax` must be made with projection='3d'
plot_waves(PositionalEncoding(), dim=4, dimensions=[1, 4])
    `dimensions` must be columns of 4. Received: dimensions=[1, 4]
plot_bias(AlibiBias(), num_heads=2, head=2)
    `head` must be from 0 to 1. Received: head=2
plot_heatmap(AlibiBias())
    `encoding` must be a layer that encodes its input
plot_wavelengths(8, max_wavelength=0)
    `max_wavelength` must be a finite number of at least 1
"""


@pytest.mark.parametrize(("call", "said"), table(WRONG))
def test_bad_arguments(call, said):
    check(call, said, SCOPE)


def test_without_matplotlib(monkeypatch):
    for name in list(sys.modules):
        if name.startswith("matplotlib"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ImportError,
        match=r"need matplotlib: pip install 'keras-posenc\[plot\]'",
    ):
        analysis.plot_wavelengths()
