"""Tables in, answers out: each row's own, and a reason where there is none."""

import pickle
import shutil

import keras
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keras_posenc as kp
from keras_posenc.export.record import record_path
from keras_posenc.scoring import loading, scorer
from keras_posenc_worker import runtimes

pytestmark = pytest.mark.tensorflow
# What `files` were verified to, whatever batch a row is in.
TOLERANCE = 1e-5
MAX_BYTES = 12


@pytest.fixture(scope="module")
def alone(files):
    """What the SavedModel answers to one row."""
    signatures = runtimes.SavedModel(str(files.texts)).runners

    def alone(signature, **inputs):
        found = signatures[signature](inputs)
        return {name: value[0] for name, value in found.items()}

    return alone


@pytest.fixture(scope="module")
def texts(files):
    return kp.Scorer(
        files.texts,
        column="text",
        keep=["place"],
        max_bytes=MAX_BYTES,
        window=7,
        budget=40,
    )


ROWS = st.one_of(
    st.none(),
    st.binary(max_size=MAX_BYTES + 2),
    st.text("abcdefgh ä", max_size=MAX_BYTES + 2).map(str.encode),
)


def is_right(row):
    """Whether a row has an answer."""
    try:
        return (
            row is not None
            and bool(row.decode() or True)
            and (len(row) <= MAX_BYTES)
        )
    except UnicodeDecodeError:
        return False


@given(chunks=st.lists(st.lists(ROWS, max_size=12), max_size=3))
def test_rows_are_answered_as_alone_or_told(texts, alone, chunks):
    rows = [row for chunk in chunks for row in chunk]
    table = pa.table(
        {
            "place": pa.array(range(len(rows)), pa.int64()),
            "text": pa.chunked_array(chunks, pa.binary()),
        }
    )
    good, bad = texts(table)
    assert (good.schema, bad.schema) == texts.schema(table.schema)
    right = [place for place, row in enumerate(rows) if is_right(row)]
    assert good["place"].to_pylist() == right
    assert bad["place"].to_pylist() == bad["position"].to_pylist()
    assert sorted([*right, *bad["position"].to_pylist()]) == [*range(len(rows))]
    assert all(bad["reason"].to_pylist())
    for answer in good.to_pylist():
        text = np.array([rows[answer["place"]]], object)
        expected = alone("serving_default", text=text)
        np.testing.assert_allclose(
            answer["scores"], expected["scores"], rtol=0, atol=TOLERANCE
        )
        assert answer["label"] == expected["label"].decode()
        assert answer["classes"] == ["x", "y", "z"]


def test_outputs_for_each_token_are_as_long_as_their_row(files):
    run = runtimes.SavedModel(str(files.tokens)).runners["serving_default"]
    scorer = kp.Scorer(files.tokens, column="text")
    rows = ["ab", "abcdefg", "", "ab", "a b c"]
    table = pa.table({"text": pa.array(rows).dictionary_encode()})
    good, bad = scorer(table)
    assert good.schema == scorer.schema(table.schema)[0]
    assert not bad.num_rows
    assert good["contextual"].type == pa.list_(pa.list_(pa.float32(), 8))
    for text, answer in zip(rows, good.to_pylist(), strict=True):
        expected = run({"text": np.array([text.encode()], object)})
        for name, (value,) in expected.items():
            assert np.shape(answer[name]) == value.shape, (text, name)
            np.testing.assert_allclose(
                answer[name], value, rtol=0, atol=TOLERANCE
            )


def test_ids_and_the_rows_that_they_are_wrong_in(files, alone):
    scorer = kp.Scorer(files.texts, column="tokens", signature="from_ids")
    rows = [[3, 4], [], [5] * 9, [3, 999], None, [1, None], [1, 2**40], [7]]
    good, bad = scorer(pa.table({"tokens": rows}))
    assert dict(zip(*bad.to_pydict().values(), strict=True)) == {
        3: "the model does not take it: indices[0,1] = 999 is not in [0, 14)",
        4: "'tokens' is null",
        5: "'tokens' holds a null",
        6: f"'tokens' has {2**40}, which is not int32",
    }
    right = [rows[place] for place in (0, 1, 2, 7)]
    for row, scores in zip(right, good["scores"].to_pylist(), strict=True):
        expected = alone(
            "from_ids",
            ids=np.array([row or [0]], "int32"),
            lengths=np.array([len(row)], "int32"),
        )
        np.testing.assert_allclose(
            scores, expected["scores"], rtol=0, atol=TOLERANCE
        )


