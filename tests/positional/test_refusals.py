"""Wrong arguments and calls: the argument by name, and what it must be."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc import positions as kinds
from tests.layers import CAUSAL_POSITIONS, POSITIONS
from tests.refusals import check, names, table

LENGTH = {"factor": 8, "original_max_position_embeddings": 64}
SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2}
PATCHES = {"patch_size": 2, **SMALL}
AXIAL = kp.RotaryEmbedding(axes=2, name="rope")
YARN = {"rope_type": "yarn", **LENGTH}
SCOPE = {
    **names(kp, kinds),
    "LENGTH": LENGTH,
    "YARN": YARN,
    "MSCALE": {**YARN, "mscale": 1, "mscale_all_dim": 2},
    "LLAMA3": {"rope_type": "llama3", **LENGTH, "low_freq_factor": 4},
    "LONGROPE": {"rope_type": "longrope", **LENGTH, "long_factor": [2.0] * 8},
    "PROPORTIONAL": {"rope_type": "proportional", "partial_rotary_factor": 0.1},
    "CLIPPED": {"rope_type": "clipped", "clipped_pairs": 9},
    "BARE": {**SMALL, "input_position": None},
    "PATCHES": PATCHES,
    "TURNED": {**PATCHES, "attention": AXIAL},
    "AXIAL": AXIAL,
    "SECTIONS": kp.RotaryEmbedding(axes={"mrope_section": [1, 1]}),
    "SKIPPING": kp.PositionalEncoding(skip_masked=True),
    "ALIBI": kp.AlibiBias(),
    "FORGETTING": kinds.ForgettingBias(),
    "POLAR": kinds.PolarEmbedding(),
    "SCALED": kinds.CombinedPosition(["rotary", kinds.AttentionTemperature()]),
}
CONSTRUCTIONS = """
PositionalEncoding(encoding_dim=4)
    `encoding_dim` needs merge_mode='concat'. Received
AxialPositionalEncoding(num_axes=4)
    `num_axes` must be 1, 2 or 3. Received: num_axes=4
AxialPositionalEncoding(grid_shape=(3, 0))
    `grid_shape` must be None or 2 positive int
AxialPositionalEncoding(grid_shape=(3, 4), layout="halves")
    `layout` is an option of the sinusoid, and cannot be used with g
RandomizedPositions(2**24 + 1)
    `max_position` must be at most 2**24
RelativePositionBias(num_buckets=7)
    `num_buckets` must be at least 4, and even, with
RelativePositionBias(num_buckets=1, bidirectional=False)
    `num_buckets` must be at least 2 with bidirectional=False
RelativePositionBias(max_distance=8)
    `max_distance` must be above 8
TransformerXLBias(encoding_dim=9)
    `encoding_dim` must be even
XPosEmbedding(scale_base=2**25)
    `scale_base` must be at most 2**
TimeEncoding(min_period=60, max_period=59)
    `max_period` must be at least `min_period`.
    Received: min_period=60, max_period=59
TimeEncoding(periods=())
    `periods` must be None or positive finite numbers
TimeEncoding(periods=(60, 0))
    `periods` must be None or positive
TimeEncoding(periods=("60",))
    `periods` must be None or positive
TimeEncoding(periods=(60,), merge_mode="concat", encoding_dim=4)
    `encoding_dim` follows from `periods`
TimeEncoding(kind="time2vec", layout="halves")
    `layout` is for sines and cosines
RotaryEmbedding(partial_rotary_factor=1.5)
    `partial_rotary_factor` must be in (0, 1]. Received: partial_rot
RotaryEmbedding(scaling=PROPORTIONAL, partial_rotary_factor=0.5)
    `partial_rotary_factor` is a key of `scaling` for the rope_type
RotaryEmbedding(scaling=YARN, max_wavelength=1)
    `max_wavelength` must be above 1 for the rope_type 'yarn'
RotaryEmbedding(axes={"mrope_section": [8], "x": 1})
    has the keys 'mrope_section' and 'mrope_interleaved' alone
RotaryEmbedding(axes={"mrope_section": [8]})
    a list of at least two integers
RotaryEmbedding(axes={"mrope_section": [1, 2, 2], "mrope_interleaved": True})
    gives axis 2 one of every 3 pairs, from 2 to 5
