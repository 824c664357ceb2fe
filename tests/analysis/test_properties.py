"""Schemes as numbers: figures as printed, and what each scheme is known for."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keras_posenc as kp
from keras_posenc import analysis
from tests.refusals import check, names, table

# The encodings are float32: each number is off by 1.4e-7 at most here.
ROUNDING = 1e-6


def test_printed_figures():
    """Five positions of width 6: what the source notes give of them."""
    found = analysis.properties(kp.PositionalEncoding(layout="halves"), 5, 6)
    assert found.neighbor_distance == pytest.approx(0.9600, abs=5e-5)
    assert found.smallest_distance == pytest.approx(0.9600, abs=5e-5)
    assert found.norm == pytest.approx(1.7321, abs=5e-5)
    assert found.similarity[1] == pytest.approx(2.5392, abs=5e-5)
    assert found.neighbor_spread <= ROUNDING
    assert found.norm_spread <= ROUNDING


@given(
    shift=st.integers(1, 9),
    pairs=st.integers(1, 6),
    layout=st.sampled_from(["interleaved", "halves"]),
)
def test_sinusoid_keeps_every_condition(shift, pairs, layout):
    encoding = kp.PositionalEncoding(layout=layout)
    dim = 2 * pairs
    found = analysis.properties(encoding, 40, dim, shift=shift)
    assert found.smallest_distance > 0.01
    assert found.norm == pytest.approx(math.sqrt(pairs), rel=ROUNDING)
    for rest in (
        found.neighbor_spread,
        found.norm_spread,
        found.shift_residual,
        found.difference_residual,
    ):
        assert rest <= 10 * ROUNDING
    # The best map is the rotation of the paper.
    vectors = analysis.encoding_vectors(encoding, 40, dim)
    turned = (
        vectors[:-shift] @ analysis.shift_matrix(shift, dim, layout=layout).T
    )
    np.testing.assert_allclose(turned, vectors[shift:], atol=ROUNDING)
    # Similarity is the sum of cosines of the distance, whatever the position.
    rates = 10000.0 ** (-np.arange(pairs) / pairs)
    cosines = np.cos(np.arange(40)[:, np.newaxis] * rates)
    np.testing.assert_allclose(
        found.similarity, np.sum(cosines, axis=-1), atol=10 * ROUNDING
    )


@given(
    k=st.floats(-1000, 1000),
    pairs=st.integers(1, 9),
    layout=st.sampled_from(["interleaved", "halves"]),
    base=st.floats(1, 1e6),
)
def test_shift_matrix(k, pairs, layout, base):
    options = {"max_wavelength": base, "layout": layout}
    layer = kp.PositionalEncoding(merge_mode=None, **options)
    x, places = np.zeros((1, 2, 2 * pairs)), np.array([0, 7])
    before, after = (
        keras.ops.convert_to_numpy(layer(x, positions=each))
        for each in (places, places + k)
    )
    matrix = analysis.shift_matrix(k, 2 * pairs, **options)
    np.testing.assert_allclose(before @ matrix.T, after, rtol=0, atol=ROUNDING)


def test_learned_table_is_no_function_of_the_distance():
    keras.utils.set_random_seed(0)
    found = analysis.properties(kp.PositionEmbedding(50), 50, 8)
    assert found.shift_residual > 0.5
    assert found.difference_residual > 0.5
    assert found.smallest_distance > 0


def test_index_grows_and_every_step_is_alike():
    found = analysis.properties(kp.positions.IndexEncoding(), 10, 4)
    assert found.neighbor_distance == 2  # of 1 in each of 4 columns
    assert found.neighbor_spread == 0
    assert found.norm == 9  # the mean of 0 ... 18
    assert found.norm_spread == 2
    # The least of |c p - (p + 1)| for p = 0 ... 8, of |p + 1|.
    assert found.shift_residual == pytest.approx(
        math.sqrt(1 - 240**2 / 204 / 285)
    )


@pytest.mark.parametrize(
    "name", ["alibi", "t5", "shaw", "kerple", "transformer-xl", "rotary"]
)
def test_scores_of_relative_schemes_see_differences_alone(name):
    found = analysis.properties(analysis.make_scheme(name, 64), 64, 16)
    assert found.difference_residual <= 10 * ROUNDING
    assert math.isnan(found.shift_residual)
    assert found.smallest_distance > 0


def test_similarity_of_alibi():
    """Section 3: of h heads, slopes 2 ** (-8 i / h)."""
    found = analysis.properties(kp.AlibiBias(), 9, 4, num_heads=2)
    slope = (2.0**-4 + 2.0**-8) / 2
    np.testing.assert_allclose(
        found.similarity, 2 - slope * np.arange(9), rtol=0, atol=ROUNDING
    )


def test_keys_may_be_scaled_otherwise():
    """xPos: scores of ones fall by the decays of the pairs, here of two."""
    scores = analysis.score_matrix(
        kp.positions.XPosEmbedding(1), 4, 4, num_heads=1
    )
    decays = np.array([0.4, 0.9]) / 1.4
    rates = np.array([1.0, 0.01])
    want = np.sum(decays**2 * 2 * np.cos(2 * rates)) / 2
    assert scores[0, 3, 1] == pytest.approx(want, abs=ROUNDING * 10)


def test_a_table_of_zeros_has_numbers():
    found = analysis.properties(np.zeros((9, 4)), 9, 4)
    assert found.smallest_distance == found.shift_residual == found.norm == 0


def test_arrays_are_encodings_too():
    rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    found = analysis.properties(rows, 3, 2)
    assert found.smallest_distance == 0  # the first is the last
    assert found.neighbor_distance == pytest.approx(math.sqrt(2))
    assert found.similarity.tolist() == [1, 0, 1]
    again = analysis.properties(rows[np.newaxis], 3, 2)
    assert again.similarity.tolist() == found.similarity.tolist()


@pytest.mark.parametrize("name", analysis.SCHEMES)
def test_every_scheme_has_properties_for_json(name):
    found = analysis.properties(analysis.make_scheme(name, 24), 24, 8)
    numbers = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(numbers["similarity"]) == 24
    assert numbers["smallest_distance"] == found.smallest_distance
    residual = numbers["shift_residual"]
    assert (residual is None) is math.isnan(found.shift_residual)


def test_rows_and_columns_count_by_their_differences():
    cells = np.stack(np.divmod(np.arange(12), 4), axis=-1)
    axial = kp.RotaryEmbedding(axes=2)
    found = analysis.properties(axial, 12, 8, positions=cells)
    assert found.difference_residual < 1e-6
    # By the row alone, cells of one row look the same.
    rows = analysis.properties(
        kp.RotaryEmbedding(), 12, 8, positions=cells[:, 0]
    )
    assert rows.smallest_distance == 0 < found.smallest_distance


def test_no_digit_is_cut_in_80_columns():
    fields = dataclasses.fields(analysis.Properties)
    found = analysis.Properties(*[1.2e-100] * len(fields))
    found = dict.fromkeys(analysis.SCHEMES, found)
    text = str(analysis.Comparison(9, 4, found))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("1.2e-100") == 7 * len(analysis.SCHEMES)
    # In tables of their own, each with the names of its rows.
    assert text.count("alibi") == text.count("scheme") == 2
    shortest = analysis.compare(length=2, dim=4, verbose=False)
    assert shortest.schemes.keys() == found.keys()


SCOPE = {
    **names(analysis, kp.positions, kp),
    "np": np,
    "AXIAL": kp.RotaryEmbedding(axes=2),
}
WRONG = """
properties(PositionalEncoding(), 4, 4, positions=range(4))
    `positions` is for
properties(AXIAL, 4, 4, positions=np.zeros((3, 2)))
    shape (4, 2)...(3, 2)
properties(AlibiBias, 4, 4)
    a layer that encodes its input, or an array
properties(np.ones((4, 3)), 4, 4)
    dim=4. Received: encoding=an array of shape
properties(ForgettingBias(), 4, 4)
    depend on the contents of the t
properties(RandomizedPositions(9), 4, 4)
    layer that ... Received: ...RandomizedPos
properties(AlibiBias(), 4, 4, shift=4)
    `length` must be above `shift`.
encoding_vectors(AlibiBias(), 4, 4)
    scores instead (`plot_bias`). Received: encoding=<AlibiBias
score_matrix(PositionalEncoding(), 4, 4)
    `position` must be an AttentionPosition. Received: position=<Pos
make_scheme("roterry", 4)
    `scheme` must be ...'rotary'... Received: scheme='roterry'
compare(length=1)
    `length` must be above 1. Received: length=1
compare(dim=7)
    `dim` must be even: ... Received: dim=7
shift_matrix(1, 3)
    `d_model` must be even: ...=3
"""


@pytest.mark.parametrize(("call", "said"), table(WRONG))
def test_bad_arguments(call, said):
    check(call, said, SCOPE)