# Each output depends on how far the batch is padded: by the words of a text, by
# one of two inputs.
PADDED = {
    "text": (
        """(string[N] text) => (float[N] score) {
            words, counts = StringSplit(text)
            sizes = Shape<start = 1>(words)
            length = Cast<to = 1>(sizes)
            own = Shape(text)
            score = Expand(length, own) }""",
        {"text": ["a", "a b", "aaaaa", "a a a", "a b c d"]},
    ),
    "two": (
        """(int64[N, L] one, int64[N, M] two) => (float[N] score) {
            sizes = Shape<start = 1>(two)
            length = Cast<to = 1>(sizes)
            own = Shape<end = 1>(one)
            score = Expand(length, own) }""",
        {"one": [[5], [5, 5], [5] * 3], "two": [[5, 5], [5], [5] * 3]},
    ),
}


@pytest.mark.parametrize("name", PADDED)
def test_what_pads_a_row_does_not_change_its_answer(tmp_path, name):
    body, columns = PADDED[name]
    scorer = _written(tmp_path, body, window=9)
    good, bad = scorer(pa.table(columns))
    assert not bad.num_rows
    for place, score in enumerate(good["score"].to_pylist()):
        alone = _written(tmp_path, body)
        row = {name: rows[place : place + 1] for name, rows in columns.items()}
        assert score == alone(pa.table(row))[0]["score"][0].as_py()


@pytest.mark.parametrize("name", ["ids", "texts"])
def test_cases_tell_whether_padding_matters(files, name, monkeypatch):
    """Only of the model without a mask rows of one length go together."""
    sizes = []
    real = scorer.load

    def counted(*args):
        (signature,) = args[3]
        runner = real(*args)[signature]

        def run(inputs):
            sizes.append(len(next(iter(inputs.values()))))
            return runner(inputs)

        return {signature: run}

    monkeypatch.setattr(scorer, "load", counted)
    column, rows, output = "ids", [[1], [2, 2, 3, 4], [3], [4, 1]], "score"
    if name == "texts":
        column, rows, output = "text", ["a", "bcde", "d", "fg"], "scores"
    table = pa.table({column: rows})
    found = kp.Scorer(getattr(files, name))(table)[0][output].to_pylist()
    batches = [2, 1, 1] if name == "ids" else [4]
    assert sizes[-len(batches) :] == batches
    for place, row in enumerate(found):
        alone = kp.Scorer(getattr(files, name))(table.slice(place, 1))[0]
        assert row == pytest.approx(alone[output][0].as_py(), rel=1e-5)


def test_answers_that_are_not_one_for_each_row(tmp_path):
    twice = """(string[N] text) => (string[M] out) {
        out = Concat<axis = 0>(text, text) }"""
    scorer = _written(tmp_path, twice)
    with pytest.raises(kp.ExportError, match=r"of shape \(2,\) for 1 rows"):
        scorer(pa.table({"text": ["a", "b", "c"]}))
    constant = """(string[N] text) => (float[3] out) {
        out = Constant<value_floats = [1.0, 2.0, 3.0]>() }"""
    with pytest.raises(ValueError, match="does not have one entry"):
        _written(tmp_path, constant)


def test_what_no_row_is_to_blame_for(files, monkeypatch):
    def failing(error, times):
        left = iter([error] * times)

        def run(inputs):
            for error in left:
                raise error
            return {"out": np.zeros((len(inputs["vector"]), 2), "float32")}

        monkeypatch.setattr(
            scorer, "load", lambda *args: {"serving_default": run}
        )
        return kp.Scorer(files.vectors)

    table = pa.table({"vector": [[1.0, 2.0, 3.0]] * 4})
    # Half a batch may suffice.
    good, _ = failing(MemoryError(), 1)(table)
    assert good.num_rows == 4
    with pytest.raises(kp.ExportError, match="ran out of memory: full"):
        failing(MemoryError("full"), 3)(table)