RotaryEmbedding(axes=2, scaling={"rope_type": "dynamic", **LENGTH})
    'dynamic' depends on the length
CombinedPosition(["rotary"])
    must be a list of at least two positions
CombinedPosition(["rotary", None])
    at least two posit
CombinedPosition([ALIBI, ALIBI])
    must not have the same layer twice
CombinedPosition([AXIAL, ALIBI])
    must all take positions that are numbers
CombinedPosition([FORGETTING, ForgettingBias()])
    can have one position with `steps`, such as ForgettingBias
CombinedPosition(["rotary", POLAR])
    a position that widens queries and keys, such as PolarEmbedding, in the
    first place alone
CombinedPosition([POLAR, RelativePositionEmbedding(2)])
    can have none with the hook `values`: make Rel
CrossAttention(2, attention=FORGETTING)
    ForgettingBias depends on the order of the tokens
CrossAttention(2, attention=ScalableSoftmax())
    ScalableSoftmax takes the position of a query for the number
CrossAttention(2, attention=SCALED)
    CombinedPosition takes the position of a query for the
TransformerDecoderModel(9, **BARE, attention=AXIAL)
    so that tokens are counted
GridPositions(extent=-1)
    `extent` must be
VisionTransformerModel(None, **PATCHES)
    `image_size` must be given
VisionTransformerModel(4, **PATCHES, grid_positions=GridPositions(2))
    `grid_positions` is for positions in attention
VisionTransformerModel(4, **TURNED, grid_positions=GridPositions(4))
    must have the patches of the model
RotaryEmbedding(scaling="linear")
    `scaling` must be None or a dict, such as {'rope_type': 'linear',
    'factor': 4.0}. Received: scaling='linear'
RotaryEmbedding(scaling={"rope_type": "yaarn"})
    `scaling['rope_type']` must be 'default', 'linear', 'dynamic', 'yarn',
    'longrope', 'llama3', 'proportional' or 'clipped'. Received:
    scaling['rope_type']='yaarn'
RotaryEmbedding(scaling={"factor": 2})
    Received: scaling['rope_type']=None
RotaryEmbedding(scaling={"rope_type": "default", "factor": 2.0})
    `scaling` with the rope_type 'default' has no 'factor'. Received:
    scaling={'rope_type': 'default', 'factor': 2.0}
RotaryEmbedding(scaling={"rope_type": "yarn", "factor": 2})
    'yarn' needs the keys 'original_max_position_embeddings'
RotaryEmbedding(scaling={"rope_type": "dynamic"})
    needs the keys 'factor', 'original_max_position_embeddings'
RotaryEmbedding(scaling={"rope_type": "longrope"})
    'short_factor', 'long_factor'
RotaryEmbedding(scaling={"rope_type": "llama3"})
    'low_freq_factor', 'high_freq_factor'
RotaryEmbedding(scaling={"rope_type": "clipped"})
    needs the keys 'clipped_pairs'
RotaryEmbedding(scaling={**PROPORTIONAL, "partial_rotary_factor": 1.5})
    `scaling['partial_rotary_factor']` must be in (0, 1]
RotaryEmbedding(scaling={**YARN, "factor": 0.5})
    `scaling['factor']` must be at least 1. Received: scaling['factor']=0.5
RotaryEmbedding(scaling={**LLAMA3, "high_freq_factor": 4})
    `scaling['high_freq_factor']` must be above
    `scaling['low_freq_factor']`. Received: 4.0 and 4.0
RotaryEmbedding(scaling={**YARN, "beta_slow": 40})
    `scaling['beta_fast']` must be above `scaling['beta_slow']`
RotaryEmbedding(scaling={**YARN, "mscale": 1})
    `scaling` needs the keys 'mscale' and 'mscale_all_dim' together
RotaryEmbedding(scaling={**MSCALE, "attention_factor": 3})
    'attention_factor' of `scaling` cannot be used with 'mscale' and
RotaryEmbedding(scaling={**YARN, "truncate": 1})
    `scaling['truncate']` must be True or False
RotaryEmbedding(scaling={**LONGROPE, "short_factor": "long"})
    `scaling['short_factor']` must be a list of positive numbers
RotaryEmbedding(scaling={**LONGROPE, "short_factor": [1, -2]})
    `scaling['short_factor'][1]` must be a positive finite number
