"""Wrong arguments and calls: the argument by name, and what it must be."""

import re

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc import positions as kinds

ROWS = np.arange(6)
IDS = np.array([[1, 1, 1, 2, 2, 0], [4, 3, 3, 3, 4, 4]])
LENGTH = {"factor": 8, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", **LENGTH}
LLAMA3 = {"rope_type": "llama3", **LENGTH, "low_freq_factor": 4}
LONGROPE = {"rope_type": "longrope", **LENGTH, "long_factor": [2.0] * 8}
PROPORTIONAL = {"rope_type": "proportional", "partial_rotary_factor": 0.1}
CLIPPED = {"rope_type": "clipped", "clipped_pairs": 9}
SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2}
VIT = {"patch_size": 2, **SMALL}
AXIAL = kp.RotaryEmbedding(axes=2, name="rope")
ALIBI, FORGETTING = kp.AlibiBias(), kinds.ForgettingBias()
POLAR, SHAW = kinds.PolarEmbedding(), kinds.RelativePositionEmbedding(2)
SCALED = kinds.CombinedPosition(["rotary", kinds.AttentionTemperature()])

CONSTRUCTIONS = {
    kp.PositionalEncoding: [
        ({"encoding_dim": 4}, "`encoding_dim` needs merge_mode='concat'. Rec"),
    ],
    kp.AxialPositionalEncoding: [
        ({"num_axes": 4}, "`num_axes` must be 1, 2 or 3. Received: num_axes=4"),
        ({"grid_shape": (3, 0)}, "`grid_shape` must be None or 2 positive int"),
        (
            {"grid_shape": (3, 4), "layout": "halves"},
            "`layout` is an option of the sinusoid, and cannot be used with g",
        ),
    ],
    kp.RandomizedPositions: [
        ({"max_position": 2**24 + 1}, "`max_position` must be at most 2**24"),
    ],
    kp.RelativePositionBias: [
        (
            {"num_buckets": 7},
            "`num_buckets` must be at least 4, and even, with",
        ),
        (
            {"num_buckets": 1, "bidirectional": False},
            "`num_buckets` must be at least 2 with bidirectional=False",
        ),
        ({"max_distance": 8}, "`max_distance` must be above 8"),
    ],
    kinds.TransformerXLBias: [
        ({"encoding_dim": 5}, "`encoding_dim` must be even"),
    ],
    kinds.XPosEmbedding: [
        ({"scale_base": 2**25}, "`scale_base` must be at most 2**"),
    ],
    kp.TimeEncoding: [
        (
            {"min_period": 60, "max_period": 59},
            "`max_period` must be at least `min_period`. "
            "Received: min_period=60, max_period=59",
        ),
        ({"periods": ()}, "`periods` must be None or positive finite numbers"),
        ({"periods": (60, 0)}, "`periods` must be None or positive"),
        ({"periods": ("60",)}, "`periods` must be None or positive"),
        (
            {"periods": (60,), "merge_mode": "concat", "encoding_dim": 4},
            "`encoding_dim` follows from `periods`",
        ),
        (
            {"kind": "time2vec", "layout": "halves"},
            "`layout` is for sines and cosines",
        ),
    ],
    kp.RotaryEmbedding: [
        (
            {"partial_rotary_factor": 1.5},
            "`partial_rotary_factor` must be in (0, 1]. Received: partial_rot",
        ),
        (
            {"scaling": PROPORTIONAL, "partial_rotary_factor": 0.5},
            "`partial_rotary_factor` is a key of `scaling` for the rope_type",
        ),
        (
            {"scaling": YARN, "max_wavelength": 1},
            "`max_wavelength` must be above 1 for the rope_type 'yarn'",
        ),
        (
            {"axes": {"mrope_section": [8], "x": 1}},
            "has the keys 'mrope_section' and 'mrope_interleaved' alone",
        ),
        (
            {"axes": {"mrope_section": [8]}},
            "a list of at least two integers",
        ),
        (
            {"axes": {"mrope_section": [1, 2, 2], "mrope_interleaved": True}},
            "gives axis 2 one of every 3 pairs, from 2 to 5",
        ),
        (
            {"axes": 2, "scaling": {"rope_type": "dynamic", **LENGTH}},
            "'dynamic' depends on the length",
        ),
    ],
    kinds.CombinedPosition: [
        ({"attention_positions": positions}, message)
        for positions, message in (
            (["rotary"], "must be a list of at least two positions"),
            (["rotary", None], "at least two posit"),
            ([ALIBI, ALIBI], "must not have the same layer twice"),
            ([AXIAL, ALIBI], "must all take positions that are numbers"),
            (
                [FORGETTING, kinds.ForgettingBias()],
                "can have one position with `steps`, such as ForgettingBias",
            ),
            (
                ["rotary", POLAR],
                "a position that widens queries and keys, such as "
                "PolarEmbedding, in the first place alone",
            ),
            ([POLAR, SHAW], "can have none with the hook `values`: make Rel"),
        )
    ],
    kp.CrossAttention: [
        ({"num_heads": 2, "attention_position": position}, message)
        for position, message in (
            (FORGETTING, "ForgettingBias depends on the order of the tokens"),
            (
                kinds.ScalableSoftmax(),
                "ScalableSoftmax takes the position of a query for the number",
            ),
            (SCALED, "CombinedPosition takes the position of a query for the"),
        )
    ],
    kp.TransformerDecoderModel: [
        (
            {
                "vocabulary_size": 9,
                **SMALL,
                "input_position": None,
                "attention_position": AXIAL,
            },
            "so that tokens are counted",
        ),
    ],
    kp.GridPositions: [
        ({"shift": 0.1}, "give `extent` too"),
        ({"extent": 1, "jitter": 0.5}, "must be at least 1"),
    ],
    kp.VisionTransformerModel: [
        ({"image_size": None, **VIT}, "`image_size` must be given"),
        (
            {"image_size": 4, **VIT, "grid_positions": kp.GridPositions(2)},
            "`grid_positions` is for an attention_position",
        ),
        (
            {
                "image_size": 4,
                **VIT,
                "attention_position": AXIAL,
                "grid_positions": kp.GridPositions(4),
            },
            "must have the patches of the model",
        ),
    ],
}


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [(kind, *row) for kind, rows in CONSTRUCTIONS.items() for row in rows],
)
def test_constructions(kind, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**options)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (
            "linear",
            "`scaling` must be None or a dict, such as {'rope_type': 'linear', "
            "'factor': 4.0}. Received: scaling='linear'",
        ),
        (
            {"rope_type": "yaarn"},
            "`scaling['rope_type']` must be 'default', 'linear', 'dynamic', "
            "'yarn', 'longrope', 'llama3', 'proportional' or 'clipped'. "
            "Received: scaling['rope_type']='yaarn'",
        ),
        ({"factor": 2}, "Received: scaling['rope_type']=None"),
        (
            {"rope_type": "default", "factor": 2.0},
            "`scaling` with the rope_type 'default' has no 'factor'. "
            "Received: scaling={'rope_type': 'default', 'factor': 2.0}",
        ),
        (
            {"rope_type": "yarn", "factor": 2},
            "'yarn' needs the keys 'original_max_position_embeddings'",
        ),
        (
            {"rope_type": "dynamic"},
            "needs the keys 'factor', 'original_max_position_embeddings'",
        ),
        ({"rope_type": "longrope"}, "'short_factor', 'long_factor'"),
        ({"rope_type": "llama3"}, "'low_freq_factor', 'high_freq_factor'"),
        ({"rope_type": "clipped"}, "needs the keys 'clipped_pairs'"),
        (
            {**PROPORTIONAL, "partial_rotary_factor": 1.5},
            "`scaling['partial_rotary_factor']` must be in (0, 1]",
        ),
        (
            {**YARN, "factor": 0.5},
            "`scaling['factor']` must be at least 1. "
            "Received: scaling['factor']=0.5",
        ),
        (
            {**LLAMA3, "high_freq_factor": 4},
            "`scaling['high_freq_factor']` must be above "
            "`scaling['low_freq_factor']`. Received: 4.0 and 4.0",
        ),
        (
            {**YARN, "beta_slow": 40},
            "`scaling['beta_fast']` must be above `scaling['beta_slow']`",
        ),
        (
            {**YARN, "mscale": 1},
            "`scaling` needs the keys 'mscale' and 'mscale_all_dim' together",
        ),
        (
            {**YARN, "mscale": 1, "mscale_all_dim": 2, "attention_factor": 3},
            "'attention_factor' of `scaling` cannot be used with 'mscale' and ",
        ),
        (
            {**YARN, "truncate": 1},
            "`scaling['truncate']` must be True or False",
        ),
        (
            {**LONGROPE, "short_factor": "long"},
            "`scaling['short_factor']` must be a list of positive numbers",
        ),
        (
            {**LONGROPE, "short_factor": [1, -2]},
            "`scaling['short_factor'][1]` must be a positive finite number",
        ),
    ],
)
def test_scalings(scaling, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kp.RotaryEmbedding(scaling=scaling)


# ---- Calls

SIZES = r"with batch=2, seq=6\. Received: "
ROW = r"must have shape \(batch, seq\), " + SIZES
POSITIONS = r"`positions` must have shape \(seq,\) or \(batch, seq\), " + SIZES
START = r"`start_index` must have shape \(\) or \(batch,\), " + SIZES
INTEGERS = "must be of an integer dtype. Received: "
APART = "gives the position of every token, and cannot be used with "


def symbol(x):
    known = isinstance(x, np.ndarray)
    return keras.KerasTensor(x.shape, x.dtype.name) if known else x


def check(layer, shape, call, message):
    """... of tensors and of symbols."""
    x = np.zeros(shape, "float32")
    symbols = {name: symbol(value) for name, value in call.items()}
    for inputs, arguments in ((x, call), (symbol(x), symbols)):
        with pytest.raises(ValueError, match=f"(?s){message}"):
            layer(inputs, **arguments)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        *(
            (
                kp.PositionalEncoding(name="where"),
                shape,
                r"PositionalEncoding 'where' expects inputs of shape \(batch, "
                r"seq, dim\), with dim known and above 0\. Received: inputs of "
                rf"shape {re.escape(str(shape))}",
            )
            for shape in ((6, 5), (2, 6, 5, 1), (2, 6, 0))
        ),
        (
            kp.AxialPositionalEncoding(name="where"),
            (2, 6, 8),
            r"AxialPositionalEncoding 'where' expects inputs of shape "
            r"\(batch, height, width, dim\), with dim known and above 0",
        ),
        (
            kp.AxialPositionalEncoding(grid_shape=(3, 4)),
            (2, 3, 5, 8),
            r"learned only grids up to grid_shape=\(3, 4\)\. .* Received: "
            r"inputs with a grid of \(3, 5\)",
        ),
        (
            kp.PositionEmbedding(4),
            (2, 6, 5),
            "learned only the positions 0 to 3 .* inputs of length 6",
        ),
        (
            kp.RandomizedPositions(5, name="where"),
            (2, 6),
            r"'where' draws from max_position=5 positions, and needs one for "
            r"each token\. Received: inputs of length 6",
        ),
        (kp.RandomizedPositions(5), (3,), r"shape \(batch, seq, ...\)\. Rec"),
        (kp.GridPositions(name="g"), (2, 3), r"'g' takes images .* \(2, 3\)"),
        (
            kp.TimeEncoding(periods=(60, 3600), name="where"),
            (2, 6, 5),
            r"'where' adds 4 columns for periods=\(60.0, 3600.0\), and expects "
            r"inputs of that width\. Received: .* width 5",
        ),
        (
            kp.TimeEncoding("time2vec", merge_mode="concat", encoding_dim=1),
            (2, 6, 5),
            "needs a width of at least 2, .* width 1",
        ),
        (
            kp.RotaryEmbedding(),
            (2, 4),
            r"rank 3 or more.*inputs of shape \(2, 4\)",
        ),
        (
            kp.RotaryEmbedding(),
            (1, 2, 7),
            "rotates features in pairs.*width 7 .*rotates 7 features",
        ),
        (
            kp.RotaryEmbedding(partial_rotary_factor=0.5),
            (2, 3, 6),
            "width 6 .*rotates 3 features",
        ),
        (
            kp.RotaryEmbedding(feature_axis=1),
            (1, 2, 4),
            "sequence_axis=1 and feature_axis=1",
        ),
        (
            kp.RotaryEmbedding(scaling={**LONGROPE, "short_factor": [1] * 8}),
            (1, 2, 4),
            r"`scaling\['short_factor'\]` must have one entry for each of the",
        ),
        (
            kp.RotaryEmbedding(scaling=PROPORTIONAL),
            (1, 2, 16),
            "must be at least 0.125, to rotate one of the 8 pairs",
        ),
        (
            kp.RotaryEmbedding(scaling=CLIPPED),
            (1, 2, 16),
            "must be at most 8, the number of pairs of features",
        ),
    ],
)
def test_shapes(layer, shape, message):
    check(layer, shape, {}, message)


