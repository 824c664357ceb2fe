"""Files in, files out: whole or not at all, once, and named where not."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

import keras_posenc as kp
from keras_posenc.artifacts.ground import staging
from keras_posenc.scoring import files as scoring_files
from keras_posenc.scoring import worker, writing
from keras_posenc.scoring.fragments import Fragment, find_fragments

pytestmark = pytest.mark.tensorflow
TEXTS = ["ab", None, "abc", "a" * 50, "", "hea"]


@pytest.fixture(scope="module")
def scorer(files):
    """One of vectors: its runtime is there in no time."""
    return kp.Scorer(files.vectors, keep=["id"], window=4)


def write(path, rows=10, begin=0):
    """A Parquet file of vectors, whose third row is null."""
    vectors = [[float(begin + row), 0.0, 1.0] for row in range(rows)]
    table = pa.table({"id": range(begin, begin + rows), "vector": vectors})
    nulls = pa.array([None if i == 2 else v for i, v in enumerate(vectors)])
    pq.write_table(table.set_column(1, "vector", nulls), path)
    return path


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "b").mkdir(parents=True)
    for index, name in enumerate(("a", "b/c", "d")):
        write(folder / f"{name}.parquet", begin=100 * index)
    return folder


def fragment(path):
    return Fragment(path, path.name, "parquet")


def names(folder):
    """Files of a folder."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


OUTPUTS = [
    *("a.bad.parquet", "a.parquet", "b/c.bad.parquet", "b/c.parquet"),
    *("d.bad.parquet", "d.parquet"),
]


def check_outputs(out):
    """All rows of `data` are there, each once, and nothing else."""
    assert names(out) == OUTPUTS
    good = [pq.read_table(out / name) for name in OUTPUTS[1::2]]
    bad = [pq.read_table(out / name) for name in OUTPUTS[::2]]
    for begin, table in zip((0, 100, 200), good, strict=True):
        ids = [begin + row for row in range(10) if row != 2]
        assert table["id"].to_pylist() == ids
    for begin, table in zip((0, 100, 200), bad, strict=True):
        assert table.to_pylist() == [
            {"position": 2, "reason": "'vector' is null", "id": begin + 2}
        ]


def test_a_folder_and_what_was_there_before(scorer, data, tmp_path):
    out = tmp_path / "not" / "yet" / "there"
    report = kp.score_files(scorer, data, out=out, workers=2, verbose=False)
    assert report.passed
    assert (report.good, report.bad, report.files) == (27, 3, 3)
    check_outputs(out)
    # Windows of 4: what is in the later ones counts on.
    assert pq.read_table(out / "a.parquet")["out"].type == pa.list_(
        pa.float32(), 2
    )
    before = {name: (out / name).stat().st_mtime_ns for name in names(out)}
    os.unlink(out / "d.parquet")
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert (report.files, report.skipped) == (1, 2)
    check_outputs(out)
    assert before["a.parquet"] == (out / "a.parquet").stat().st_mtime_ns


def test_another_run_is_refused(files, scorer, data, tmp_path):
    out = tmp_path / "out"
    kp.score_files(scorer, data, out=out, verbose=False)
    other = kp.Scorer(files.vectors, window=4)
    with pytest.raises(ValueError, match=r"its keep is \['id'\], and not \[\]"):
        kp.score_files(other, data, out=out, verbose=False)
    copy = tmp_path / "other.tflite"
    kp.export_litert(files.numbers, copy, verify=False, verbose=False)
    copy.write_bytes(copy.read_bytes() + b"\0")
    other = kp.Scorer(copy, keep=["id"], allow_unverified=True)
    with pytest.raises(ValueError, match="its artifact is another one"):
        kp.score_files(other, data, out=out, verbose=False)
    write(data / "a.parquet", rows=11)
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert not report.passed
    assert "was changed since it was scored" in str(report)
    pq.write_table(pa.table({"id": [1]}), out / "a.parquet")
    with pytest.raises(ValueError, match="is no file of answers"):
        kp.score_files(scorer, data, out=out, verbose=False)