"""


@pytest.mark.parametrize(("call", "said"), table(CONSTRUCTIONS))
def test_constructions(call, said):
    check(call, said, SCOPE)


# Of arrays and of symbols, both of which `x` makes of a shape.
CALLS = """
PositionalEncoding(name="where")(x(6, 5))
    PositionalEncoding 'where' expects inputs of shape (batch, seq, dim),
    with dim known and above 0. Received: inputs of shape (6, 5)
PositionalEncoding()(x(2, 6, 0))
    with dim known and above 0. Received: inputs of shape (2, 6, 0)
AxialPositionalEncoding(name="where")(x(2, 6, 8))
    AxialPositionalEncoding 'where' expects inputs of shape (batch, height,
    width, dim), with dim known and above 0
AxialPositionalEncoding(grid_shape=(3, 4))(x(2, 3, 5, 8))
    learned only grids up to grid_shape=(3, 4). Received: inputs with a grid
    of (3, 5)
PositionEmbedding(4)(x(2, 6, 5))
    learned only the positions 0 to 3 ... inputs of length 6
RandomizedPositions(5, name="where")(x(2, 6))
    'where' draws from max_position=5 positions, and needs one for each
    token. Received: inputs of length 6
RandomizedPositions(5)(x(3))
    shape (batch, seq, ...). Rec
GridPositions(name="g")(x(2, 3))
    'g' takes images ... (2, 3)
TimeEncoding(periods=(60, 3600), name="where")(x(2, 6, 5))
    'where' adds 4 columns for periods=(60.0, 3600.0), and expects inputs of
    that width. Received: ... width 5
TimeEncoding("time2vec", merge_mode="concat", encoding_dim=1)(x(2, 6, 5))
    needs a width of at least 2, ... width 1
RotaryEmbedding()(x(2, 4))
    (batch, seq, ..., dim)... of shape (2, 4)
RotaryEmbedding(partial_rotary_factor=0.5)(x(2, 3, 6))
    width 6 ...rotates 3 features
RotaryEmbedding(scaling={**LONGROPE, "short_factor": [1] * 8})(x(1, 2, 4))
    `scaling['short_factor']` must have one entry for each of the
RotaryEmbedding(scaling=PROPORTIONAL)(x(1, 2, 16))
    must be at least 0.125, to rotate one of the 8 pairs
RotaryEmbedding(scaling=CLIPPED)(x(1, 2, 16))
    must be at most 8, the number of pairs of features
PositionalEncoding()(x(2, 6, 5), positions=x(7))
    `positions` must have shape (seq,) or (batch, seq), with batch=2, seq=6.
    Received: positions of shape
PositionalEncoding()(x(2, 6, 5), positions=x(2, 6, 5))
    `positions` must have shape (seq,) or (batch, seq), with batch=2, seq=6.
PositionalEncoding()(x(2, 6, 5), positions=x(6), start_index=1)
    gives the position of every token, and cannot be used with start_index
PositionalEncoding()(x(2, 6, 5), segment_ids=x(2, 6, dtype="bool"))
    `segment_ids` must be of an integer dtype. Received: ... bool
PositionalEncoding()(x(2, 6, 5), segment_ids=x(2, 5, dtype="int64"))
    `segment_ids` must have shape (batch, seq), with batch=2, seq=6. Recei
PositionalEncoding()(x(2, 6, 5), start_index=True)
    `start_index` must be of an integer dtype. Received:
PositionalEncoding()(x(2, 6, 5), start_index=1.5)
    `start_index` must be of an integer dtype. Received:
PositionalEncoding()(x(2, 6, 5), start_index=x(2, 1, dtype="int64"))
    `start_index` must have shape () or (batch,), with batch=2, seq=6. Rec
PositionalEncoding()(x(2, 6, 5), mask=x(6, dtype="bool"))
    `mask` must have shape (batch, seq), with batch=2, seq=6. Received:
SKIPPING(x(2, 6, 5), positions=x(6))
    gives the position of every token, and cannot be used with skip_masked
SKIPPING(x(2, 6, 5), segment_ids=x(2, 6, dtype="int64"))
    cannot be used with skip_masked=True
