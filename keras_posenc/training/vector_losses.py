"""Losses of vectors: contrastive, and at several of their lengths."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import (
    check_bool,
    check_choice,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.arguments import check_integers
from keras_posenc.ops.named import NamedOptions
from keras_posenc.ops.reductions import unit_vectors


@keras.saving.register_keras_serializable(package="keras_posenc")
class ContrastiveLoss(NamedOptions, keras.losses.Loss):
    """Trains an encoder to find the document of a query among others.

    >>> import keras
    >>> import numpy as np
    >>> from keras_posenc import training
    >>> encoder = keras.layers.Dense(8)
    >>> query, document = keras.Input((3,)), keras.Input((3,))
    >>> both = keras.ops.stack([encoder(query), encoder(document)], axis=1)
    >>> pairs = keras.Model([query, document], both)
    >>> pairs.compile("adam", training.ContrastiveLoss(temperature=0.05))
    >>> queries, documents = np.eye(3)[[0, 1, 1]], np.eye(3)
    >>> history = pairs.fit([queries, documents], verbose=0)

    As a function, without labels and with those of two equal documents:

    >>> loss = training.ContrastiveLoss(temperature=1.0)
    >>> vectors = np.stack([queries, documents], axis=1)
    >>> print(f"{float(loss(None, vectors)):.4f}")
    0.8848
    >>> print(f"{float(loss(np.array([0, 1, 1]), vectors)):.4f}")
    0.5193

    Each example is a query and its document. The documents of the other
    examples of the batch are its negatives, and so are hard negatives, further
    documents that each example may have. The loss of an example is the
    cross-entropy of its own document, by the softmax of all similarities over
    `temperature`. It is known as InfoNCE and, in sentence-transformers, as
    `MultipleNegativesRankingLoss`; its `scale` is 1 / `temperature`.

    The model that is trained outputs the vectors stacked, as in the example.
    They may all come from one encoder, or from several.

    Larger batches have more negatives, and train better encoders. An example
    without negatives has a loss of 0: leave out a last batch of one.

    Args:
        temperature: what similarities are divided by.
        symmetric: whether each document must find its query, too, among the
            queries of the batch. The loss is the mean of both directions.
        similarity: "cosine", or "dot" for vectors whose length matters;
            the latter wants a larger temperature, such as 1.
        reduction: as for `keras.losses.Loss`; of one number for each example.
        name: name of the loss.
        dtype: dtype of its computations, "float32" or "float64".

    Call arguments:
        y_true: None, or integer labels of shape (batch,): examples with equal
            labels are not used as negatives of each other, such as those of
            the same document. With hard negatives, also labels of all
            documents, of shape (batch, documents).
        y_pred: vectors of shape (batch, texts, dim): the query, its document,
            and any hard negatives.
        sample_weight: of shape (batch,).

    Raises:
        ValueError: if an argument is invalid, the vectors are not stacked, the
            labels do not fit, or the batch is known to have one example only
            and no hard negatives.

    References:
        - van den Oord et al. 2018, [Representation Learning with Contrastive
          Predictive Coding](https://arxiv.org/abs/1807.03748), equation 4
        - Henderson et al. 2017, [Efficient Natural Language Response Suggestion
          for Smart Reply](https://arxiv.org/abs/1705.00652), section 4.4
    """

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        symmetric: bool = False,
        similarity: str = "cosine",
        reduction: str | None = "sum_over_batch_size",
        name: str = "contrastive_loss",
        dtype: Any = "float32",
    ) -> None:
        standard = keras.backend.standardize_dtype(dtype)
        check_choice("dtype", standard, ("float32", "float64"))
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.temperature = check_positive("temperature", temperature)
        self.symmetric = check_bool("symmetric", symmetric)
        self.similarity = check_choice(
            "similarity", similarity, ("cosine", "dot")
        )

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> Any:
        vectors = ops.convert_to_tensor(y_pred)
        _check_vectors(vectors)
        # Here, since Keras casts labels to floats, which lack large integers.
        counts = _counting(y_true, vectors)
        return super().__call__(counts, vectors, sample_weight=sample_weight)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        vectors = (
            unit_vectors(y_pred) if self.similarity == "cosine" else y_pred
        )
        queries, documents = vectors[:, 0], vectors[:, 1:]
        scores = ops.einsum("id,jnd->inj", queries, documents)
        scores = scores / self.temperature
        own = ops.diagonal(scores[:, 0])
        scores = ops.where(y_true > 0, scores, float("-inf"))
        losses = ops.logsumexp(scores, axis=(1, 2)) - own
        if self.symmetric:
            backward = ops.logsumexp(scores[:, 0], axis=0) - own
            losses = (losses + backward) / 2
        return losses

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "temperature": self.temperature,
            "symmetric": self.symmetric,
            "similarity": self.similarity,
            "dtype": self.dtype,
        }


def _check_vectors(vectors: Any) -> None:
    shape = tuple(vectors.shape)
    if len(shape) != 3 or shape[1] is None or shape[1] < 2:
        raise ValueError(
            "`y_pred` must be vectors of shape (batch, texts, dim), those of a "
            "query and its document: keras.ops.stack([query, document], "
            f"axis=1). Received: y_pred of shape {shape}"
        )
    if shape[:2] == (1, 2):
        raise ValueError(
            "`y_pred` must have at least 2 examples, since the documents of "
            "the others are the negatives of each. Give larger batches, and "
            f"leave out a last one of 1. Received: y_pred of shape {shape}"
        )


def _counting(labels: Any, vectors: Any) -> Any:
    """Returns which documents count for which query, as a bool array.

    Its axes are the queries, the kinds of documents (positives, then hard
    negatives) and the examples that documents are of.

    Raises:
        ValueError: if the labels are not integers, or of another shape.
    """
    if labels is None:
        return ops.ones((1, 1, 1), "bool")
    labels = ops.convert_to_tensor(labels)
    check_integers("y_true", labels)
    batch, documents = vectors.shape[0], vectors.shape[1] - 1
    shape = tuple(labels.shape)
    fits = shape and shape[1:] in ((), (documents,))
    if not fits or (None not in (batch, shape[0]) and batch != shape[0]):
        raise ValueError(
            "`y_true` must be None, or labels of shape (batch,) or (batch, "
            f"documents), here ({batch},) or ({batch}, {documents}). "
            f"Received: y_true of shape {shape}"
        )
    if len(shape) == 1:
        labels = labels[:, None]
    same = ops.equal(labels[:, :1, None], ops.transpose(labels)[None])
    first = ops.reshape(ops.arange(documents), (1, documents, 1)) == 0
    if len(shape) == 1:  # hard negatives have no labels
        same = ops.logical_and(same, first)
    rows = ops.arange(ops.shape(vectors)[0])
    own = ops.logical_and(first, ops.equal(rows[:, None, None], rows))
    return ops.logical_or(own, ops.logical_not(same))


@keras.saving.register_keras_serializable(package="keras_posenc")
class MatryoshkaLoss(NamedOptions, keras.losses.Loss):
    """Trains vectors whose first numbers alone are good vectors, too.

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
    if not isinstance(values, Sequence) or not len(values):
        raise ValueError(
            f"`{name}` must be a sequence of at least one number. "
            f"Received: {name}={values!r}"
        )
    return [check(name, value) for value in values]
