"""Positions that add terms to the scores of attention."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import check_bool, check_choice
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.attention import matmul_by_groups
from keras_posenc.ops.broadcasting import spread
from keras_posenc.ops.distances import (
    arithmetic_dtype,
    clipped_index,
    distances,
    matmul_rows_of_heads,
    nan_where_unknown,
    sum_by_distance,
    take_by_distance,
    take_rows_as_heads,
)
from keras_posenc.ops.initializers import add_weight_of
from keras_posenc.ops.named import keep_arguments
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.sinusoids import Phases
from keras_posenc.positional.attention_position import OwnPosition


class _Bias(OwnPosition):
    """Base of those that depend on the distance of a query and a key."""

    def _distances(self, queries: Any, keys: Any, dtype: str) -> Any:
        """Returns distances, `(batch, query, key)`, of two sides' positions."""
        return distances(
            queries, keys, bidirectional=self.bidirectional, dtype=dtype
        )

    def _rows(self, queries: Any, keys: Any, dtype: str) -> Any:
        """Returns the row of each distance in a table, as `clipped_index`."""
        return clipped_index(
            queries, keys, max_distance=self.max_distance, exact=dtype
        )


# 2 / (2 n + 1) of the series of log1p(e) in e / (2 + e), which is at most 1/3:
# what follows is below 2**-26 of the sum.
_TERMS = (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)


def log_gates(x: Any) -> Any:
    """Returns log(sigmoid(x)), to float32 accuracy also where it is near 0.

    `log(1 + e)` would round what a gate near 1 forgets, and sums of many such
    gates would be wrong; mobile runtimes have no `log1p`.
    """
    positive = x > 0
    below = ops.where(positive, ops.zeros_like(x), x)
    share = ops.exp(ops.where(positive, -x, x))
    y = share / (2 + share)
    square = y * y
    series = _TERMS[0] * square + _TERMS[1]
    for term in _TERMS[2:]:
        series = series * square + term
    return below - y * series


