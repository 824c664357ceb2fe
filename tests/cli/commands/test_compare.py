"""`keras-posenc compare`."""

import json

import pytest

pytestmark = pytest.mark.tensorflow


def test_table(run):
    from keras_posenc import analysis

    table = run(*"compare --length 24 --dim 8".split())
    assert table.code == 0
    numbers = json.loads(run(*"compare --length 24 --dim 8 --json".split()).out)
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


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        ("1.5", "--dim: invalid int value: '1.5'"),
        ("7", "--dim must be even: rotary positions turn features in pairs."),
    ],
)
def test_bad_width(run, dim, message):
    result = run("compare", "--dim", dim)
    assert result.code == 2
    assert message in result.err
    assert "Measuring" not in result.err
