"""Files in, files out: whole or not at all, once, and named where not."""

import gzip
import json
import os
import shutil
import signal
import struct
import subprocess
import sys

import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

import keras_posenc as kp
from keras_posenc import publish as staging
from keras_posenc.scoring import writing
from keras_posenc.scoring.files import ScoringWorker
from keras_posenc.scoring.writing import Fragment, find_fragments

pytestmark = pytest.mark.tensorflow
EMPTY = (
    "it has 0 bytes, so perhaps writing it was interrupted: write it again, or "
    "move it away"
)
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


GOOD = ["a.parquet", "b/c.parquet", "d.parquet"]
BAD = [f"_bad/{name}" for name in GOOD]
OUTPUTS = [*BAD, *GOOD]


def check_outputs(out):
    """All rows of `data` are there, each once, and nothing else."""
    assert names(out) == OUTPUTS
    good = [pq.read_table(out / name) for name in GOOD]
    bad = [pq.read_table(out / name) for name in BAD]
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
    out.mkdir()
    with (
        FileLock(out / ".scoring.lock"),
        pytest.raises(ValueError, match="another run writes to"),
    ):
        kp.score_files(scorer, data, out=out, verbose=False)
    kp.score_files(scorer, data, out=out, verbose=False)
    check_outputs(out)
    # An input is known by its path.
    shutil.copytree(data, tmp_path / "other", copy_function=shutil.copy2)
    with pytest.raises(ValueError, match=r"has the outputs for '.*data.a\.p"):
        kp.score_files(scorer, tmp_path / "other", out=out, verbose=False)
    other = kp.Scorer(files.vectors, window=4)
    with pytest.raises(ValueError, match=r"its keep is \['id'\], not \[\]"):
        kp.score_files(other, data, out=out, verbose=False)
    copy = tmp_path / "other.tflite"
    copy.write_bytes(files.vectors.read_bytes() + b"\0")
    other = kp.Scorer(copy, keep=["id"], allow_unverified=True)
    with pytest.raises(ValueError, match="its model is another one"):
        kp.score_files(other, data, out=out, verbose=False)
    write(data / "a.parquet", rows=11)
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert not report.passed
    assert "has changed since it was scored" in str(report)
    pq.write_table(pa.table({"id": [1]}), out / "a.parquet")
    with pytest.raises(ValueError, match="is not a file of outputs"):
        kp.score_files(scorer, data, out=out, verbose=False)


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
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert "Column 'id' is not in it. Its columns: vector, b" in str(report)
    assert names(out) == ["_bad/a.parquet", "a.parquet"]


def test_pages_that_have_changed_are_no_rows(scorer, tmp_path):
    """... where the file has checksums of them."""
    path = write(tmp_path / "a.parquet", rows=1000)
    pq.write_table(
        pq.read_table(path), path, compression="none", write_page_checksum=True
    )
    content = bytearray(path.read_bytes())
    place = content.index(struct.pack("d", 500.0))
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(writing.FragmentError, match="CRC"):
        writing.score_fragment(scorer, fragment(path), tmp_path / "out")


def test_names_that_are_no_unicode_are_told(scorer, data, tmp_path):
    """Of a column, and of a file."""
    (data / "x.jsonl").write_text('{"id": 1, "\\udcff": 2}')
    name = os.fsdecode(b"\xff.parquet")
    (data / name).write_bytes(b"PAR1")
    report = kp.score_files(scorer, data, out=tmp_path / "out", verbose=False)
    assert report.files == 3
    told = str(report).encode().decode()
    assert r"Its columns: id, \udcff" in told
    assert r"\udcff.parquet: " in told


def test_a_file_that_changes_or_vanishes_meanwhile(scorer, data, tmp_path):
    path, out = data / "a.parquet", tmp_path / "out"
    with pytest.raises(writing.FragmentError, match="changed while it was"):
        writing.score_fragment(
            scorer,
            fragment(path),
            out,
            lambda rows: write(path, rows=11) if rows == 10 else None,
        )
    with pytest.raises(writing.FragmentError, match="does not exist any more"):
        writing.score_fragment(
            scorer, fragment(path), out, lambda *_: path.unlink(missing_ok=True)
        )
    assert not out.exists()


