"""The base class of positions inside attention, with its hooks."""

import inspect
from collections.abc import Callable, Collection
from typing import Any, ClassVar

import keras
from keras import ops

from keras_posenc.ops.named import ConfiguredLayer, NamedArguments


class AttentionPosition(NamedArguments, keras.Layer):
    """Base class of positions inside attention.

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
    >>> layer = kp.SelfAttention(num_heads=2, attention=Nearness())
    >>> tuple(layer(ops.ones((1, 5, 8))).shape)
    (1, 5, 8)

    A subclass defines any of these hooks as methods; a hook that stays None is
    absent and costs nothing. Without `values`, attention may run as one fused
    operation.

    - `rotate(x, positions)`: rotates or scales queries and keys,
      `(batch, heads, seq, dim)`, and returns the same shape; or features
      `widening` times as many, if the class sets that to more than 1. With a
      third argument, `known=None`, it can share work among blocks: `turned`
      says how.
    - `rotate_keys(x, positions)`: the same for keys alone, where they need
      something else than queries.
    - `bias(query, key, query_positions, key_positions)`: returns a term of the
      scores, of rank 4, that broadcasts to `(batch, heads, query, key)`.
      Both are rotated. `query` is scaled by `1 / sqrt(dim)`,
      `(batch, heads, query, dim)`; `key` is not, and may have fewer heads,
      `(batch, key_value_heads, key, dim)`.
    - `values(weights, query_positions, key_positions)`: returns an addition to
      the outputs of attention, `(batch, heads, query, dim)`, from the weights
      `(batch, heads, query, key)`.
    - `contextual_bias(query, key, mask, query_places, key_places)`: as `bias`,
      for what depends on contents and order rather than on positions. `mask`
      says which key a query may see: bool, broadcasts to
      `(batch, heads, query, key)`, or None. Places are sums of steps up to
      each token, `(batch, heads, seq)`; without `steps` they are None.
    - `steps(x)`: how far each token moves on in each head: floats
      `(batch, seq, heads)`, from the inputs of attention, `(batch, seq, dim)`.
      Padding moves by 0. A cache keeps them, in float32 at least. `build` then
      has a second argument, `tokens_shape`: the shape of `x`.

    Positions are `(1, seq)` or `(batch, seq)`, integers or floats, given for
    queries and keys separately, which may be different sequences. A subclass
    whose `num_axes` is not None takes vectors, `(1, seq, num_axes)` or
    `(batch, seq, num_axes)`; numbers too, where `takes_numbers` stays True.
    `build(input_shape)` receives the shape of the queries,
    `(batch, heads, seq, dim)`. If `causal_only` is True, attention raises an
    error unless it is called with `use_causal_mask=True`. Several blocks may
    use one layer, and then share its weights. Those of a `TransformerEncoder`
    still share it after saving and loading; blocks in your own model each load
    a copy.

    Padding has position 0, whatever `positions` contains for it. If
    `uses_length` is True, the result for one token depends on the positions of
    the others; then padding has position 0 also where positions are counted,
    for all layers of the same encoder. If `is_absolute` is True, it depends on
    positions themselves and not on differences alone; then padding on the left
    is not counted. If `counts_keys` is True, it takes the position of a query
    for the number of keys before it, which cross-attention does not have.

    A hook may compute in any dtype; its result is cast to the attention's. Its
    weights keep their own dtype, float32 under a mixed policy too, because
    positions need that precision.

    A hook must not draw random numbers or change variables: training on long
    texts computes it twice, block by block, and both results must be equal.

    To be saved, a subclass must be registered with Keras and return its
    constructor arguments in `get_config`, as any custom layer.
    """

    rotate: ClassVar[Callable[..., Any] | None] = None
    rotate_keys: ClassVar[Callable[..., Any] | None] = None
    bias: ClassVar[Callable[..., Any] | None] = None
    values: ClassVar[Callable[..., Any] | None] = None
    contextual_bias: ClassVar[Callable[..., Any] | None] = None
    steps: ClassVar[Callable[..., Any] | None] = None
    uses_length: bool = False
    is_absolute: bool = False
    counts_keys: bool = False
    causal_only: bool = False
    num_axes: int | None = None
    takes_numbers: bool = True
    widening: int = 1

    def turned(self, hook: str, x: Any, positions: Any, known: Any) -> Any:
        """Returns what a hook of rotation does to `x`, if there is one.

        Args:
            hook: `"rotate"` or `"rotate_keys"`.
            x: As for the hook.
            positions: As for the hook.
            known: A dict that belongs to these positions. A hook with an
                argument of this name gets it, to keep there what it computes
                from them alone, for other blocks with the same dict.
        """
        rotate = getattr(self, hook) or self.rotate
        if rotate is None:
            return x
        if "known" in inspect.signature(rotate).parameters:
            return rotate(x, positions, known)
        return rotate(x, positions)

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        # A hook is called by another layer, whose autocasting would otherwise
        # decide the dtype of the weights.
        return super().add_weight(*args, **{"autocast": False, **kwargs})


class OwnPosition(ConfiguredLayer, AttentionPosition):
    """Base of the positions of this package."""

    def shared(self, known: Any, key: tuple[Any, ...], make: Any) -> Any:
        """Returns what `make()` returned for the same key in another block."""
        known = {} if known is None else known
        # The layer itself is kept too: another one could get its id.
        key = id(self), *key
        if key not in known:
            known[key] = self, make()
        return known[key][1]

    def check_pairs(self, width: Any) -> None:
        """Raises `ValueError` unless features can be rotated in pairs."""
        if not width or width % 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' rotates features in "
                "pairs: their number must be known, even and above 0. Received:"
                f" width {width} of one head"
            )


def check_position_axes(
    within: Collection[AttentionPosition],
    positions: Any,
    name: str = "positions",
) -> int | None:
    """Returns how many axes positions have; None where they are numbers.

    Raises `ValueError` if they do not suit a layer within, or are vectors that
    no layer takes.
    """
    if positions is not None and not hasattr(positions, "shape"):
        positions = ops.convert_to_tensor(positions)
    shape = None if positions is None else tuple(positions.shape)
    axes = shape[-1] if shape is not None and len(shape) == 3 else None
    row = f"batch, {'source' if 'memory' in name else 'seq'}"
    if axes is not None and not within:
        raise ValueError(
            f"`{name}` must be of shape ({row}), a number for each token, "
            "without a position that takes vectors, such as attention="
            f"keras_posenc.RotaryEmbedding(axes={axes}). Received: {name} of "
            f"shape {shape}"
        )
    for position in within:
        wanted = position.num_axes
        if axes == wanted or (axes is None and position.takes_numbers):
            continue
        received = f"{name} of shape {shape}"
        if positions is None:
            received = (
                f"no {name}, so that tokens are counted. Give what a "
                "GridPositions layer makes of images, or vectors of your own; "
                "or rotate by sections, axes={'mrope_section': [...]}, for "
                "which a number is the same on all axes"
            )
        raise ValueError(
            f"{type(position).__name__} '{position.name}' needs `{name}` of "
            f"shape ({row}"
            + ("), a number" if wanted is None else f", {wanted}), a vector")
            + f" for each token. Received: {received}"
        )
    return axes
