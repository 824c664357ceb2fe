"""The layer that adds positions to the embeddings of a model."""

import inspect
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.keras_internals import carried_mask
from keras_posenc.ops.positions import positions_from_mask
from keras_posenc.positional._merged_encoding import TokenEncoding, Tokens
from keras_posenc.positional.attention_kinds import advice_for
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.positional.positional_encoding import PositionalEncoding


def check_input_position(
    value: Any,
    dtype: Any,
    *,
    name: str = "input_position",
    scaled: bool = False,
) -> keras.Layer | None:
    """Returns the layer given, also by name or config, or None.

    `scaled` is whether the model multiplies the embeddings itself.
    """
    if value == "sinusoidal":
        layer = name.replace("input_position", "positional_encoding")
        return PositionalEncoding(dtype=dtype, name=layer)
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    is_layer = isinstance(value, keras.Layer)
    if value is None or (is_layer and not isinstance(value, AttentionPosition)):
        if scaled and getattr(value, "scale_inputs", False):
            raise ValueError(
                f"`{name}` would scale embeddings that the model scales "
                "already: give one of the two scale_inputs=False"
            )
        return value
    raise ValueError(
        f"`{name}` must be a layer, 'sinusoidal' or None. "
        f"Received: {name}={value!r}{advice_for(name, value)}"
    )


def put_in(
    position: keras.Layer | None,
    x: Any,
    *,
    name: str,
    mask: Any = None,
    as_cached: bool = False,
) -> Any:
    """Adds positions to embeddings, `(batch, seq, dim)`.

    A `mask` is that of tokens with positions, where it is not that of `x`. Of a
    model that also computes token by token, positions are `as_cached`: a cache
    counts the real tokens only, whatever layer encodes them.
    """
    if position is None:
        return x
    tokens = carried_mask(x)
    if as_cached and tokens is not None and counts_all(position):
        x = position(x, positions=positions_from_mask(tokens))
    else:
        x = position(x) if mask is None else position(x, mask=mask)
    if len(x.shape) != 3:
        raise ValueError(
            f"`{name}` must give (batch, seq, dim). Received: "
            f"{name}={position!r}, which gives {tuple(x.shape)}"
        )
    return x


def counts_all(position: keras.Layer) -> bool:
    """Returns whether a layer counts padding too, unless it gets positions."""
    return not getattr(position, "skip_masked", False) and _takes(position)


def check_cacheable(position: keras.Layer | None, max_length: Any) -> None:
    """Raises `ValueError` unless tokens can be encoded one after another."""
    if position is None:
        return
    kind = f"{type(position).__name__} as `input_position`"
    if getattr(position, "normalize", False):
        raise ValueError(
            f"{kind} with normalize=True divides by the text's length, which "
            "is not known before its end: it cannot be cached"
        )
    if not isinstance(position, TokenEncoding) and not _takes(position):
        raise ValueError(
            f"{kind} has no call argument `positions` for the position of a "
            "single token: it cannot be cached"
        )
    check_table(position, max_length, f"max_length={max_length}")


def check_table(
    position: keras.Layer | None, length: Any, received: str
) -> None:
    """Raises `ValueError` for more tokens than a table has positions."""
    if is_beyond(position, length):
        raise ValueError(
            "PositionEmbedding as `input_position` learned only "
            f"{table_size(position)} positions. Shorten the text, give a "
            "smaller `max_length`, or use `resized` to make a layer for longer "
            f"inputs. Received: {received}"
        )


def table_size(position: keras.Layer | None) -> int | None:
    """Returns how many positions a table has; None for any other layer."""
    if isinstance(position, PositionEmbedding):
        return position.sequence_length
    return None


def is_beyond(position: keras.Layer | None, length: Any) -> bool:
    """Returns whether a table has fewer positions than `length`, if known."""
    size = table_size(position)
    return size is not None and isinstance(length, int) and length > size


def table_of(position: keras.Layer | None, width: int, length: Any) -> Any:
    """Computes the encodings of the first positions, `(length, ...)`.

    None for another layer than a `TokenEncoding`. Of a shorter table, all that
    it has, and NaN for any further position: slots of padding need none of
    their own. The length may be a scalar tensor.
    """
    if not isinstance(position, TokenEncoding):
        return None  # its encoding needs its inputs
    beyond = is_beyond(position, length)
    length = table_size(position) if beyond else length
    counted = (
        np.arange(length, dtype="int32")
        if isinstance(length, int)
        else ops.arange(length, dtype="int32")
    )
    inputs = ops.zeros((1, 1, width), position.compute_dtype)
    table = position.encode(inputs, Tokens(ops.convert_to_tensor(counted)))
    if beyond:
        table = ops.pad(table, ((0, 1), (0, 0)), constant_values=np.nan)
    return ops.cast(table, position.compute_dtype)


def put_in_at(
    position: keras.Layer | None, x: Any, *, positions: Any, table: Any
) -> Any:
    """Adds the encodings of `positions`, `(batch, seq)`, to embeddings."""
    if position is None:
        return x
    if table is None:
        if not getattr(position, "skip_masked", False):
            return position(x, positions=positions)
        # A call takes no positions then: the layer would count them itself.
        assert isinstance(position, TokenEncoding)
        encoding = position.encode(x, Tokens(positions))
        encoding = ops.cast(encoding, position.compute_dtype)
        return position.merge(x, encoding, False)
    assert isinstance(position, TokenEncoding)
    if is_beyond(position, table.shape[0]):
        positions = ops.minimum(positions, table.shape[0] - 1)
    return position.merge(x, ops.take(table, positions, axis=0), False)


def _takes(position: keras.Layer) -> bool:
    return "positions" in inspect.signature(position.call).parameters
