"""The command's pictures and its table of schemes."""

import json
import sys
from types import SimpleNamespace

import pytest

from keras_posenc_cli import _PICTURES, main

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd):
    """Runs the command in an empty folder."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.chdir(tmp_path)

    def run(line):
        try:
            code = main(line.split())
        except SystemExit as end:
            code = end.code
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


def test_pictures_are_those_of_the_package():
    from keras_posenc import analysis

    names = {name for name in vars(analysis) if name.startswith("plot_")}
    assert {f"plot_{picture}" for picture in _PICTURES} == names


@pytest.mark.parametrize("picture", _PICTURES)
def test_every_picture(cli, tmp_path, picture):
    scheme = "rotary" if picture == "bias" else "sinusoidal"
    result = cli(f"plot {picture} --scheme {scheme} --out picture.png")
    assert result.code == 0, result.err
    assert result.out == "Wrote picture.png\n"
    content = (tmp_path / "picture.png").read_bytes()
    assert content.startswith(b"\x89PNG")


def test_size_and_head_of_a_picture(cli, tmp_path):
    line = "plot bias --scheme alibi --length 9 --dim 4 --num-heads 2 --head 1"
    assert cli(f"{line} --out one.svg").code == 0
    assert "<svg" in (tmp_path / "one.svg").read_text()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("plot heatmap", "required: --out"),
        ("plot pie --out a.png", "invalid choice: 'pie'"),
        ("plot heatmap --length 0 --out a.png", "--length: 0 is not above 0"),
        ("plot heatmap --head 1 --out a.png", "--head is not for heatmap"),
        ("plot heatmap --scheme x --out a.png", "'sinusoidal', 'index', "),
        ("plot heatmap --scheme alibi --out a.png", "encodes its input"),
        ("plot bias --out a.png", "must be an AttentionPosition"),
        ("plot bias --scheme alibi --head 8 --out a.png", "from 0 to 7"),
        ("plot wavelengths --scheme time --out a.png", "of the sinusoid"),
        ("plot heatmap --out a.doc", "'doc' is not supported"),
        ("compare --dim 1.5", "--dim: invalid int value: '1.5'"),
    ],
)
def test_bad_arguments(cli, tmp_path, line, reason):
    result = cli(line)
    assert result.code == 2
    assert reason in result.err
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_not_there(cli):
    result = cli("plot heatmap --out no/such/folder/a.png")
    assert result.code == 1
    assert "No such file or directory" in result.err


def test_without_matplotlib(cli, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("matplotlib"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = cli("plot heatmap --out a.png")
    assert result.code == 2
    assert "pip install 'keras-posenc[plot]'" in result.err


def test_compare(cli):
    from keras_posenc import analysis

    table = cli("compare --length 24 --dim 8")
    assert table.code == 0
    numbers = json.loads(cli("compare --length 24 --dim 8 --json").out)
    assert list(numbers) == list(analysis.SCHEMES)
    sinusoid = analysis.properties(
        analysis.make_scheme("sinusoidal", 24), 24, 8
    )
    assert numbers["sinusoidal"] == sinusoid.to_dict()
    lines = table.out.splitlines()
    assert max(map(len, lines)) <= 80
    columns = [name for name in sinusoid.to_dict() if name != "similarity"]
    rows = {
        name: [None if cell == "-" else float(cell) for cell in cells]
        for name, *cells in map(str.split, lines[2:])
    }
    assert rows == {
        name: [
            value and pytest.approx(value, rel=0.05)
            for value in map(found.get, columns)
        ]
        for name, found in numbers.items()
    }
    assert "Measuring sinusoidal ..." in table.err