class TestCrashes:
    """At each instant that something appears, by failing there."""

    @pytest.mark.parametrize(
        "step",
        [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (2, 3))],
    )
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

    def test_files_that_can_grow_no_further(self, scorer, data, tmp_path):
        """Wherever Arrow's own writing fails, closing and footers included."""
        resource = pytest.importorskip("resource")
        path, out = data / "a.parquet", tmp_path / "out"
        writing.score_fragment(scorer, fragment(path), tmp_path / "whole")
        size = (tmp_path / "whole" / "a.parquet").stat().st_size
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        for limit in (0, 4, *range(64, size, 256), size - 9, size - 1):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
            try:
                with pytest.raises(kp.ExportError, match="File too large"):
                    writing.score_fragment(scorer, fragment(path), out)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            assert not out.exists()
        kp.score_files(scorer, data, out=out, verbose=False)
        check_outputs(out)

    def test_workers_that_are_killed(self, scorer, data, tmp_path, monkeypatch):
        out, killed = tmp_path / "out", []
        real = ScoringWorker.score

        def score(self, *arguments):
            if not killed:
                killed.append(self.process.pid)
                os.kill(killed[-1], signal.SIGKILL)
            return real(self, *arguments)

        monkeypatch.setattr(ScoringWorker, "score", score)
        report = kp.score_files(scorer, data, out=out, verbose=False)
        assert report.files == 2
        (reason,) = report.failed.values()
        assert "was killed by SIGKILL" in reason
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


def test_formats_agree(tmp_path):
    """The same rows as Parquet, CSV and JSON lines."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    table = pa.table({"id": [*map(str, range(6))], "text": TEXTS})
    pq.write_table(table, data / "p.parquet")
    rows = table.to_pylist()
    texts = ["a" * 21 if text is None else text for text in TEXTS]
    lines = ["id,text", *(f'{i},"{text}"' for i, text in enumerate(texts))]
    (data / "c.csv").write_text("\ufeff" + "\n".join(lines))
    lines = [*map(json.dumps, rows), "", '{"id": "6"}']
    (data / "j.jsonl").write_text("\n".join(lines))
    graph = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 20]>
        words (string[N] text) => (float[N] score) {
            words, counts = StringSplit(text)
            score = Cast<to = 1>(counts) }""")
    onnx.save(graph, tmp_path / "words.onnx")
    scorer = kp.Scorer(
        tmp_path / "words.onnx",
        keep=["id", "text"],
        max_bytes=20,
        window=4,
        allow_unverified=True,
    )
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert report.passed, str(report)
    expected = rows_of(out, "p")
    assert [*expected] == ["0", "2", "4", "5"]
    assert rows_of(out, "j.jsonl") == expected
    assert rows_of(out, "c.csv") == expected
    long, null = "'text' has 50 bytes, beyond 20", "'text' is null"
    for name, wanted in {
        "p": {1: null, 3: long},
        "c.csv": {1: long.replace("50", "21"), 3: long},
        "j.jsonl": {1: null, 3: long, 6: null},
    }.items():
        rows = pq.read_table(out / f"_bad/{name}.parquet").to_pylist()
        assert {row["position"]: row["reason"] for row in rows} == wanted


def test_bad_rows_that_are_gone_are_made_again(scorer, data, tmp_path):
    out = tmp_path / "out"
    kp.score_files(scorer, data, out=out, verbose=False)
    table = pq.read_table(out)  # the folder is read as one table
    assert table.column_names == ["id", "out"]
    assert table.num_rows == 27
    os.unlink(out / "_bad" / "a.parquet")
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert (report.files, report.skipped) == (1, 2)
    assert (report.good, report.bad, report.rows) == (27, 3, 10)
    check_outputs(out)
    report = kp.score_files(scorer, data, out=out, verbose=False)
    assert str(report) == (
        f"{out}: 0 files scored, 3 before; 27 rows good, 3 bad"
    )
    # A name that bad rows would have had in the folder of good ones.
    path = write(tmp_path / "a.bad.parquet", begin=500)
    kp.score_files(scorer, path, out=out, verbose=False)
    os.unlink(out / "a.parquet")
    kp.score_files(scorer, data, out=out, verbose=False)
    assert pq.read_table(out).num_rows == 36