@pytest.mark.parametrize(
    ("layer", "call", "message"),
    [
        *(
            (kp.PositionalEncoding(), call, message)
            for call, message in (
                ({"positions": np.zeros(7)}, POSITIONS + "positions of shape"),
                ({"positions": np.zeros((3, 6))}, POSITIONS),
                ({"positions": np.zeros((2, 6, 5))}, POSITIONS),
                ({"positions": ROWS, "start_index": 1}, APART + "start_index"),
                ({"segment_ids": IDS > 1}, f"`segment_ids` {INTEGERS}.* bool"),
                ({"segment_ids": IDS[:, :5]}, f"`segment_ids` {ROW}"),
                ({"start_index": 1.5}, f"`start_index` {INTEGERS}"),
                ({"start_index": True}, f"`start_index` {INTEGERS}"),
                ({"start_index": np.zeros((2, 1), int)}, START),
                ({"mask": IDS[0] > 0}, f"`mask` {ROW}"),
            )
        ),
        *(
            (kp.PositionalEncoding(skip_masked=True), call, message)
            for call, message in (
                ({"positions": ROWS}, APART + "skip_masked=True"),
                ({"segment_ids": IDS}, "cannot be used with skip_masked=True"),
                ({"mask": IDS[:, :5]}, f"`mask` {ROW}"),
            )
        ),
        (
            kp.PositionEmbedding(9),
            {"positions": np.zeros(6, "float32")},
            f"`positions` {INTEGERS}positions of dtype float32",
        ),
        *(
            (kp.TimeEncoding(), {**call, "fractions": fractions}, message)
            for call, fractions, message in (
                ({}, np.zeros(6), "`fractions` are added to `positions`: give"),
                (
                    {"positions": ROWS},
                    np.zeros((2, 5)),
                    r"`fractions` must have shape \(seq,\) or \(batch, seq\)",
                ),
                (
                    {"positions": ROWS},
                    ROWS > 0,
                    "`fractions` must be of an integer or float dtype",
                ),
            )
        ),
    ],
)
def test_calls(layer, call, message):
    check(layer, (2, 6, 5), call, message)


