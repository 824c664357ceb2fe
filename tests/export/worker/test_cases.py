"""What the cases of a file compare, and what they do not accept."""

import io
import zipfile

import numpy as np
import pytest

from keras_posenc_worker import cases, codec


def case(wanted, got=None, **options):
    got = wanted if got is None else got
    return cases.make_case(
        "s", {}, {"y": wanted}, {"y": got}, {}, 1e-5, **options
    )


def compared(kept, got):
    (found,) = cases.compared(kept, {"outputs": {"y": got}})
    return found


def test_all_rows_and_columns_of_a_large_output_are_seen():
    """... as far as there are 4,096 of them, none is seen twice."""
    for rows in (1, 3, 255, 4096, 5000):
        for width in (2, 3, 17, 64, 255, 256, 997, 1024, 4096, 32000):
            if rows * width <= 4096:
                continue
            wanted = np.zeros((rows, width), "int8")
            places = cases._some(wanted)["places"]
            assert len(np.unique(places)) == 4096
            assert len(np.unique(places // width)) == min(rows, 4096)
            assert len(np.unique(places % width)) == min(width, 4096)


@pytest.mark.parametrize("places", [[-1, 0], [0, 8], [[0, 1]], [0.0, 1.0]])
def test_places_outside_of_an_output_are_refused(places):
    kept = case(np.ones((2, 4), "float32"))
    record = {
        **{"kind": "onnx", "files": {}, "signatures": [], "weights": []},
        **{"quantization": None, "versions": {}, "cases": [kept]},
    }
    cases.unpack(cases.pack(record))
    places = np.array(places)
    kept["outputs"]["y"] |= {
        "values": np.ones(2, "float32"),
        "places": np.int32(places) if places.dtype.kind == "i" else places,
    }
    with pytest.raises(ValueError, match="not hold what an export writes"):
        cases.unpack(cases.pack(record))


def test_an_output_that_was_far_off_is_no_case():
    wanted = np.arange(10, dtype="int32")
    got = np.where(wanted < 6, -1, wanted)
    assert case(wanted, got)["outputs"] == {}
    one = np.where(wanted < 1, -1, wanted)
    assert case(wanted, one)["outputs"]["y"]["allowed"] == pytest.approx(0.2)
    halves = np.ones(4, "float32")
    assert case(halves, halves / 2)["outputs"] == {}


@pytest.mark.parametrize(
    ("got", "error"),
    [
        (np.ones(3, "int32"), "has integers, the model's floats"),
        (np.array([b"a"] * 3, object), "has texts, the model's floats"),
        (np.ones((3, 1), "float32"), "has shape (3, 1), the model's (3,)"),
    ],
)
def test_another_kind_or_shape_is_an_error(got, error):
    _, off, _, found = compared(case(np.ones(3, "float32")), got)
    assert off == np.inf
    assert found == error


def test_numbers_that_are_not_finite_count_in_samples_alone():
    wanted = np.array([np.nan, np.inf, 1.0], "float32")
    got = np.array([0.0, 3e38, 1.0], "float32")
    assert compared(case(wanted), got)[1] == 0
    assert compared(case(wanted, is_sample=True), got)[1] == np.inf
    assert compared(case(wanted, is_sample=True), wanted)[1] == 0


def test_an_array_that_is_named_twice_is_refused():
    """A small file could name one so often that memory has no limit."""
    content, text = cases.pack({"a": np.ones(2)}), '{"\\u0000numbers": "0"}'
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as own,
        zipfile.ZipFile(file, "w") as members,
    ):
        members.writestr("0.npy", own.read("0.npy"))
        members.writestr(codec.RECORD, f'{{"a": {text}, "b": {text}}}')
    with pytest.raises(ValueError, match="x not in list"):
        cases.unpack(file.getvalue())


def test_all_cases_together_are_of_a_few_mb():
    large = [
        {
            **case(np.ones(4096, "float32")),
            "signature": name,
            "inputs": {"x": x},
        }
        for name in "abcde"
        for x in (np.ones(2**20), np.ones(8))
    ]
    kept = cases.within_budget(large)
    assert {each["signature"] for each in kept} == {*"abcde"}
    assert len(cases.pack({"cases": kept})) < 5 * 2**20