def test_relative_paths(files, data, tmp_path, monkeypatch):
    """A run goes on from another folder, by other names of the same files."""
    monkeypatch.chdir(tmp_path)
    scorer = kp.Scorer(os.path.relpath(files.vectors), keep=["id"], window=4)
    kp.score_files(scorer, "data", out="out", workers=2, verbose=False)
    check_outputs(tmp_path / "out")
    os.unlink("out/b/c.parquet")
    monkeypatch.chdir(data / "b")
    given = ["..", "../b/c.parquet"]
    report = kp.score_files(scorer, given, out="../../out", verbose=False)
    assert (report.files, report.skipped) == (1, 2)
    check_outputs(tmp_path / "out")


LINE = '{"id": 1, "vector": [1, 2, 3]}\n'


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.csv", gzip.compress(b"id,vector\n", mtime=0), "'utf-8' codec"),
        ("x.csv", "id,vector\n".encode("utf-16"), "'utf-8' codec"),
        ("x.csv", b"id;vector\n1;2\n", "'id' is not in it.*: id;vector$"),
        ("x.csv", b"id,vector\n1,\xff\n", "'utf-8' codec"),
        ("x.csv", b"id,vector\n1,[1]\n", "'vector' is of string, not list"),
        ("x.csv", b'id,vector\n1,"a\n2,b\n', "line 3: unexpected end of data"),
        ("x.csv", b'id,vector\n1,"a"b\n', "line 2: ',' expected after"),
        ("x.csv", b"id,vector\n1\n", "line 2: 1 fields, and the header has 2"),
        ("x.csv", b"id,id\n1,a\n", "line 1: it must name its columns, each"),
        ("x.parquet", b"", f"^{EMPTY}$"),
        ("x.csv", b"", f"^{EMPTY}$"),
        ("x.csv", b"\n", "line 1: it must name its columns, each once"),
        ("x.jsonl", b'{"vector": [1, 2, 3]}\n', "'id' is not in it"),
        ("x.jsonl", LINE * 4 + "{", "line 5: Expecting property name"),
        ("x.jsonl", LINE + "[1]", "line 2: it is not a JSON object"),
        ("x.jsonl", LINE + "[" * 10**5, "line 2: "),
        # Kept values are as they were: of the type of the first rows.
        ("x.jsonl", LINE * 4 + LINE.replace("1,", "1.9,"), "1.9"),
        ("x.jsonl", LINE * 4 + LINE.replace("1,", '"x",', 1), "is of string"),
        ("x.jsonl", LINE.replace("3]", "9007199254740993]"), "90071992547409"),
        ("x.jsonl", LINE.replace("3]", '"x"]'), "'x'"),
    ],
)
def test_what_cannot_be_read_is_not_empty(
    scorer, tmp_path, name, content, reason
):
    path = tmp_path / name
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    one = Fragment(path, name, path.suffix[1:])
    with pytest.raises(writing.FragmentError, match=reason):
        writing.score_fragment(scorer, one, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_blank_lines_of_one_column_are_rows(files, tmp_path):
    path, out = tmp_path / "x.csv", tmp_path / "out"
    path.write_bytes(b"text\na\n\n" + b"a" * 50)
    scorer = kp.Scorer(files.texts, max_bytes=20)
    found = writing.score_fragment(scorer, Fragment(path, "x.csv", "csv"), out)
    assert found == (2, 1)
    bad = pq.read_table(out / "_bad" / "x.csv.parquet")
    assert bad["position"].to_pylist() == [2]


def test_a_file_of_which_no_row_is_good(scorer, data, tmp_path):
    out = tmp_path / "out"
    path = data / "a.parquet"
    pq.write_table(pq.read_table(path).slice(2, 1), path)
    for _ in range(2):  # scored, and there before
        report = kp.score_files(scorer, data, out=out, verbose=False)
        assert not report.passed
        bad = out / "_bad" / "a.parquet"
        line = f"{path}: none of its rows is good: see {bad}"
        assert line in str(report).splitlines()
    assert (report.skipped, report.good, report.bad) == (3, 18, 3)


def test_what_inputs_name(tmp_path):
    for name in (
        *("a/x.csv", "a/b/x.csv", "a/_SUCCESS", "a/.x.csv", "a/n.txt"),
        *("a/y.csv.gz", "a/y.json", "a/_bad/x.csv", "a/z.parquet", "_x.csv"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    os.symlink(tmp_path / "a" / "z.parquet", tmp_path / "a" / "y.parquet")
    out = tmp_path / "a" / "out"
    out.mkdir()
    (out / "x.parquet").touch()

    def found(*given):
        return [each.name for each in find_fragments(given, out)]

    assert found(tmp_path / "a") == ["b/x.csv", "x.csv", "y.parquet"]
    one = tmp_path / "a" / "b" / "x.csv"
    assert found(one, str(one)) == ["x.csv"]
    for given, reason in [
        ([tmp_path / "a" / "x.csv", one], "both be"),
        ([tmp_path / "*.csv"], "does not exist"),
        ([out], "`out` must be another folder"),
        ([one, out / "x.parquet"], "`out` must be another folder"),
        ([tmp_path / "a" / "_bad" / "..", out.parent / "n.txt"], "must be a"),
        ([tmp_path / "_x.csv"], "does not start with '.' or '_'"),
    ]:
        with pytest.raises(ValueError, match=reason):
            found(*given)
    one.unlink()
    with pytest.raises(ValueError, match="there is no"):
        found(one.parent)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="has no /proc")
def test_memory_is_that_of_a_window(files, tmp_path):
    """However large a file is, and its rows, in one group of them."""
    for name, times in (("small", 1), ("large", 20)):
        path = tmp_path / f"{name}.parquet"
        texts = [str(row) * 500_000 for row in range(10)] * times
        # Else all rows are in one page, which is read as a whole.
        options = {"use_dictionary": False, "write_batch_size": 1}
        pq.write_table(pa.table({"text": texts}), path, **options)
        assert pq.read_metadata(path).num_row_groups == 1
    code = f"""
import sys
from pathlib import Path
sys.modules["keras"] = None  # as in a worker
from keras_posenc.scoring import reading, writing
from keras_posenc.scoring.writing import Fragment
from keras_posenc.scoring.scorer import Scorer
scorer = Scorer({str(files.texts)!r}, column="text")
reading._WINDOW = 2**22
for name in ("small", "large"):
    path = Path({str(tmp_path)!r}, name + ".parquet")
    writing.score_fragment(
        scorer, Fragment(path, name, "parquet"), path.parent / "out"
    )
    # Not getrusage, which begins with the peak of who started this.
    status = Path("/proc/self/status").read_text()
    print(status.partition("VmHWM:")[2].split()[0])
"""
    process = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    small, large = map(int, process.stdout.split())
    # In KiB: some copies of 4 MiB, and not of the file's 100 MB.
    assert large - small < 80_000, (small, large)


def test_a_worker_ends_with_its_input(scorer):
    with ScoringWorker(scorer, 1) as process:
        process.process.stdin.close()
        assert process.process.wait(20) == 1


def test_an_interrupted_run_leaves_nothing_half_made(
    scorer, data, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    real = ScoringWorker.score
    # In the background of some shells, SIGINT is ignored: not so here.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)

    def score(self, *arguments):
        signal.raise_signal(signal.SIGINT)
        return real(self, *arguments)

    monkeypatch.setattr(ScoringWorker, "score", score)
    try:
        with pytest.raises(KeyboardInterrupt):
            kp.score_files(scorer, data, out=out, workers=2, verbose=False)
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert {*names(out)} <= {*OUTPUTS}
    monkeypatch.undo()
    kp.score_files(scorer, data, out=out, verbose=False)
    check_outputs(out)