@keras.saving.register_keras_serializable(package="keras_posenc")
class AlibiBias(_Bias):
    """Scores fall linearly with the distance, with a slope for each head.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> layer = kp.SelfAttention(12, attention=kp.AlibiBias())
    >>> tuple(layer(np.ones((2, 10, 24), "float32")).shape)
    (2, 10, 24)

    Head `h` of `n` has the slope `2 ** (-alibi_bias_max * h / n)`, counted
    from 1; numbers of heads that are not a power of two have the slopes of the
    published code. The layer has no weights and works for any length. Distances
    are integers, or float32 if positions are floats, whatever the compute
    dtype.

    Args:
        alibi_bias_max: The last slope is 2 to the power of minus this.
        bidirectional: Whether scores also fall towards later keys, as needed
            in an encoder. If False, later keys have distance 0: for use with
            `use_causal_mask=True`, where it has no effect.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    References:
        - [Press et al., 2021](https://arxiv.org/abs/2108.12409)
    """

    def __init__(
        self,
        alibi_bias_max: float = 8.0,
        *,
        bidirectional: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        dtype = arithmetic_dtype(query)
        distance = self._distances(query_positions, key_positions, dtype)
        slopes = alibi_slopes(query.shape[1], self.alibi_bias_max)
        # (batch, 1, query, key) * (heads, 1, 1)
        return ops.expand_dims(distance, 1) * ops.convert_to_tensor(
            -slopes.reshape(-1, 1, 1), dtype=dtype
        )


def alibi_slopes(num_heads: int, alibi_bias_max: float = 8.0) -> np.ndarray:
    """Returns a slope for each head: a geometric series, float64 `(heads,)`.

    If the number of heads is not a power of two, the slopes are those of the
    next lower power, and every other one of the next higher power.
    """
    power = 2 ** int(math.log2(num_heads))
    exponents = np.concatenate(
        [
            np.arange(1, power + 1) / power,
            np.arange(1, 2 * power, 2) / (2 * power),
        ]
    )
    return 2.0 ** (-alibi_bias_max * exponents[:num_heads])


@keras.saving.register_keras_serializable(package="keras_posenc")
class KerpleBias(_Bias):
    """Scores fall with the distance, along a curve that each head learns.

    >>> import keras_posenc as kp
    >>> position = kp.positions.KerpleBias()
    >>> layer = kp.SelfAttention(4, attention=position)

    `-scale * log(1 + rate * distance)`, or `-scale * distance ** exponent`,
    with two numbers for each head, for any length. Scale and rate are
    exponentials of the weights, and the exponent is twice their sigmoid: so
    they stay in the ranges for which the paper defines its kernels. All are 1
    initially.

    Args:
        variant: `"log"`, which the paper found best, or `"power"`.
        bidirectional: Whether scores also fall towards later keys. If False,
            later keys have distance 0: for use with `use_causal_mask=True`.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another number of heads than built for.

    References:
        - [Chi et al., 2022](https://arxiv.org/abs/2205.09921)
    """

    def __init__(
        self,
        variant: str = "log",
        *,
        bidirectional: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        self.variant = check_choice("variant", variant, ("log", "power"))

    def build(self, input_shape: Any) -> None:
        is_log = self.variant == "log"
        for name in ("log_scale", "log_rate" if is_log else "exponent_logit"):
            weight = self.add_weight(
                shape=(input_shape[1],), initializer="zeros", name=name
            )
            setattr(self, name, weight)

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        check_built_for(self, "heads", self.log_scale.shape[0], query.shape[1])
        dtype = arithmetic_dtype(query)
        distance = self._distances(query_positions, key_positions, dtype)
        distance = ops.expand_dims(distance, 1)
        # (heads,) -> (heads, 1, 1)
        log_scale, curve = (
            ops.expand_dims(ops.cast(weight, dtype), (1, 2))
            for weight in self.weights
        )
        if self.variant == "log":
            return -ops.exp(log_scale) * ops.log(1 + ops.exp(curve) * distance)
        apart = distance > 0
        # Not 0: its logarithm would have no gradient, even where it is not
        # used. Not a power of NaN: LiteRT's exponential fails.
        safe = ops.where(apart, distance, ops.ones_like(distance))
        power = ops.exp(2 * ops.sigmoid(curve) * ops.log(safe))
        return nan_where_unknown(
            -ops.exp(log_scale)
            * ops.where(apart, power, ops.zeros_like(power)),
            query_positions,
            key_positions,
        )


@keras.saving.register_keras_serializable(package="keras_posenc")
class FireBias(_Bias):
    """Computes each head's bias with a small network of the distance.

    >>> import keras_posenc as kp
    >>> position = kp.positions.FireBias()
    >>> layer = kp.SelfAttention(4, attention=position)

    The network's input is `log(1 + c distance) / log(1 + c reach)`, a number
    from 0 to 1 for a text of any length. `reach` is how far the query could
    look back, which is its own position, or a learned threshold if that is
    larger. `c` is learned, as a logarithm like the threshold, so that both stay
    positive. The last layer of the network has no bias, which would not change
    a softmax. The paper is about causal models. For later keys
    (`bidirectional=True`) the distance is absolute, and `reach` is the position
    of the later of the two, which does not change earlier keys.

    Unlike in other kinds of relative positions, the bias of two tokens depends
    on their positions, not only on the distance: `positions` should count
    from 0.

    Args:
        hidden_dim: Width of the network's one hidden layer.
        initial_threshold: The initial threshold, in tokens.
        bidirectional: Whether later keys have distances. If False, they have
            distance 0: for use with `use_causal_mask=True`.
        kernel_initializer: Initializer of the network's kernels.
        kernel_regularizer: Regularizer of both kernels, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another number of heads than built for.

    References:
        - [Li et al., 2023](https://arxiv.org/abs/2310.04418)
    """

    is_absolute = True

    def __init__(
        self,
        hidden_dim: int = 32,
        *,
        initial_threshold: float = 512.0,
        bidirectional: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())

    def build(self, input_shape: Any) -> None:
        for name, shape, initializer in (
            ("log_rate", (), keras.initializers.Constant(math.log(0.1))),
            ("log_threshold_factor", (), "zeros"),
            ("hidden_kernel", (1, self.hidden_dim), None),
            ("hidden_bias", (self.hidden_dim,), "zeros"),
            ("output_kernel", (self.hidden_dim, input_shape[1]), None),
        ):
            if initializer is None:
                weight = add_weight_of(self, name, shape)
            else:
                weight = self.add_weight(
                    shape=shape, initializer=initializer, name=name
                )
            setattr(self, name, weight)

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        heads = self.output_kernel.shape[1]
        check_built_for(self, "heads", heads, query.shape[1])
        dtype = arithmetic_dtype(query)
        log_rate, log_factor, hidden_kernel, hidden_bias, output_kernel = (
            ops.cast(weight, dtype) for weight in self.weights
        )
        reach = ops.expand_dims(ops.cast(query_positions, dtype), -1)
        if self.bidirectional:
            later = ops.expand_dims(ops.cast(key_positions, dtype), -2)
            reach = ops.maximum(reach, later)
        threshold = self.initial_threshold * ops.exp(log_factor)
        reach = ops.maximum(reach, threshold)
        distance = self._distances(query_positions, key_positions, dtype)
        rate = ops.exp(log_rate)
        # The published code's 1e-6, against a division of 0 by 0.
        share = ops.log(1 + rate * distance) / (
            ops.log(1 + rate * reach) + 1e-6
        )
        # (batch, query, key) -> (batch, query, key, hidden)
        hidden = ops.relu(
            ops.expand_dims(share, -1) * hidden_kernel[0] + hidden_bias
        )
        return ops.transpose(ops.matmul(hidden, output_kernel), (0, 3, 1, 2))


@keras.saving.register_keras_serializable(package="keras_posenc")
class RelativePositionBias(_Bias):
    """Adds a learned number to each score, by bucket of distances and head.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> encoder = kp.TransformerEncoder(
    ...     2, num_heads=4, attention=kp.RelativePositionBias()
    ... )
    >>> tuple(encoder(np.ones((2, 10, 64), "float32")).shape)
    (2, 10, 64)

    Half of the buckets hold one distance each, the others ranges that grow
    geometrically; the last one holds `max_distance` and all beyond. T5 shares
    one such layer between all its blocks. Float positions count by the whole
    part of their difference.

    Args:
        num_buckets: Number of buckets; even with `bidirectional`, half of them
            for later keys.
        max_distance: From this distance on all share a bucket; above the
            number of buckets with one distance each.
        bidirectional: Whether later keys have buckets. If False, they have
            distance 0: for use with `use_causal_mask=True`.
        embeddings_initializer: Initializer of the numbers.
        embeddings_regularizer: Regularizer of the numbers, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another number of heads than built for.

    References:
        - [Raffel et al., 2019](https://arxiv.org/abs/1910.10683)
    """

    def __init__(
        self,
        num_buckets: int = 32,
        *,
        max_distance: int = 128,
        bidirectional: bool = True,
        embeddings_initializer: Any = "random_normal",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        directions = 2 if self.bidirectional else 1
        if self.num_buckets % directions or self.num_buckets < 2 * directions:
            raise ValueError(
                f"`num_buckets` must be at least {2 * directions}"
                + (", and even," if self.bidirectional else "")
                + f" with bidirectional={self.bidirectional}. "
                f"Received: num_buckets={num_buckets}"
            )
        exact = self.num_buckets // directions // 2
        if self.max_distance <= exact:
            raise ValueError(
                f"`max_distance` must be above {exact}, the number of buckets "
                f"with one distance each. Received: max_distance={max_distance}"
                f", num_buckets={num_buckets}"
            )

    def build(self, input_shape: Any) -> None:
        shape = self.num_buckets, input_shape[1]
        self.embeddings = add_weight_of(self, "embeddings", shape)

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        check_built_for(self, "heads", self.embeddings.shape[1], query.shape[1])
        # (rows, heads): first by distance, then for each pair of tokens.
        by_distance = ops.take(
            self.embeddings, ops.convert_to_tensor(self._buckets()), axis=0
        )
        bias = take_rows_as_heads(
            by_distance,
            self._rows(query_positions, key_positions, arithmetic_dtype(query)),
        )
        return nan_where_unknown(bias, query_positions, key_positions)

    def _buckets(self) -> np.ndarray:
        """Returns T5's bucket of each relative position, key minus query.

        Half of the buckets hold one distance each, the other half ranges that
        grow geometrically; if bidirectional, the upper half of all buckets is
        for later keys. int32, from `-max_distance` to `max_distance`.
        """
        count = self.num_buckets
        relative = np.arange(-self.max_distance, self.max_distance + 1)
        offset = np.zeros_like(relative)
        distance = np.maximum(-relative, 0)
        if self.bidirectional:
            count //= 2
            offset = np.where(relative > 0, count, 0)
            distance = np.abs(relative)
        exact = count // 2
        # In float32, as published, since distances may lie exactly between two
        # buckets. The logarithm is rounded once, so all machines agree.
        ratio = np.maximum(distance, exact).astype("float32")
        ratio /= np.float32(exact)
        logarithm = np.log(ratio.astype("float64")).astype("float32")
        share = logarithm / np.float32(math.log(self.max_distance / exact))
        far = exact + (share * np.float32(count - exact)).astype("int64")
        far = np.minimum(far, count - 1)
        bucket = offset + np.where(distance < exact, distance, far)
        return bucket.astype("int32")


@keras.saving.register_keras_serializable(package="keras_posenc")
class RelativePositionEmbedding(_Bias):
    """Adds learned vectors of the distance to keys and values.

    >>> import keras_posenc as kp
    >>> position = kp.positions.RelativePositionEmbedding(16)
    >>> layer = kp.SelfAttention(4, attention=position)

    The score of a query and a key gains `query · a[distance]`, and the output
    for a query gains the weighted sum of `b[distance]`. Distances are clipped
    to `max_distance` on both sides, and all heads share the tables. No tensor
    has a vector for each pair of tokens: scores are looked up by distance, and
    weights are summed by distance.

    Args:
        max_distance: From this distance on all share a vector.
        values: Whether to add vectors to values, not only to keys. Without,
            the attention may run as one fused operation.
        embeddings_initializer: Initializer of both tables.
        embeddings_regularizer: Regularizer of both tables, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another width than built for.

    References:
        - [Shaw et al., 2018](https://arxiv.org/abs/1803.02155)
    """

    def __init__(
        self,
        max_distance: int,
        *,
        values: bool = True,
        embeddings_initializer: Any = "glorot_uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        self.has_values = check_bool("values", values)
        if not self.has_values:
            # None: the hook is absent.
            self.values = None  # type: ignore[method-assign, assignment]

    def build(self, input_shape: Any) -> None:
        shape = 2 * self.max_distance + 1, input_shape[-1]
        self.key_embeddings = add_weight_of(self, "key_embeddings", shape)
        if self.has_values:
            self.value_embeddings = add_weight_of(
                self, "value_embeddings", shape
            )

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        dtype = arithmetic_dtype(query)
        table = ops.cast(self.key_embeddings, dtype)
        check_built_for(self, "width", table.shape[-1], query.shape[-1])
        # (batch, heads, query, dim) -> (batch, heads, query, rows)
        scores = ops.matmul(ops.cast(query, dtype), ops.transpose(table))
        return nan_where_unknown(
            take_by_distance(
                scores, self._rows(query_positions, key_positions, dtype)
            ),
            query_positions,
            key_positions,
        )

    def values(
        self, weights: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        dtype = arithmetic_dtype(weights)
        table = ops.cast(self.value_embeddings, dtype)
        sums = sum_by_distance(
            ops.cast(weights, dtype),
            self._rows(query_positions, key_positions, dtype),
            rows=table.shape[0],
        )
        # (batch, heads, query, rows) -> (batch, heads, query, dim)
        return ops.matmul(sums, table)

    def get_config(self) -> dict[str, Any]:
        # The attribute `values` is the hook.
        return {**super().get_config(), "values": self.has_values}


@keras.saving.register_keras_serializable(package="keras_posenc")
class DisentangledBias(_Bias):
    """Adds scores between contents and distances, for query and for key.

    >>> import keras_posenc as kp
    >>> position = kp.positions.DisentangledBias(16, max_distance=64)
    >>> attention = kp.SelfAttention(4, attention=position)

    Each bucket of distances has two learned vectors for each head. The score
    of a query and a key gains the product of the query with the first vector
    of their bucket, and of the key with the second one. On each side,
    `num_buckets // 2` distances have a bucket each; the other buckets are
    ranges that grow geometrically up to `max_distance`. Float positions count
    by the whole part of their difference.

    Args:
        num_buckets: Number of buckets on each side, at least 4.
        max_distance: From this distance on all share a bucket; above
            `num_buckets // 2 + 1`.
        embeddings_initializer: Initializer of the vectors.
        embeddings_regularizer: Regularizer of the vectors, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of another
            shape than built for.

    References:
        - [He et al., 2020](https://arxiv.org/abs/2006.03654)
    """

    def __init__(
        self,
        num_buckets: int = 256,
        *,
        max_distance: int = 512,
        embeddings_initializer: Any = "glorot_uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        if num_buckets < 4:
            raise ValueError(
                "`num_buckets` must be at least 4. "
                f"Received: num_buckets={num_buckets}"
            )
        if max_distance <= num_buckets // 2 + 1:
            raise ValueError(
                f"`max_distance` must be above {num_buckets // 2 + 1}, one "
                "more than the distances with a bucket each. Received: "
                f"max_distance={max_distance}, num_buckets={num_buckets}"
            )

    def build(self, input_shape: Any) -> None:
        _, heads, _, dim = input_shape
        shape = 2 * self.num_buckets, heads, dim
        # For queries, and for keys.
        self.key_embeddings = add_weight_of(self, "key_embeddings", shape)
        self.query_embeddings = add_weight_of(self, "query_embeddings", shape)

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        dtype = arithmetic_dtype(query)
        shape = (query.shape[1], query.shape[-1])
        known = tuple(self.key_embeddings.shape[1:])
        check_built_for(self, "(heads, width)", known, shape)
        distance = self._rows(query_positions, key_positions, dtype)
        buckets = ops.convert_to_tensor(self._buckets())
        index = ops.take(buckets, distance, axis=0)  # (batch, query, key)
        by_query = take_by_distance(
            matmul_rows_of_heads(
                ops.cast(query, dtype), ops.cast(self.key_embeddings, dtype)
            ),
            index,
        )
        # Queries are scaled, so what is used in their place must be too.
        table = ops.cast(self.query_embeddings, dtype) * shape[1] ** -0.5
        by_key = take_by_distance(
            matmul_rows_of_heads(ops.cast(key, dtype), table),
            ops.transpose(index, (0, 2, 1)),
        )
        return nan_where_unknown(
            by_query + ops.transpose(by_key, (0, 1, 3, 2)),
            query_positions,
            key_positions,
        )

    def _buckets(self) -> np.ndarray:
        """Returns DeBERTa's bucket of each relative position, key minus query.

        Up to half of the buckets of a side hold one distance each, the others
        ranges that grow geometrically up to `max_distance`. int32, from
        `-max_distance` to `max_distance`, in `[0, 2 * num_buckets)`.
        """
        # The paper's relative position is query minus key.
        relative = -np.arange(-self.max_distance, self.max_distance + 1)
        exact = self.num_buckets // 2
        distance = np.maximum(np.abs(relative), exact).astype("float64")
        share = np.log(distance / exact)
        share /= math.log((self.max_distance - 1) / exact)
        # Rounded up, as published; without rounding errors of whole numbers.
        far = exact + np.ceil((share * (exact - 1)).astype("float32"))
        bucket = np.where(
            np.abs(relative) <= exact, relative, np.sign(relative) * far
        )
        index = np.clip(bucket + self.num_buckets, 0, 2 * self.num_buckets - 1)
        return index.astype("int32")


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerXLBias(OwnPosition):
    """Adds scores of the distance: for each query, and for all queries.

    >>> import keras_posenc as kp
    >>> position = kp.positions.TransformerXLBias()
    >>> layer = kp.SelfAttention(4, attention=position)

    The score `(q · k + u · k + (q + v) · W R(i - j)) / sqrt(dim)` of a query
    at `i` and a key at `j` has a content bias `u` and a position bias `v` of
    each head, and a projection `W` of the sinusoidal encoding `R` of the
    distance. It works for any length and any positions. `i` and `j` are
    encoded separately, which costs a product as wide as the encoding in each
    head, and needs no shift.

    Args:
        encoding_dim: Width of the encoding, even; by default that of all heads
            together, as in the paper. A smaller one is faster.
        max_wavelength: The base of the progression of wavelengths, at least 1.
        kernel_initializer: Initializer of the projection.
        bias_initializer: Initializer of the two biases.
        kernel_regularizer: Regularizer of the projection, or None.
        bias_regularizer: Regularizer of the two biases, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, an odd width, or
            queries of another shape than built for.

    References:
        - [Dai et al., 2019](https://arxiv.org/abs/1901.02860)
    """

    def __init__(
        self,
        encoding_dim: int | None = None,
        *,
        max_wavelength: float = 10000,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        if self.encoding_dim is not None and self.encoding_dim % 2:
            raise ValueError(
                "`encoding_dim` must be even: a cosine for each sine. "
                f"Received: encoding_dim={encoding_dim}"
            )

    def build(self, input_shape: Any) -> None:
        _, heads, _, dim = input_shape
        width = self.encoding_dim or heads * dim
        if width % 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' needs an even width, or "
                "an `encoding_dim`. Received: "
                f"{heads} heads of {dim} features each"
            )
        self.kernel = add_weight_of(self, "kernel", (width, heads * dim))
        self.content_bias, self.position_bias = (
            add_weight_of(self, name, (heads, dim))
            for name in ("content_bias", "position_bias")
        )

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        batch, heads, _, dim = ops.shape(query)
        check_built_for(
            self, "(heads, width)", tuple(self.content_bias.shape), (heads, dim)
        )
        dtype = arithmetic_dtype(query)
        # Scaled, as queries are.
        content, position = (
            ops.expand_dims(ops.cast(bias, dtype) * dim**-0.5, (0, 2))
            for bias in (self.content_bias, self.position_bias)
        )
        by_position = self._by_position(
            ops.cast(query, dtype) + position,
            query_positions,
            key_positions,
            dtype,
        )
        # (batch, heads, 1, dim) by the keys -> (batch, heads, 1, key).
        # Transposed here: tf2onnx forgets to transpose a product's input in a
        # branch of a condition.
        by_content = matmul_by_groups(
            ops.broadcast_to(content, (batch, heads, 1, dim)),
            ops.swapaxes(ops.cast(key, dtype), -1, -2),
        )
        return by_position + by_content

    def _by_position(
        self, query: Any, query_positions: Any, key_positions: Any, dtype: str
    ) -> Any:
        """Returns products of queries with the encoding of each distance.

        That is query · (W R(i - j)). The paper computes R for all distances,
        and shifts each row of scores into place. But the encoding of a
        difference follows from those of its ends:

            sin (i - j) w = sin i w cos j w - cos i w sin j w
            cos (i - j) w = cos i w cos j w + sin i w sin j w

        So the scores are one matrix product, of queries rotated by the encoding
        of i with the encodings of j.
        """
        batch, heads, queries, dim = ops.shape(query)
        width = self.kernel.shape[0]
        kernel = ops.reshape(ops.cast(self.kernel, dtype), (width, heads, dim))
        by_sine, by_cosine = ops.split(
            matmul_rows_of_heads(query, kernel), 2, axis=-1
        )
        rates = frequencies(width, max_wavelength=self.max_wavelength)
        phases = Phases(rates, dtype=dtype)
        sine, cosine = (
            ops.expand_dims(part, 1) for part in phases.at(query_positions)
        )
        # Axes are counted from the first: within branches, Keras's exporter to
        # ONNX does not know how many there are.
        left = ops.concatenate(
            [
                by_cosine * sine - by_sine * cosine,
                by_sine * sine + by_cosine * cosine,
            ],
            axis=3,
        )
        right = ops.concatenate(phases.at(key_positions), axis=2)
        keys = ops.shape(right)[1]
        right = spread(right, (batch, keys))
        # (batch, heads * query, width) by (batch, width, key)
        scores = ops.matmul(
            ops.reshape(left, (batch, heads * queries, width)),
            ops.transpose(right, (0, 2, 1)),
        )
        return ops.reshape(scores, (batch, heads, queries, keys))


@keras.saving.register_keras_serializable(package="keras_posenc")
class ContextualBias(OwnPosition):
    """Each query counts back over the keys that matter to it, such as words.

    >>> import keras_posenc as kp
    >>> position = kp.positions.ContextualBias()
    >>> layer = kp.SelfAttention(4, attention=position)

    A key counts by the sigmoid of its score, and its position is the sum of
    these from the key up to the query. The score gains the product of the
    query with the learned vector of that position, interpolated between the
    vectors of the next whole positions. For causal attention. `positions` have
    no effect, only the order of the tokens. It computes the scores twice, and
    looks up two numbers for each pair of tokens.

    Args:
        max_position: From this position on, all share a vector.
        embeddings_initializer: Initializer of the vectors, which all heads
            share.
        embeddings_regularizer: Regularizer of the vectors, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument; queries of another width than built
            for; attention that is not causal.

    References:
        - [Golovneva et al., 2024](https://arxiv.org/abs/2405.18719)
    """

    causal_only = True

    def __init__(
        self,
        max_position: int = 64,
        *,
        embeddings_initializer: Any = "zeros",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())

    def build(self, input_shape: Any) -> None:
        shape = self.max_position + 1, input_shape[-1]
        self.embeddings = add_weight_of(self, "embeddings", shape)

    def contextual_bias(
        self,
        query: Any,
        key: Any,
        mask: Any,
        query_places: Any,
        key_places: Any,
    ) -> Any:
        width = query.shape[-1]
        check_built_for(self, "width", self.embeddings.shape[1], width)
        dtype = arithmetic_dtype(query)
        query, key = ops.cast(query, dtype), ops.cast(key, dtype)
        gates = ops.sigmoid(matmul_by_groups(query, key, transpose=True))
        if mask is not None:
            gates = ops.where(mask, gates, ops.zeros_like(gates))
        # From the last key on, not the total minus what comes before: that
        # would round the small positions of close keys in a long text.
        positions = ops.cumsum(ops.flip(gates, axis=-1), axis=-1)
        # In the paper's code queries are not scaled here.
        embeddings = ops.cast(self.embeddings, dtype) * width**0.5
        return _interpolated(
            ops.matmul(query, ops.transpose(embeddings)),
            ops.flip(positions, axis=-1),
        )


def _interpolated(scores: Any, positions: Any) -> Any:
    """Returns scores at real positions, between those of whole positions.

    Scores `(batch, heads, query, count)` are of the positions 0, 1, ...; from
    the last one on, positions `(batch, heads, query, key)` have its score.
    """
    last = scores.shape[-1] - 1
    positions = ops.where(
        positions > last, ops.full_like(positions, last), positions
    )
    floor = ops.floor(positions)
    # Clipped, since NaN may become any integer.
    below = ops.clip(ops.cast(floor, "int32"), 0, last)
    share = positions - floor
    low, high = (
        _taken(scores, index) for index in (below, ops.minimum(below + 1, last))
    )
    return high * share + low * (1 - share)


def _taken(scores: Any, index: Any) -> Any:
    """Returns, for each query and key, the score of an index of its own."""
    if 0 in scores.shape:  # JAX cannot take entries of an empty tensor
        return ops.zeros(ops.shape(index), scores.dtype)
    batch, heads, query, count = ops.shape(scores)
    rows = ops.arange(batch * heads * query, dtype="int32") * count
    flat = index + ops.reshape(rows, (batch, heads, query, 1))
    return ops.take(ops.reshape(scores, (-1,)), flat)


@keras.saving.register_keras_serializable(package="keras_posenc")
class ForgettingBias(OwnPosition):
    """Scores fall by what the tokens after a key make attention forget.

    >>> import keras_posenc as kp
    >>> position = kp.positions.ForgettingBias()
    >>> layer = kp.SelfAttention(4, attention=position)

    Each token has a forget gate in each head, the sigmoid of a linear function
    of the inputs of attention. A score gains the sum of the logarithms of the
    gates after its key, up to its query: a gate near 0 hides all that came
    before it. `positions` have no effect, only the order of the tokens;
    padding forgets nothing. A cache keeps the gates, in float32.

    Args:
        bidirectional: Whether later keys are forgotten too, by the gates after
            the query up to the key; the paper is about causal models. If
            False, later keys are not forgotten: for use with
            `use_causal_mask=True`, where it has no effect.
        kernel_initializer: Initializer of the gates' kernel.
        bias_initializer: Initializer of the gates' bias. Larger values forget
            less initially.
        kernel_regularizer: Regularizer of the gates' kernel, or None.
        bias_regularizer: Regularizer of the gates' bias, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument; inputs of another width, or queries of
            another number of heads, than built for; cross-attention.

    References:
        - [Lin et al., 2025](https://arxiv.org/abs/2503.02130)
    """

    def __init__(
        self,
        *,
        bidirectional: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())

    def build(self, input_shape: Any, tokens_shape: Any) -> None:
        heads, width = input_shape[1], tokens_shape[-1]
        self.kernel = add_weight_of(self, "kernel", (width, heads))
        self.gate_bias = add_weight_of(self, "bias", (heads,))

    def steps(self, x: Any) -> Any:
        check_built_for(self, "width", self.kernel.shape[0], x.shape[-1])
        dtype = arithmetic_dtype(x)
        kernel, bias = (
            ops.cast(weight, dtype) for weight in (self.kernel, self.gate_bias)
        )
        return log_gates(ops.matmul(ops.cast(x, dtype), kernel) + bias)

    def contextual_bias(
        self,
        query: Any,
        key: Any,
        mask: Any,
        query_places: Any,
        key_places: Any,
    ) -> Any:
        between = ops.expand_dims(query_places, -1) - ops.expand_dims(
            key_places, -2
        )
        if self.bidirectional:
            return -ops.abs(between)
        return ops.minimum(between, ops.zeros_like(between))
