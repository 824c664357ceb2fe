"""Random positions in training, to prepare a model for longer sequences."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_choice, check_integer
from keras_posenc.ops.arguments import check_shape
from keras_posenc.ops.masks import resolve_mask
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments
from keras_posenc.ops.positions import (
    plain_positions,
    positions_from_mask,
    row_lengths,
    token_counts,
)

DRAWS = ("sorted", "skip")


@keras.saving.register_keras_serializable(package="keras_posenc")
class RandomizedPositions(ConfiguredLayer, keras.Layer):
    """Positions for other layers: random but sorted in training, else even.

    >>> import keras
    >>> import keras_posenc as kp
    >>> ids = keras.Input((None,), dtype="int32")
    >>> x = keras.layers.Embedding(1000, 64, mask_zero=True)(ids)
    >>> positions = kp.RandomizedPositions(2048)(x)
    >>> x = kp.PositionalEncoding()(x, positions=positions)
    >>> model = keras.Model(ids, x)

    In training each row gets as many different positions as it has tokens,
    drawn uniformly from `0 ... max_position - 1` and sorted. So a model learns
    the order of tokens, at positions that longer sequences have as well.
    Outside training, tokens have the means of such draws, rounded down: spread
    evenly over the same range, and always the same. (The paper's published
    code draws positions there too. Positions 0, 1, 2 ... would be closer
    together than in almost any draw, and so unknown to the model.)

    With `draw="skip"`, for fine-tuning a model to longer texts (PoSE), each row
    is cut in two instead: the first tokens are counted from 0, and the others
    from a random position on. All distances up to `max_position` occur, at the
    length that the model was trained on. Outside training tokens are counted
    from 0.

    Give the result as `positions` to any layer that takes them, and the same
    one to all layers of a model. A sorted draw sorts `max_position` random
    numbers for each row; exported models do not draw.

    Args:
        max_position: Number of positions to draw from; at least the length of
            every sequence, in training or not, and at most 2**24.
        draw: `"sorted"` for any different positions in training, sorted, or
            `"skip"` for two runs of consecutive ones.
        skip_masked: Whether only unmasked tokens count, as in
            `PositionalEncoding`: a masked token has the position of the last
            unmasked one before it.
        seed: Seed of the draws, an integer; random by default.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Tensor of shape `(batch, seq, ...)`, ids or embeddings: only
            its shape and mask are used.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry. Padding after the last token of a row does not
            count as length, and has the position of that token.
        training: Whether to draw.

    Returns:
        int32 `(batch, seq)`, increasing from token to token; without a mask.

    Raises:
        ValueError: An invalid argument; inputs of rank below 2, or longer than
            `max_position`. A graph with a dynamic length fails in training with
            sorted draws if it is too long, and otherwise counts from 0.

    References:
        - [Ruoss et al., 2023](https://arxiv.org/abs/2305.16843)
        - [Zhu et al., 2023](https://arxiv.org/abs/2309.10400) (skip)
    """

    def __init__(
        self,
        max_position: int,
        *,
        draw: str = "sorted",
        skip_masked: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        if self.max_position > 2**24:
            raise ValueError(
                "`max_position` must be at most 2**24, where encodings "
                f"end. Received: max_position={max_position!r}"
            )
        self.draw = check_choice("draw", draw, DRAWS)
        self.seed = None if seed is None else check_integer("seed", seed)
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.autocast = False
        self.built = True

    def call(
        self, inputs: Any, *, mask: Any = None, training: bool | None = None
    ) -> Any:
        mask = resolve_mask(mask, inputs)
        self._check_call(inputs, mask)
        batch, seq = ops.shape(inputs)[:2]
        # The index of each token in its row, and the number of tokens.
        rank, count = ops.expand_dims(plain_positions(0, seq), 0), None
        if mask is not None:
            count = (token_counts if self.skip_masked else row_lengths)(mask)
            if self.skip_masked:
                rank = positions_from_mask(mask)
            else:
                rank = ops.minimum(rank, ops.maximum(count - 1, 0))
        if training and self.draw == "skip":
            return _skipping_positions(
                keras.random.uniform(
                    (batch, 2), dtype="float32", seed=self.seed_generator
                ),
                rank=rank,
                count=ops.reshape(seq, (1, 1)) if count is None else count,
                max_position=self.max_position,
            )
        if training:
            scores = keras.random.uniform(
                (batch, self.max_position),
                dtype="float32",
                seed=self.seed_generator,
            )
            drawn = _random_positions(scores, length=seq, count=count)
            if count is None:
                return drawn
            return ops.take_along_axis(drawn, rank, axis=1)
        if self.draw == "sorted":
            count = ops.reshape(seq, (1, 1)) if count is None else count
            rank = _spread_positions(
                rank, count=count, max_position=self.max_position
            )
        return ops.broadcast_to(rank, (batch, seq))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape[:2])

    def compute_output_spec(
        self, inputs: Any, *, mask: Any = None, training: bool | None = None
    ) -> Any:
        self._check_call(inputs, mask)
        return keras.KerasTensor(inputs.shape[:2], dtype="int32")

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        return None

    def _check_call(self, inputs: Any, mask: Any) -> None:
        where = f"{type(self).__name__} '{self.name}'"
        shape = tuple(inputs.shape)
        if len(shape) < 2:
            raise ValueError(
                f"{where} expects inputs of shape (batch, seq, ...). "
                f"Received: inputs of shape {shape}"
            )
        batch, seq = shape[:2]
        sizes = {"batch": batch, "seq": seq}
        check_shape("mask", mask, ("batch", "seq"), sizes=sizes)
        if seq is not None and seq > self.max_position:
            raise ValueError(
                f"{where} draws from max_position={self.max_position} "
                "positions, and needs one for each token. "
                f"Received: inputs of length {seq}"
            )


def _random_positions(scores: Any, *, length: Any, count: Any = None) -> Any:
    """Returns sorted random positions: those of the lowest scores of a row.

    Uniformly random scores, `(batch, max_position)`, give every set of
    positions the same probability. Of the int32 `(batch, length)` positions
    only the first `count`, `(batch, 1)`, are drawn, if it is given; the rest is
    `max_position - 1`. The graph fails where `length` exceeds `max_position`.
    """
    order = ops.cast(ops.argsort(scores, axis=-1), "int32")
    drawn = order[:, :length]
    if count is not None:
        rank = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
        rest = ops.full_like(drawn, scores.shape[1] - 1)
        drawn = ops.where(rank < count, drawn, rest)
    # If there are too few, this shape makes the graph fail.
    return ops.reshape(ops.sort(drawn, axis=-1), (ops.shape(scores)[0], length))


def _skipping_positions(
    scores: Any, *, rank: Any, count: Any, max_position: int
) -> Any:
    """Returns positions that skip once, from the first tokens to the others.

    Of `n` tokens, `(batch, 1)`, the first 1 to (n + 1) // 2 are counted from 0;
    the others are moved by 0 to `max_position - n`. Both numbers follow from
    uniform scores, `(batch, 2)`. Where `n` exceeds `max_position`, tokens are
    counted from 0.
    """

    def drawn(score: Any, values: Any) -> Any:
        values = ops.maximum(values, 1)
        drawn = ops.cast(score * ops.cast(values, score.dtype), "int32")
        return ops.minimum(drawn, values - 1)  # a product may round up

    first, shift = ops.split(scores, 2, axis=1)
    count = ops.maximum(count, 1)
    begins = 1 + drawn(first, ops.floor_divide(count + 1, 2))
    shift = drawn(shift, max_position - count + 1)
    return rank + ops.where(rank >= begins, shift, ops.zeros_like(shift))


def _spread_positions(rank: Any, *, count: Any, max_position: int) -> Any:
    """Returns the means of sorted random positions, rounded down.

    Of `n` draws without repetition from `0 ... m - 1` the `k`-th, from 0 on, is
    `(k + 1) (m + 1) / (n + 1) - 1` on average: they are evenly spread. Beyond
    4,096 tokens, where a product is rounded, some may be off by one. Where `n`
    exceeds `m`, tokens are counted from 0.
    """
    gaps = ops.maximum(count, 1) + 1
    step = ops.maximum(ops.floor_divide(max_position + 1, gaps), 1)
    left = ops.maximum(max_position + 1 - step * gaps, 0)
    # In float32: the product may exceed int32.
    product = ops.cast(rank + 1, "float32") * ops.cast(left, "float32")
    more = ops.floor(product / ops.cast(gaps, "float32"))
    return (rank + 1) * step + ops.cast(more, "int32") - 1
