"""What the cases of a file compare, and what they do not accept."""

import io
import zipfile

import numpy as np
import pytest

from keras_posenc_worker import cases


def case(wanted, got=None, **options):
    got = wanted if got is None else got
    return cases.make_case(
        "s", {}, {"y": wanted}, {"y": got}, {}, 1e-5, **options
    )


def compared(kept, got):
    (found,) = cases.compared(kept, {"outputs": {"y": got}})
    return found


@pytest.mark.parametrize("width", [3, 7, 1000])
def test_no_channel_of_a_large_output_is_left_out(width):
    wanted = np.zeros((1, 40, 50, width), "float32")
    kept = case(wanted)
    for channel in range(width):
        got = wanted.copy()
        got[..., channel] = 1.0
        _, off, allowed, error = compared(kept, got)
        assert off > allowed
        assert error == ""


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
        (np.ones(3, "int32"), "integers, and the model floats"),
        (np.array([b"a"] * 3, object), "texts, and the model floats"),
        (np.ones((3, 1), "float32"), "shape (3, 1), and the model (3,)"),
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
        members.writestr(cases.RECORD, f'{{"a": {text}, "b": {text}}}')
    with pytest.raises(cases.CasesError):
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
    kept, left_out = cases.within_budget(large)
    assert {each["signature"] for each in kept} == {*"abcde"}
    assert left_out == 5
    assert len(cases.pack({"cases": kept})) < 5 * 2**20
