"""Every kind of position by name, with arguments for a given length."""

from collections.abc import Callable

import keras

from keras_posenc.checks import check_choice
from keras_posenc.positional.alibi_bias import AlibiBias
from keras_posenc.positional.fire_bias import FireBias
from keras_posenc.positional.index_encoding import IndexEncoding
from keras_posenc.positional.kerple_bias import KerpleBias
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.positional.positional_encoding import PositionalEncoding
from keras_posenc.positional.relative_position_bias import RelativePositionBias
from keras_posenc.positional.relative_position_embedding import (
    RelativePositionEmbedding,
)
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.positional.time_encoding import TimeEncoding
from keras_posenc.positional.transformer_xl_bias import TransformerXLBias

#: Makes each kind of position for sequences of a length. Learned ones have
#: their random initial weights.
SCHEMES: dict[str, Callable[[int], keras.Layer]] = {
    "sinusoidal": lambda length: PositionalEncoding(),
    "index": lambda length: IndexEncoding(),
    "index-normalized": lambda length: IndexEncoding(normalize=True),
    "learned": lambda length: PositionEmbedding(length),
    "time": lambda length: TimeEncoding(),
    "rotary": lambda length: RotaryEmbedding(),
    "alibi": lambda length: AlibiBias(),
    "t5": lambda length: RelativePositionBias(),
    "shaw": lambda length: RelativePositionEmbedding(max_distance=16),
    "transformer-xl": lambda length: TransformerXLBias(),
    "kerple": lambda length: KerpleBias(),
    "fire": lambda length: FireBias(),
}


def make_scheme(name: str, length: int) -> keras.Layer:
    """Returns a layer of a kind of position.

    Args:
        name: One of `SCHEMES`.
        length: The longest sequence, for kinds that need to know.

    Raises:
        ValueError: An unknown name.

    Example:
    >>> from keras_posenc.analysis import make_scheme
    >>> type(make_scheme("rotary", 128)).__name__
    'RotaryEmbedding'
    """
    return SCHEMES[check_choice("scheme", name, tuple(SCHEMES))](length)
