"""Positions inside attention, in files of dynamic length."""

from functools import partial

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.export.files import EXPORTS, run_file

pytestmark = pytest.mark.tensorflow

HEADS, DIM = 4, 16
LENGTH = 8  # longer rows have other frequencies
SCALING = {"factor": 4, "original_max_position_embeddings": LENGTH}
YARN, DYNAMIC, LONGROPE = (
    {"rope_type": kind, **SCALING} for kind in ("yarn", "dynamic", "longrope")
)
LONGROPE |= {"short_factor": [1, 2], "long_factor": [3, 4]}
PROPORTIONAL = {"rope_type": "proportional", "partial_rotary_factor": 0.5}
SCHEMES = {
    "rotary": kp.RotaryEmbedding,
    "interleaved": partial(kp.RotaryEmbedding, layout="interleaved"),
    "yarn": partial(kp.RotaryEmbedding, scaling=YARN),
    "dynamic": partial(kp.RotaryEmbedding, scaling=DYNAMIC),
    "longrope": partial(kp.RotaryEmbedding, scaling=LONGROPE),
    "alibi": kp.AlibiBias,
    "relative-bias": kp.RelativePositionBias,
    "relative": partial(kp.positions.RelativePositionEmbedding, 5),
    "xl": kp.positions.TransformerXLBias,
    "kerple": kp.positions.KerpleBias,
    "fire": kp.positions.FireBias,
    "forgetting": kp.positions.ForgettingBias,
    "polar": kp.positions.PolarEmbedding,
    "fourier": partial(kp.positions.FourierEmbedding, 64),
    "temperatures": lambda dtype=None: kp.positions.CombinedPosition(
        [
            kp.RotaryEmbedding(scaling=PROPORTIONAL, dtype=dtype),
            kp.positions.AttentionTemperature(floor_scale=8, dtype=dtype),
            kp.positions.ScalableSoftmax(dtype=dtype),
        ],
        dtype=dtype,
    ),
}


def model_of_all(policy=None):
    """One block for each scheme, so that one export tries them all."""
    keras.utils.set_random_seed(0)
    return kp.TransformerEncoderModel(
        50,
        d_model=DIM,
        num_layers=len(SCHEMES),
        num_heads=HEADS,
        intermediate_dim=16,
        input_position=None,
        attention=[make(dtype=policy) for make in SCHEMES.values()],
        dtype=policy,
    )


@pytest.mark.slow
def test_all_go_out_in_builtin_operators(tmp_path):
    """Verified at up to 512 tokens, and without a constant of that many."""
    model = model_of_all()
    artifact = kp.export_litert(
        model,
        tmp_path / "model.tflite",
        # What each block of so many adds in rounding: sums of 512 terms, in
        # another order, on rows where one token stands many times over.
        tolerance=4e-6 * len(SCHEMES),
        verbose=False,
    )
    assert kp.inspect_export(artifact.path).foreign_operators == []
    # Tables, operators and their names take some 40 KB a block; one bias of
    # 512 by 512 in four heads would be 4 MB.
    size = artifact.path.stat().st_size
    assert size - 4 * model.count_params() < 80_000 * len(SCHEMES)


@pytest.mark.slow
def test_all_go_out_with_positions_of_64_bits(tmp_path):
    """Such as timestamps: LiteRT has fewer operators for them."""
    x = keras.Input((None, DIM), name="x")
    times = keras.Input((None,), dtype="int64", name="times")
    encoder = kp.TransformerEncoder(
        len(SCHEMES),
        num_heads=HEADS,
        intermediate_dim=16,
        attention=[make() for make in SCHEMES.values()],
    )
    model = keras.Model([x, times], encoder(x, positions=times))
    rng = np.random.default_rng(0)
    samples = {
        "x": rng.normal(size=(2, 9, DIM)).astype("float32"),
        "times": np.cumsum(rng.integers(0, 99, (2, 9)), axis=1),
    }
    path = tmp_path / "model.tflite"
    kp.export_litert(model, path, samples=samples, verbose=False)


def test_a_token_at_nan_is_nan_there_too(tmp_path):
    """Where schemes look up or branch, and the runtime's exponential ends."""
    x = keras.Input((None, DIM), name="x")
    positions = keras.Input((None,), name="positions")
    schemes = (
        kp.positions.KerpleBias("power"),
        kp.positions.RelativePositionEmbedding(5),
        kp.RelativePositionBias(),
    )
    attended = [
        kp.SelfAttention(HEADS, attention=each)(x, positions=positions)
        for each in schemes
    ]
    model = keras.Model([x, positions], attended)
    path = tmp_path / "model.tflite"
    kp.export_litert(model, path, verify=False, verbose=False)
    values = {
        "x": np.ones((1, 4, DIM), "float32"),
        "positions": np.array([[0, 1.5, np.nan, 3]], "float32"),
    }
    found = run_file(path, values)
    assert len(found) == len(schemes)
    for outputs in found.values():
        assert np.isnan(outputs[0, 2]).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXPORTS)
def test_images_of_any_size(kind, tmp_path):
    """Rows and columns follow from the size of the images, in the file too."""
    keras.utils.set_random_seed(0)
    model = kp.VisionTransformerModel(
        None,
        input_position=None,
        attention=kp.RotaryEmbedding(axes=2, max_wavelength=100),
        grid_positions=kp.GridPositions(4, num_class_tokens=3, extent=6.0),
        num_class_tokens=3,
        patch_size=4,
        d_model=DIM,
        num_layers=2,
        num_heads=HEADS,
        intermediate_dim=16,
    )
    export, file = EXPORTS[kind]
    export(model, tmp_path / file, max_length=24, verbose=False)