def test_a_file_of_a_fixed_batch(files, tmp_path):
    fixed = {"serving_default": (files.numbers, {"vector": (4, 3)})}
    path = kp.export_onnx(
        files.numbers, tmp_path / "m.onnx", signatures=fixed, verbose=False
    ).path
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    good, _ = kp.Scorer(path)(pa.table({"vector": rows.tolist()}))
    expected = files.numbers(rows)
    np.testing.assert_allclose(
        good["out"].to_pylist(), expected, rtol=0, atol=TOLERANCE
    )


def _written(folder, body, **options):
    """A scorer of an ONNX file of a graph."""
    import onnx

    path = folder / "graph.onnx"
    text = f'<ir_version: 9, opset_import: ["": 20]> graph {body}'
    onnx.save(onnx.parser.parse_model(text), path)
    return kp.Scorer(path, allow_unverified=True, **options)


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("text", pa.large_string()),
        ("text", pa.string_view()),
        ("text", pa.binary(2)),
        ("text", pa.dictionary(pa.int8(), pa.string())),
        ("ids", pa.list_(pa.int8())),
        ("ids", pa.large_list(pa.uint64())),
        ("ids", pa.list_(pa.int64(), 2)),
        ("ids", pa.list_view(pa.int32())),
    ],
    ids=str,
)
def test_types_of_columns(files, name, type):
    if name == "ids":
        path, column = files.ids, pa.array([[1, 2], None], type)
    elif pa.types.is_fixed_size_binary(type):
        path, column = files.texts, pa.array([b"ab", None], type)
    else:
        path, column = files.texts, pa.array(["ab", None]).cast(type)
    good, bad = kp.Scorer(path)(pa.table({name: column}))
    assert (good.num_rows, bad.num_rows) == (1, 1)


def test_texts_for_a_model_of_ids(files):
    with pytest.raises(
        ValueError, match=r"\(int32\): the file has no tokenizer"
    ):
        kp.Scorer(files.ids)(pa.table({"ids": ["a"]}))


def test_vectors(files):
    scorer = kp.Scorer(files.vectors)
    rows = [[1.0, 2.0, 3.0], [1.0], [4.0, float("nan"), 5.0], [6.0, None, 7.0]]
    good, bad = scorer(pa.table({"vector": rows}))
    assert bad["position"].to_pylist() == [1, 3]
    assert "has 1 numbers instead of 3" in bad["reason"][0].as_py()
    expected = files.numbers(np.array([rows[0], rows[2]], "float32"))
    np.testing.assert_allclose(
        good["out"].to_pylist(), expected, rtol=0, atol=TOLERANCE
    )
    far = pa.table({"vector": [[1e300, 2.0, 3.0], [float("inf"), 2.0, 3.0]]})
    good, bad = scorer(far)
    assert good.num_rows == 1
    assert "has 1e+300, which is not float32" in bad["reason"][0].as_py()
    good, _ = scorer(pa.table({"vector": rows}))
    fixed = pa.array(rows[:1], pa.list_(pa.float64(), 3))
    assert scorer(pa.table({"vector": fixed}))[0].equals(good.slice(0, 1))


def test_it_travels_without_its_model_and_loads_once(files, monkeypatch):
    loads = []
    monkeypatch.setattr(loading, "_loaded", {})
    real = loading._load
    monkeypatch.setattr(
        loading, "_load", lambda *args: [loads.append(args), real(*args)][1]
    )
    scorer = kp.Scorer(files.vectors)
    pickled = pickle.dumps(scorer)
    assert files.vectors.read_bytes()[:200] not in pickled
    assert len(pickled) < 2000
    table = pa.table({"vector": [[1.0, 2.0, 3.0]]})
    found = [each(table)[0] for each in (scorer, pickle.loads(pickled))]
    assert found[0].equals(found[1])
    assert len(loads) == 1


