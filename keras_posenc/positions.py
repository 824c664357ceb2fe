"""Kinds of positions that are used less often, and functions of positions.

    from keras_posenc import positions

Layers and attention positions of this module are options wherever those of the
package itself are.
"""

from keras_posenc.ops.positions import (
    positions_from_mask,
    positions_from_segments,
)
from keras_posenc.positional.attention_temperature import AttentionTemperature
from keras_posenc.positional.combined_position import CombinedPosition
from keras_posenc.positional.contextual_bias import ContextualBias
from keras_posenc.positional.disentangled_bias import DisentangledBias
from keras_posenc.positional.fire_bias import FireBias
from keras_posenc.positional.forgetting_bias import ForgettingBias
from keras_posenc.positional.fourier_embedding import FourierEmbedding
from keras_posenc.positional.index_encoding import IndexEncoding
from keras_posenc.positional.kerple_bias import KerpleBias
from keras_posenc.positional.polar_embedding import PolarEmbedding
from keras_posenc.positional.relative_position_embedding import (
    RelativePositionEmbedding,
)
from keras_posenc.positional.scalable_softmax import ScalableSoftmax
from keras_posenc.positional.transformer_xl_bias import TransformerXLBias
from keras_posenc.positional.xpos_embedding import XPosEmbedding

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