@pytest.mark.parametrize(
    ("position", "shape", "positions", "message"),
    [
        (AXIAL, (1, 4, 8), None, "'rope' needs .* no positions"),
        (AXIAL, (1, 4, 8), (1, 4), r"\(batch, seq, 2\).* \(1, 4\)"),
        (AXIAL, (1, 4, 8), (1, 5, 2), r"seq=4, axes=2.*\(1, 5, 2\)"),
        (ALIBI, (1, 4, 8), (1, 4, 2), r"needs .* \(batch, seq\), a number"),
        (None, (1, 4, 8), (1, 4, 2), r"`positions` must be of shape \(batch, "),
        (AXIAL, (1, 4, 12), (1, 4, 2), "'rope' .* must be a multiple of 4."),
        (
            kp.RotaryEmbedding(axes={"mrope_section": [1, 1]}),
            (1, 4, 12),
            (1, 4, 2),
            "sum to half their number. Received: 6 feat",
        ),
        # Each axis has half of the pairs.
        (
            kp.RotaryEmbedding(axes=2, scaling=CLIPPED),
            (1, 4, 32),
            (1, 4, 2),
            "must be at most 4",
        ),
        (
            kinds.XPosEmbedding(),
            (1, 3, 8),
            None,
            "XPosEmbedding is for causal attention. Call the layer or model "
            "with `use_causal_mask=True`",
        ),
        (
            kinds.CombinedPosition(["rotary", kinds.ContextualBias()]),
            (1, 3, 8),
            None,
            "CombinedPosition is for causal attention",
        ),
        (
            kinds.FourierEmbedding(100, num_key_value_heads=3),
            (1, 3, 8),
            None,
            "3 heads, which do not divide the 2 heads .*num_key_value_heads=2",
        ),
        (
            kinds.FourierEmbedding(6),
            (1, 3, 8),
            None,
            "no frequency turns once in `training_length`, which must be at "
            "least 7. Received: training_length=6",
        ),
    ],
)
def test_attention(position, shape, positions, message):
    layer = kp.SelfAttention(2, attention_position=position)
    positions = None if positions is None else np.zeros(positions, "float32")
    with pytest.raises(ValueError, match=f"(?s){message}"):
        layer(np.zeros(shape, "float32"), positions=positions)