def test_two_runs_at_once(scorer, data, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with FileLock(out / ".scoring.lock"):
        with pytest.raises(ValueError, match="another run writes to"):
            kp.score_files(scorer, data, out=out, verbose=False)
    kp.score_files(scorer, data, out=out, verbose=False)
    check_outputs(out)


def test_broken_files_are_named_and_others_scored(scorer, data, tmp_path):
    out = tmp_path / "out"
    whole = (data / "a.parquet").read_bytes()
    (data / "b" / "c.parquet").write_bytes(whole[:-100])
    pq.write_table(pa.table({"id": [1], "vector": ["x"]}), data / "d.parquet")
    os.symlink(data / "nowhere", data / "e.parquet")
    given = [data, data / "a.parquet"]
    report = kp.score_files(scorer, given, out=out, verbose=False)
    assert report.files == 1
    assert sorted(report.failed) == [
        str(data / "b" / "c.parquet"),
        str(data / "d.parquet"),
    ]
    assert "takes vectors: lists of numbers" in str(report)
    pq.write_table(pa.table({"vector": [1], "b": [1]}), data / "d.parquet")
    report = kp.score_files(scorer, data / "d.parquet", out=out, verbose=False)
    assert "Column 'id' is not in the table. Its columns: vector, b" in str(
        report
    )
    assert names(out) == ["a.bad.parquet", "a.parquet"]


def test_a_file_that_changes_or_vanishes_meanwhile(scorer, data, tmp_path):
    path, out = data / "a.parquet", tmp_path / "out"
    with pytest.raises(writing.FragmentError, match="changed while it was"):
        writing.score_fragment(
            scorer,
            fragment(path),
            out,
            lambda rows, done: write(path, rows=11) if rows == 10 else None,
        )
    with pytest.raises(writing.FragmentError, match="does not exist any more"):
        writing.score_fragment(
            scorer, fragment(path), out, lambda *_: path.unlink(missing_ok=True)
        )
    assert not out.exists()


class TestCrashes:
    """At each instant that something appears, by failing there."""

    @pytest.mark.parametrize("step", range(4))
    def test_at_each_rename(self, scorer, data, tmp_path, monkeypatch, step):
        path, out = data / "a.parquet", tmp_path / "out"
        real, calls = os.replace, []

        def replace(*arguments):
            calls.append(arguments)
            if len(calls) == 1 + step // 2:
                if step % 2:  # it is renamed, and no more is done
                    real(*arguments)
                raise KeyboardInterrupt
            real(*arguments)

        with monkeypatch.context() as context:
            context.setattr(staging.os, "replace", replace)
            with pytest.raises(KeyboardInterrupt):
                writing.score_fragment(scorer, fragment(path), out)
        is_done = step == 3
        assert (out / "a.parquet").exists() == is_done
        found = writing.written(fragment(path), out)
        assert (found is not None) == is_done
        report = kp.score_files(scorer, data, out=out, verbose=False)
        assert (report.files, report.skipped) == (3 - is_done, is_done)
        check_outputs(out)

    def test_bad_rows_of_an_earlier_run_do_not_stay(
        self, scorer, data, tmp_path
    ):
        path, out = data / "a.parquet", tmp_path / "out"
        writing.score_fragment(scorer, fragment(path), out)
        os.unlink(out / "a.parquet")
        pq.write_table(pq.read_table(path).slice(5), path)
        writing.score_fragment(scorer, fragment(path), out)
        assert names(out) == ["a.parquet"]

    def test_a_full_disk(self, scorer, data, tmp_path, monkeypatch):
        out = tmp_path / "out"

        class Full(pq.ParquetWriter):
            def write_table(self, *_):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(pq, "ParquetWriter", Full)
        with pytest.raises(kp.ExportError, match="No space left on device"):
            writing.score_fragment(scorer, fragment(data / "a.parquet"), out)
        assert not out.exists()

    def test_workers_that_are_killed(self, scorer, data, tmp_path, monkeypatch):
        out, killed = tmp_path / "out", []
        real = scoring_files.Worker.score

        def score(self, *arguments):
            if len(killed) < limit:
                killed.append(self.pid)
                os.kill(self.pid, signal.SIGKILL)
            return real(self, *arguments)

        monkeypatch.setattr(scoring_files.Worker, "score", score)
        limit = 2  # its second attempt as well
        report = kp.score_files(scorer, data, out=out, verbose=False)
        assert report.files == 2
        (reason,) = report.failed.values()
        assert "was ended by SIGKILL" in reason
        limit = 3
        report = kp.score_files(scorer, data, out=out, verbose=False)
        assert (report.files, report.skipped) == (1, 2)
        check_outputs(out)

    def test_an_artifact_that_goes_ends_the_run(self, files, data, tmp_path):
        path = tmp_path / "model.tflite"
        shutil.copy(files.vectors, path)
        scorer = kp.Scorer(path, keep=["id"], allow_unverified=True)
        path.unlink()
        with pytest.raises(kp.ExportError, match="cannot be read"):
            kp.score_files(scorer, data, out=tmp_path / "out", verbose=False)
        assert names(tmp_path / "out") == []


def rows_of(out, name):
    good = pq.read_table(out / f"{name}.parquet").to_pylist()
    return {row.pop("id"): row for row in good}


def test_formats_agree(files, tmp_path):
    """The same rows as Parquet, CSV, JSON lines and TFRecord."""
    import tensorflow as tf

    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    table = pa.table({"id": [*map(str, range(6))], "text": TEXTS})
    pq.write_table(table, data / "p.parquet")
    rows = table.to_pylist()
    lines = ["id,text", *(f'{r["id"]},"{r["text"] or ""}"' for r in rows)]
    lines[2] = "1,\udcff"  # no UTF-8 for the null, which CSV does not have
    content = "\n".join([*lines, "6"])
    (data / "c.csv").write_bytes(content.encode("utf-8", "surrogateescape"))
    lines = [*map(json.dumps, rows), "", "{", '{"id": 7, "text": "a"}', "[]"]
    lines.append('{"id": "10", "text": 5}')
    (data / "j.jsonl").write_text("\n".join(lines))
    with tf.io.TFRecordWriter(str(data / "t.tfrecord")) as writer:
        for row in rows:
            example = tf.train.Example()
            for name, value in row.items():
                if value is not None:
                    feature = example.features.feature[name]
                    feature.bytes_list.value.append(value.encode())
            writer.write(example.SerializeToString())
        writer.write(b"\xff")
    scorer = kp.Scorer(
        files.texts, column="text", keep=["id"], max_bytes=20, window=4
    )
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert report.passed, str(report)
    expected = rows_of(out, "p")
    assert [*expected] == ["0", "2", "4", "5"]
    for name in ("c.csv", "j.jsonl", "t.tfrecord"):
        assert rows_of(out, name) == expected, name
    bad = {
        name: {
            row["position"]: row["reason"]
            for row in pq.read_table(out / f"{name}.bad.parquet").to_pylist()
        }
        for name in ("p", "c.csv", "j.jsonl", "t.tfrecord")
    }
    long = "'text' has 50 bytes, beyond 20"
    assert bad == {
        "p": {1: "'text' is null", 3: long},
        "c.csv": {
            1: "'text' is not UTF-8 from byte 0 on",
            3: long,
            6: "the row has 1 fields, and the header 2",
        },
        "j.jsonl": {
            1: "'text' is null",
            3: long,
            6: bad["j.jsonl"][6],
            7: "'id' is no string, as in the first rows",
            8: "the line is no JSON object",
            9: "'text' is not text: strings",
        },
        "t.tfrecord": {
            1: "'text' is null",
            3: long,
            6: "the record is no tf.train.Example",
        },
    }
    assert bad["j.jsonl"][6].startswith("the line is no JSON: ")


def test_lines_that_lack_a_column(scorer, tmp_path):
    path, out = tmp_path / "x.jsonl", tmp_path / "out"
    vector = '"vector": [1, 2, 3]'
    # All rows of the second window lack one, or are too deep for any reader.
    lines = [f'{{"id": 1, {vector}}}'] * 4 + ['{"id": 2}'] * 3 + ["[" * 10**5]
    path.write_text("\n".join(lines))
    report = kp.score_files(scorer, path, out=out, verbose=False)
    assert (report.good, report.bad) == (4, 4)
    path.write_text(f"{{{vector}}}\n")
    report = kp.score_files(scorer, path, out=tmp_path / "two", verbose=False)
    assert "Column 'id' is not in it. Its columns: vector" in str(report)


def test_what_inputs_name(tmp_path):
    for name in ("a/x.csv", "a/b/x.csv", "a/_SUCCESS", "a/.x.csv", "a/n.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    out = tmp_path / "a" / "out"
    out.mkdir()
    (out / "x.parquet").touch()

    def found(*given):
        return [each.name for each in find_fragments(given, out)]

    assert found(tmp_path / "a") == ["b/x.csv", "x.csv"]
    assert found(f"{tmp_path}/a/**/x.csv") == ["b/x.csv", "x.csv"]
    assert found(tmp_path / "a" / "b" / "x.csv", f"{tmp_path}/*/*/x.csv") == [
        "x.csv"
    ]
    for given, reason in [
        ([tmp_path / "a" / "x.csv", tmp_path / "a" / "b" / "x.csv"], "both be"),
        ([tmp_path / "a" / "n.txt"], "must be a .parquet"),
        ([tmp_path / "no.csv"], "does not exist"),
        ([f"{tmp_path}/*.csv"], "no file matches"),
        ([out], "no file to score"),
    ]:
        with pytest.raises(ValueError, match=reason):
            found(*given)


def test_memory_is_that_of_a_window(scorer, tmp_path):
    """However large a file is, and in one group of rows."""
    rows, path = 16_000, tmp_path / "large.parquet"
    table = pa.table(
        {
            "id": [os.urandom(1000) for _ in range(rows)],
            "vector": [[0.0, 1.0, 2.0]] * rows,
        }
    )
    pq.write_table(table, path, compression="none", use_dictionary=False)
    assert pq.read_metadata(path).num_row_groups == 1
    del table
    before, found = pa.total_allocated_bytes(), []
    writing.score_fragment(
        kp.Scorer(scorer.path, keep=["id"], window=500),
        fragment(path),
        tmp_path / "out",
        lambda *_: found.append(pa.total_allocated_bytes() - before),
    )
    # A window of 0.5 MB twice, read and answered, and a buffer of 1 MiB for
    # each column that is read and for each that is written.
    assert max(found) < 6e6 < 15e6 < path.stat().st_size


def test_a_worker_needs_no_keras_and_ends_with_its_input(scorer):
    code = f"""
import runpy, sys, threading
threading.Timer(60, lambda: None)
sys.modules["keras"] = sys.modules["tensorflow"] = None
runpy.run_path({worker.__file__!r}, run_name="__main__")
"""
    process = subprocess.run(
        [sys.executable, "-P", "-c", code],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 1
    assert process.stderr == ""


def test_an_interrupted_run_leaves_nothing_half_made(
    scorer, data, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    real = scoring_files.Worker.score

    def score(self, *arguments):
        signal.raise_signal(signal.SIGINT)
        return real(self, *arguments)

    assert threading.current_thread() is threading.main_thread()
    monkeypatch.setattr(scoring_files.Worker, "score", score)
    with pytest.raises(KeyboardInterrupt):
        kp.score_files(scorer, data, out=out, workers=2, verbose=False)
    assert {*names(out)} <= {*OUTPUTS}
    monkeypatch.undo()
    kp.score_files(scorer, data, out=out, verbose=False)
    check_outputs(out)
