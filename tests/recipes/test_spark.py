"""The recipe for Spark, in its own environment: `make test-spark`."""

import os
import random
import subprocess
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import keras_posenc as kp

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

EXPORT = Path(__file__).parents[2] / "export"
# What the artifact was verified to, whatever batch a row is in.
TOLERANCE = 1e-5
FILES, ROWS = 8, 2500
LONG = "a" * 20_001


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """An artifact of texts, whose outputs are numbers, texts and lists."""
    text = keras.Input((), dtype="string", name="text")
    tokens = kp.CharacterTokenizer("abcdefgh ")(text)
    vectors = keras.layers.Embedding(14, 8, mask_zero=True)(tokens)
    vectors = kp.PositionalEncoding()(vectors)
    pooled = kp.Pooling1D("mean")(vectors)
    scores = keras.layers.Dense(3, activation="softmax", name="scores")(pooled)
    return kp.export_saved_model(
        keras.Model(text, scores),
        tmp_path_factory.mktemp("judge"),
        labels=["x", "y", "z"],
        verbose=False,
    ).path


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Files of rows, of which every fiftieth or so cannot be answered."""
    folder = tmp_path_factory.mktemp("rows")
    rng = random.Random(0)
    for number in range(FILES):
        texts = [
            "".join(rng.choices("abcdefgh ", k=rng.randrange(60))).encode()
            for _ in range(ROWS)
        ]
        for wrong in (None, b"ab\xff", LONG.encode()):
            for place in rng.sample(range(ROWS), ROWS // 150):
                texts[place] = wrong
        ids = range(number * ROWS, (number + 1) * ROWS)
        columns = {"id": ids, "unread": ["-"] * ROWS, "text": texts}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def expected(judge, rows):
    """What `Scorer` answers to all of them in one table."""
    table = ds.dataset(rows).to_table()
    good, bad = kp.Scorer(judge, column="text", keep=["id"])(table)
    assert len(good) + len(bad) == FILES * ROWS
    assert len(bad) > FILES * ROWS // 100
    return good, bad


def check(found, expected):
    """Each row is there once, with its answer or its reason."""
    for part, wanted in zip(found, expected, strict=True):
        part, wanted = (each.sort_by("id") for each in (part, wanted))
        assert part["id"].to_pylist() == wanted["id"].to_pylist()
        for name in {*wanted.column_names} - {"id", "scores", "position"}:
            assert part[name].to_pylist() == wanted[name].to_pylist()
    scores = [
        np.array(each.sort_by("id")["scores"].to_pylist())
        for each in (found[0], expected[0])
    ]
    np.testing.assert_allclose(*scores, rtol=0, atol=TOLERANCE)


@pytest.mark.skipif(
    "SPARK_PYTHON" not in os.environ,
    reason="Spark is not installed: make test-spark",
)
def test_spark(judge, rows, expected, tmp_path):
    python = Path(os.environ["SPARK_PYTHON"])
    out = tmp_path / "scored"
    command = [
        *(python.with_name("spark-submit"), "--master", "local[2,4]"),
        *("--conf", f"spark.local.dir={tmp_path / 'local'}"),
        # A task for each file.
        *("--conf", f"spark.sql.files.minPartitionNum={2 * FILES}"),
        *(EXPORT / "spark" / "score.py", judge, rows, out, "text", "id"),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    subprocess.run(command, env=environment, check=True)
    found = [ds.dataset(out / f"rows={x}").to_table() for x in ("good", "bad")]
    check(found, expected)