class TestRefusals:
    def test_what_was_not_verified(self, files, tmp_path):
        path = tmp_path / "renamed.tflite"
        shutil.copy(files.vectors, path)
        with pytest.raises(kp.ExportVerificationError) as error:
            kp.Scorer(path)
        assert "kp.verify_export(path, model)" in str(error.value)
        assert "`allow_unverified=True`" in str(error.value)
        table = pa.table({"vector": [[1.0, 2.0, 3.0]]})
        good, _ = kp.Scorer(path, allow_unverified=True)(table)
        assert good.num_rows == 1
        # What passes is recorded; what replaces it unverified is not.
        (tmp_path / "link").symlink_to(path)
        kp.verify_export(path, files.numbers, max_length=4, verbose=False)
        kp.Scorer(path)
        kp.Scorer(tmp_path / "link")
        # The record is of the file and of its own model.
        other = keras.models.clone_model(files.numbers)
        report = kp.verify_export(path, other, max_length=4, verbose=False)
        assert not report.passed
        kp.Scorer(path)
        kp.export_litert(files.numbers, path, verify=False, verbose=False)
        assert not record_path(path).exists()

    def test_what_changed_since(self, files, tmp_path):
        path = tmp_path / "1"
        shutil.copytree(files.texts, path)
        scorer = kp.Scorer(path, column="text")
        with (path / "variables" / "variables.index").open("ab") as file:
            file.write(b"\0")
        with pytest.raises(
            kp.ExportVerificationError,
            match=r"that was verified: variables/variables\.index",
        ):
            kp.Scorer(path, column="text")
        table = pa.table({"text": ["a"]})
        with pytest.raises(
            kp.ExportError, match="has changed since the Scorer"
        ):
            scorer(table)
        shutil.rmtree(path)
        with pytest.raises(kp.ExportError, match="cannot be read"):
            scorer(table)

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ({"path": "nowhere"}, "'nowhere' does not exist"),
            ({"signature": "other"}, "no signature 'other'. Its signatures: "),
            ({"keep": "text"}, "`keep` must be a list of names"),
            ({"keep": ["position"]}, "must not be 'position'"),
            ({"keep": ["scores"]}, "must not name an output"),
            ({"max_bytes": 0}, "`max_bytes` must be a positive integer"),
        ],
    )
    def test_arguments(self, files, arguments, reason):
        with pytest.raises(ValueError, match=reason):
            kp.Scorer(**{"path": files.texts, **arguments})

    def test_what_does_more_than_compute(self, tmp_path):
        import tensorflow as tf

        module = tf.Module()
        module.read = tf.function(
            tf.io.read_file, input_signature=[tf.TensorSpec([], tf.string)]
        )
        tf.saved_model.save(module, str(tmp_path / "1"))
        with pytest.raises(kp.ExportVerificationError, match="ReadFile"):
            kp.Scorer(tmp_path / "1", allow_unverified=True)

    def test_columns(self, texts):
        for table, reason in [
            ({"body": ["a"], "place": [1]}, "not in the table. Its columns: b"),
            ({"text": ["a"]}, "Column 'place' is not in the table"),
            ({"text": [1], "place": [1]}, "is of type int64, and input 'text'"),
            ({"text": [["a"]], "place": [1]}, "takes text: strings"),
        ]:
            with pytest.raises(ValueError, match=reason):
                texts(pa.table(table))
        for table in (["a"], {"text": ["a"]}):
            with pytest.raises(ValueError, match=r"must be a pyarrow\.Table"):
                texts(table)
        nothing = pa.table({"text": pa.nulls(2), "place": [1, 2]})
        assert texts(nothing)[1].num_rows == 2

    def test_inputs_that_may_be_any_column(self, tmp_path):
        one, two = (keras.Input((2,), name=name) for name in ("one", "two"))
        path = tmp_path / "two.tflite"
        kp.export_litert(
            keras.Model([one, two], keras.layers.add([one, two], name="sum")),
            path,
            verify=False,
            verbose=False,
        )
        reason = r"as there are several: one, two\. Received: column='text'$"
        with pytest.raises(ValueError, match=reason):
            kp.Scorer(path, column="text", allow_unverified=True)
        two = kp.Scorer(path, column="two", allow_unverified=True)
        with pytest.raises(ValueError, match="Column 'one' is not in"):
            two(pa.table({"two": [[1.0, 2.0]]}))
        table = pa.table({"two": [[1.0, 2.0]], "one": [[3.0, 4.0]]})
        assert two(table)[0].to_pydict() == {"sum": [[4.0, 6.0]]}
