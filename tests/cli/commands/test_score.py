"""`keras-posenc score`."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.tensorflow
MODEL = "model.tflite"


@pytest.fixture
def data(folder, tmp_path):
    """Two files of ids, with a row that is none of the model's."""
    # What other commands verify leaves a record.
    (folder / f"{MODEL}.cases.npz").unlink(missing_ok=True)
    for name, rows in (("a", [[1, 2], [3], [99]]), ("b", [[4, 5, 6]])):
        table = pa.table({"ids": rows, "name": [name] * len(rows)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path


def test_answers_beside_the_rows(cli, data):
    score = ("score", MODEL, "--in", data, "--out", data / "out")
    result = cli(*score)
    assert result.code == 1
    assert "has no record of a verification" in result.err
    score = (*score, "--allow-unverified", "--keep", "name")
    result = cli(*score)
    assert result.code == 0, result.err
    assert "out: 2 files scored; 3 rows good, 1 bad" in result.out
    good = pq.read_table(data / "out" / "a.parquet")
    assert good.column_names == ["name", "scores"]
    assert good["name"].to_pylist() == ["a", "a"]
    bad = pq.read_table(data / "out" / "_bad" / "a.parquet").to_pylist()
    assert [row["position"] for row in bad] == [2]
    result = cli(*score, "--json")
    assert json.loads(result.out)["skipped"] == 2
    result = cli(*score)
    assert "0 files scored, 2 before; 3 rows good" in result.out
    result = cli(*score, "--max-bytes", "8")
    assert result.code == 2
    assert "was scored by another run: its max_bytes is 20000" in result.err


def test_a_broken_file_is_named(cli, data):
    shutil.copy(data / "a.parquet", data / "c.parquet")
    (data / "b.parquet").write_bytes(b"PAR1")
    result = cli(
        *(
            "score",
            MODEL,
            "--in",
            data,
            "--out",
            data / "out",
            "--workers",
            2,
        ),
        "--allow-unverified",
    )
    assert result.code == 1
    assert "2 files scored, 1 failed; 4 rows good, 2 bad" in result.out
    assert f"{data / 'b.parquet'}: " in result.out
