"""A loss of vectors, at several of their lengths."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive, check_positive_int
from keras_posenc.ops.named import NamedOptions
from keras_posenc.ops.unit_vectors import unit_vectors


@keras.saving.register_keras_serializable(package="keras_posenc")
class MatryoshkaLoss(NamedOptions, keras.losses.Loss):
    """Trains vectors whose first numbers alone are good vectors, too.

    A sum of another loss over truncated vectors: of each, the first `dim`
    numbers, divided by their length unless the loss has `similarity="dot"`.
    Search with short vectors takes less memory and time; cut them as the loss
    does, and divide them by their length. sentence-transformers'
    `MatryoshkaLoss` is the same sum, but always divides by the length.

    Args:
        loss: a `keras.losses.Loss` of vectors, such as `ContrastiveLoss`. It
            decides on reduction and dtype.
        dims: how many numbers are kept, for each term of the sum. Include the
            width of the vectors, or whole vectors are not trained.
        weights: the weight of each term; 1 if None.
        name: name of the loss.

    Call arguments:
        y_true: as for `loss`.
        y_pred: vectors of shape (..., dim).
        sample_weight: as for `loss`.

    Raises:
        ValueError: if an argument is invalid, or the vectors have fewer numbers
            than the largest of `dims`.

    Example:
        >>> import numpy as np
        >>> from keras_posenc import training
        >>> vectors = np.random.default_rng(0).normal(size=(4, 2, 8))
        >>> contrastive = training.ContrastiveLoss()
        >>> loss = training.MatryoshkaLoss(contrastive, dims=(8, 4))
        >>> both = contrastive(None, vectors) + contrastive(
        ...     None, vectors[..., :4]
        ... )
        >>> print(abs(float(loss(None, vectors)) - float(both)) < 1e-5)
        True

    References:
        - Kusupati et al. 2022, [Matryoshka Representation Learning](
          https://arxiv.org/abs/2205.13147), equation 1
    """

    def __init__(
        self,
        loss: Any,
        *,
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
        name: str = "matryoshka_loss",
    ) -> None:
        if isinstance(loss, dict):  # from a config
            loss = keras.saving.deserialize_keras_object(loss)
        if not isinstance(loss, keras.losses.Loss):
            raise ValueError(
                "`loss` must be a keras.losses.Loss, such as "
                f"training.ContrastiveLoss(). Received: loss={loss!r}"
            )
        super().__init__(name=name, reduction=loss.reduction, dtype=loss.dtype)
        self.loss = loss
        self.dims = _numbers("dims", dims, check_positive_int)
        if weights is not None:
            weights = _numbers("weights", weights, check_positive)
            if len(weights) != len(self.dims):
                raise ValueError(
                    f"`weights` must be as many as `dims`, {len(self.dims)}. "
                    f"Received: weights={weights}"
                )
        self.weights = weights

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> Any:
        vectors = ops.convert_to_tensor(y_pred)
        width = vectors.shape[-1]
        if max(self.dims) > width:
            raise ValueError(
                f"`dims` must be at most the width of the vectors, {width}. "
                f"Received: dims={self.dims}"
            )
        weights = self.weights or [1.0] * len(self.dims)
        losses = []
        for dim in self.dims:
            kept = vectors[..., :dim]
            if getattr(self.loss, "similarity", None) != "dot":
                kept = unit_vectors(kept)
            losses.append(self.loss(y_true, kept, sample_weight))
        return sum(w * x for w, x in zip(weights, losses, strict=True))

    def get_config(self) -> dict[str, Any]:
        return {
            "loss": keras.saving.serialize_keras_object(self.loss),
            "dims": self.dims,
            "weights": self.weights,
            "name": self.name,
        }


def _numbers(name: str, values: Any, check: Any) -> list[Any]:
    """Returns the values as a list of at least one checked number."""
    if not isinstance(values, Sequence) or not len(values):
        raise ValueError(
            f"`{name}` must be a sequence of at least one number. "
            f"Received: {name}={values!r}"
        )
    return [check(name, value) for value in values]
