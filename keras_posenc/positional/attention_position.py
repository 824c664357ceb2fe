"""The three places where a position can enter attention."""

from collections.abc import Callable
from typing import Any, ClassVar

import keras

from keras_posenc.ops.named import NamedArguments


class AttentionPosition(NamedArguments, keras.Layer):
    """Base class of positions inside attention.

    A subclass defines any of three hooks as methods; a hook that stays None is
    absent and costs nothing. Where `values` is absent, attention may run as
    one fused operation.

    - `rotate(x, positions)`: queries or keys, `(batch, heads, seq, dim)`, in,
      and the same shape out; for rotary embeddings.
    - `bias(query, key, query_positions, key_positions)`: a term of the scores
      of rank 4 that broadcasts to `(batch, heads, query, key)`. `query` is
      scaled by `1 / sqrt(dim)`, `(batch, heads, query, dim)`; `key` is not,
      and may have fewer heads, `(batch, key_value_heads, key, dim)`.
    - `values(weights, query_positions, key_positions)`: an addition to the
      attended values, `(batch, heads, query, dim)`, from the weights
      `(batch, heads, query, key)`.

    Positions come as `(1, seq)` or `(batch, seq)`, integers or reals, and
    queries and keys apart: nothing here assumes that they are the same
    sequence. `build(input_shape)` receives the shape of the queries,
    `(batch, heads, seq, dim)`. One layer may serve several blocks, which then
    share its weights: those of a `TransformerEncoder` share it after saving
    and loading too, while blocks of one's own each load a copy.

    Padded tokens stand at 0, whatever `positions` says of them. Where
    `uses_length` is True, an answer for one token depends on how far the
    others go, and padding that was counted stands at 0 as well, for all
    positions of the same encoder.

    A hook may compute in whatever dtype it needs, and its result is cast to
    the attention's. Its weights come in their own dtype, float32 under a mixed
    policy too: positions do not survive a lower one.

    A hook draws no random numbers and changes no variable: training on long
    texts computes it twice, block by block, and must find the same.

    A subclass that is to be saved is registered with Keras, and says in
    `get_config` what its constructor takes, as any layer of one's own.

    Example:
    >>> import keras
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> @keras.saving.register_keras_serializable(package="mine")
    ... class Nearness(kp.AttentionPosition):
    ...     def bias(self, query, key, query_positions, key_positions):
    ...         distance = ops.abs(
    ...             ops.expand_dims(query_positions, -1)
    ...             - ops.expand_dims(key_positions, -2)
    ...         )
    ...         return -ops.cast(ops.expand_dims(distance, 1), query.dtype)
    >>> layer = kp.SelfAttention(num_heads=2, attention_position=Nearness())
    >>> tuple(layer(ops.ones((1, 5, 8))).shape)
    (1, 5, 8)
    """

    rotate: ClassVar[Callable[..., Any] | None] = None
    bias: ClassVar[Callable[..., Any] | None] = None
    values: ClassVar[Callable[..., Any] | None] = None
    uses_length: bool = False

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        # A hook is called by whichever layer attends, whose autocasting would
        # otherwise decide in what dtype the weights come.
        return super().add_weight(*args, **{"autocast": False, **kwargs})