def test_odd_widths_of_transformer_xl():
    layer = kp.SelfAttention(3, attention_position=kinds.TransformerXLBias())
    with pytest.raises(ValueError, match=r"even width.*3 heads of 1 features"):
        layer(np.zeros((1, 4, 3), "float32"))


@pytest.mark.parametrize(
    "kind", [kp.PositionalEncoding, kp.AxialPositionalEncoding]
)
def test_inputs_of_integers(kind):
    shape = (2, 6, 5, 4) if kind is kp.AxialPositionalEncoding else (2, 6, 4)
    for dtype in ("int32", "bool"):
        for x in (np.zeros(shape, dtype), keras.KerasTensor(shape, dtype)):
            with pytest.raises(ValueError, match=rf"float dtype.* {dtype}"):
                kind()(x)


@pytest.mark.parametrize(
    "position",
    [
        kp.RelativePositionBias(name="shared"),
        kinds.KerpleBias(name="shared"),
        kinds.FireBias(name="shared"),
        kinds.ForgettingBias(name="shared"),
        kinds.ScalableSoftmax(name="shared"),
        kinds.PolarEmbedding(name="shared"),
        kinds.FourierEmbedding(50, name="shared"),
        kinds.RelativePositionEmbedding(3, name="shared"),
        kinds.TransformerXLBias(name="shared"),
    ],
    ids=lambda position: type(position).__name__,
)
def test_one_layer_in_two_attentions_that_cannot_share_it(position):
    kp.SelfAttention(2, attention_position=position)(np.ones((1, 3, 8)))
    message = "'shared' was built for queries of .*Received: queries of "
    with pytest.raises(ValueError, match=message):
        kp.SelfAttention(4, attention_position=position)(np.ones((1, 3, 24)))


@pytest.mark.parametrize(
    "call",
    [
        {"positions": (None, None)},
        {"positions": (1, 6)},
        {"segment_ids": (None, None)},
        {"start_index": (None,)},
        {"mask": (None, None)},
    ],
    ids=str,
)
@pytest.mark.parametrize("batch_shape", [(2, 6, 5), (None, None, 5)])
def test_unknown_sizes_are_taken_on_trust(call, batch_shape):
    dtypes = {"positions": "float32", "mask": "bool"}
    call = {
        name: keras.KerasTensor(shape, dtypes.get(name, "int32"))
        for name, shape in call.items()
    }
    outputs = kp.PositionalEncoding()(keras.KerasTensor(batch_shape), **call)
    assert outputs.shape == batch_shape
