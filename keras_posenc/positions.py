"""Kinds of positions that are used less often, and functions of positions.

    from keras_posenc import positions

Layers and attention positions of this module are options wherever those of the
package itself are.
"""

from keras_posenc.ops.positions import (
    positions_from_mask,
    positions_from_segments,
)
from keras_posenc.positional.attention_kinds import CombinedPosition
from keras_posenc.positional.biases import (
    ContextualBias,
    DisentangledBias,
    FireBias,
    ForgettingBias,
    KerpleBias,
    RelativePositionEmbedding,
    TransformerXLBias,
)
from keras_posenc.positional.positional_encoding import IndexEncoding
from keras_posenc.positional.rotations import (
    AttentionTemperature,
    FourierEmbedding,
    PolarEmbedding,
    ScalableSoftmax,
    XPosEmbedding,
)

__all__ = [
    "AttentionTemperature",
    "CombinedPosition",
    "ContextualBias",
    "DisentangledBias",
    "FireBias",
    "ForgettingBias",
    "FourierEmbedding",
    "IndexEncoding",
    "KerpleBias",
    "PolarEmbedding",
    "RelativePositionEmbedding",
    "ScalableSoftmax",
    "TransformerXLBias",
    "XPosEmbedding",
    "positions_from_mask",
    "positions_from_segments",
]