SKIPPING(x(2, 6, 5), mask=x(2, 5, dtype="int64"))
    `mask` must have shape (batch, seq), with batch=2, seq=6. Received:
PositionEmbedding(9)(x(2, 6, 5), positions=x(6))
    `positions` must be of an integer dtype. Received: positions of dtype
    float32
PositionalEncoding()(x(2, 6, 4, dtype="int32"))
    float dtype... int32
AxialPositionalEncoding()(x(2, 6, 5, 4, dtype="int32"))
    float dtype... int32
"""


def array(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


def symbol(*shape, dtype="float32"):
    return keras.KerasTensor(shape, dtype)


@pytest.mark.parametrize("x", [array, symbol])
@pytest.mark.parametrize(("call", "said"), table(CALLS))
def test_calls(call, said, x):
    check(call, said, {**SCOPE, "x": x})


# A position, inputs, and the positions of their tokens.
ATTENTIONS = """
attend(AXIAL, x(1, 4, 8))
    'rope' needs ... no positions
attend(AXIAL, x(1, 4, 8), x(1, 4))
    (batch, seq, 2)... (1, 4)
attend(AXIAL, x(1, 4, 8), x(1, 5, 2))
    seq=4, axes=2...(1, 5, 2)
attend(ALIBI, x(1, 4, 8), x(1, 4, 2))
    needs ... (batch, seq), a number
attend(None, x(1, 4, 8), x(1, 4, 2))
    `positions` must be of shape (batch,
attend(AXIAL, x(1, 4, 12), x(1, 4, 2))
    'rope' ... must be a multiple of 4.
attend(SECTIONS, x(1, 4, 12), x(1, 4, 2))
    sum to half their number. Received: 6 feat
attend(RotaryEmbedding(axes=2, scaling=CLIPPED), x(1, 4, 32), x(1, 4, 2))
    must be at most 4
attend(XPosEmbedding(), x(1, 3, 8))
    XPosEmbedding is for causal attention. Call the layer or model with
    `use_causal_mask=True`
attend(CombinedPosition(["rotary", ContextualBias()]), x(1, 3, 8))
    CombinedPosition is for causal attention
attend(FourierEmbedding(100, num_key_value_heads=3), x(1, 3, 8))
    3 heads, which do not divide the 2 heads ...num_key_value_heads=2
attend(FourierEmbedding(6), x(1, 3, 8))
    no frequency turns once in `training_length`, which must be at least 7.
    Received: training_length=6
SelfAttention(3, attention=TransformerXLBias())(x(1, 4, 3))
    even width...3 heads of 1 features
"""


def attend(position, inputs, positions=None):
    layer = kp.SelfAttention(2, attention=position)
    return layer(inputs, positions=positions)


@pytest.mark.parametrize(("call", "said"), table(ATTENTIONS))
def test_attention(call, said):
    check(call, said, {**SCOPE, "x": array, "attend": attend})


SHARED = {
    **POSITIONS,
    **CAUSAL_POSITIONS,
    "softmax": kinds.ScalableSoftmax,
    "fourier": lambda: kinds.FourierEmbedding(50),
}


@pytest.mark.parametrize(
    "name", [x for x in SHARED if x not in ("rotary", "alibi", "xpos")]
)
def test_one_layer_in_two_attentions_that_cannot_share_it(name):
    position = SHARED[name]()
    call = {"use_causal_mask": True}
    kp.SelfAttention(2, attention=position)(np.ones((1, 3, 8)), **call)
    message = "was built for queries of .*Received: queries of "
    with pytest.raises(ValueError, match=message):
        kp.SelfAttention(4, attention=position)(np.ones((1, 3, 24)), **call)


@pytest.mark.parametrize("batch_shape", [(2, 6, 5), (None, None, 5)])
def test_unknown_sizes_are_taken_on_trust(batch_shape):
    inputs = keras.KerasTensor(batch_shape)
    for name, shape, dtype in (
        ("positions", (None, None), "float32"),
        ("positions", (1, 6), "float32"),
        ("segment_ids", (None, None), "int32"),
        ("start_index", (None,), "int32"),
        ("mask", (None, None), "bool"),
    ):
        call = {name: keras.KerasTensor(shape, dtype)}
        assert kp.PositionalEncoding()(inputs, **call).shape == batch_shape
