"""Retrieval metrics of an encoder, after each epoch."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.checks import (
    check_choice,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.named import NamedOptions

# Scores that are computed at once: 64 MiB of float32.
_SCORES = 2**24


class RetrievalEvaluator(NamedOptions, keras.callbacks.Callback):
    """Evaluates an encoder by a search: recall, MRR and nDCG.

    >>> import numpy as np
    >>> from keras_posenc import training
    >>> evaluator = training.RetrievalEvaluator(
    ...     lambda vectors: vectors,
    ...     queries=np.array([[1.0, 0.2], [0.6, 1.0]]),
    ...     documents=np.array([[1.0, 0.0], [0.0, 1.0], [0.7, 1.0]]),
    ...     relevant=[{0}, {1}],
    ...     at=(1, 2),
    ... )
    >>> for name, value in evaluator().items():
    ...     print(f"{name} {value:.3f}")
    recall@1 0.500
    mrr@1 0.500
    ndcg@1 0.500
    recall@2 1.000
    mrr@2 0.750
    ndcg@2 0.815
    >>> import keras
    >>> best = keras.callbacks.EarlyStopping(
    ...     "val_ndcg@2", mode="max", restore_best_weights=True
    ... )
    >>> callbacks = [evaluator, best]  # of `fit`, in this order

    Each query is compared with all documents. For each k of `at`:

    - `recall@k`: the share of the relevant documents among the first k;
    - `mrr@k`: 1 / the rank of the first relevant document, 0 beyond k;
    - `ndcg@k`: the sum of gain / log2(rank + 1) of relevant documents among the
      first k, over the sum of the best order.

    All are means over the queries, as those of trec_eval and BEIR. Of documents
    with equal scores (up to rounding), the one that is given first is ranked
    first. If a vector is not finite, all metrics are NaN.

    As a callback of `fit` it adds them to the epoch's logs, each with `prefix`
    before its name, for callbacks after it in the list.

    Called, it returns them: `evaluator()["ndcg@10"]`.

    Args:
        encoder: the encoder of queries: a `keras.Model`, whose `predict` is
            used, or a function, from inputs to vectors of shape (inputs, dim).
            To search with truncated vectors:
            `lambda texts: model.predict(texts)[:, :64]`.
        queries: texts or other inputs: a sequence, an array, or a mapping from
            ids. Without ids they are counted from 0.
        documents: what is searched, in the same form.
        relevant: for each query, by its id or in their order, its relevant
            documents: a collection of their ids, each of gain 1, or a mapping
            from their ids to gains. A gain of 0 means not relevant.
        at: the cutoffs k.
        document_encoder: the encoder of documents, if it is another one.
        similarity: "cosine" or "dot".
        batch_size: inputs of a batch of `predict`.
        every: it evaluates in every so many epochs. Give 1 if other callbacks
            read its numbers.
        prefix: prefix of the names in the logs.

    Raises:
        ValueError: if an argument is invalid, an id is unknown, a query has no
            relevant document, there are fewer documents than the largest of
            `at`, or, when it evaluates, the encoder gives no vectors.

    References:
        - Järvelin and Kekäläinen 2002, [Cumulated gain-based evaluation of IR
          techniques](https://doi.org/10.1145/582415.582418)
        - Thakur et al. 2021, [BEIR](https://arxiv.org/abs/2104.08663)
    """

    def __init__(
        self,
        encoder: Any,
        *,
        queries: Any,
        documents: Any,
        relevant: Any,
        at: Sequence[int] = (1, 10),
        document_encoder: Any = None,
        similarity: str = "cosine",
        batch_size: int = 32,
        every: int = 1,
        prefix: str = "val_",
    ) -> None:
        super().__init__()
        if document_encoder is None:
            document_encoder = encoder
        for name, value in (
            ("encoder", encoder),
            ("document_encoder", document_encoder),
        ):
            if not callable(value):
                raise ValueError(
                    f"`{name}` must be a keras.Model or a function from inputs "
                    f"to vectors. Received: {name}={value!r}"
                )
        self.encoder = encoder
        self.document_encoder = document_encoder
        query_ids, self.queries = _with_ids("queries", queries)
        document_ids, self.documents = _with_ids("documents", documents)
        self._found = _places(relevant, query_ids, document_ids)
        if not isinstance(at, Sequence) or not at:
            raise ValueError(
                "`at` must be a sequence of at least one number of documents. "
                f"Received: at={at!r}"
            )
        self.at = [check_positive_int("at", k) for k in at]
        if max(self.at) > len(document_ids):
            raise ValueError(
                "`at` must be at most the number of documents, "
                f"{len(document_ids)}. Received: at={at!r}"
            )
        self.similarity = check_choice(
            "similarity", similarity, ("cosine", "dot")
        )
        self.batch_size = check_positive_int("batch_size", batch_size)
        self.every = check_positive_int("every", every)
        self.prefix = prefix
        self._traced_with: dict[str, int] = {}  # weights, by encoder

    def __call__(self) -> dict[str, float]:
        """Evaluates the encoder as it is now."""
        queries = self._encode("encoder", self.queries)
        documents = self._encode("document_encoder", self.documents)
        if queries.shape[1] != documents.shape[1]:
            raise ValueError(
                "Queries and documents must have vectors of the same width. "
                f"Received: vectors of shape {queries.shape} and "
                f"{documents.shape}"
            )
        names = [
            f"{name}@{k}" for k in self.at for name in ("recall", "mrr", "ndcg")
        ]
        if not (np.isfinite(queries).all() and np.isfinite(documents).all()):
            return dict.fromkeys(names, float("nan"))
        rows, step = [], max(1, _SCORES // len(documents))
        for start in range(0, len(queries), step):
            scores = queries[start : start + step] @ documents.T
            found = self._found[start : start + step]
            for own, (places, gains) in zip(scores, found, strict=True):
                ranks = _ranks(own, places)
                rows.append([x for k in self.at for x in _at(k, ranks, gains)])
        means = np.mean(rows, axis=0)
        return dict(zip(names, means.tolist(), strict=True))

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if logs is not None and (epoch + 1) % self.every == 0:
            for name, value in self().items():
                logs[f"{self.prefix}{name}"] = value

    def _encode(self, name: str, inputs: Any) -> np.ndarray:
        """Returns float32 vectors, of length 1 where that is wanted."""
        encoder = getattr(self, name)
        if isinstance(encoder, keras.Model):
            # `predict` may have been traced before LoRA added weights.
            if self._traced_with.get(name) != len(encoder.weights):
                encoder.make_predict_function(force=True)
                self._traced_with[name] = len(encoder.weights)
            output = encoder.predict(
                inputs, batch_size=self.batch_size, verbose=0
            )
        else:
            output = encoder(inputs)
        vectors = np.asarray(keras.ops.convert_to_numpy(output), "float32")
        if vectors.ndim != 2 or len(vectors) != len(inputs):
            raise ValueError(
                f"`{name}` must give vectors of shape (inputs, dim), here "
                f"({len(inputs)}, dim). Received: shape {vectors.shape}"
            )
        if self.similarity == "cosine":
            # In float64: squares of float32 numbers may be out of its range.
            exact = vectors.astype("float64")
            length = np.linalg.norm(exact, axis=1, keepdims=True)
            exact /= np.where(length == 0, 1, length)
            vectors = exact.astype("float32")
        return vectors


def _with_ids(name: str, values: Any) -> tuple[list[Any], Any]:
    """Returns the ids of inputs, and inputs as an array or a sequence."""
    ids = list(values) if isinstance(values, Mapping) else None
    if ids is not None:
        values = list(values.values())
    is_array = hasattr(values, "shape") and hasattr(values, "dtype")
    if isinstance(values, str | bytes) or not (
        is_array or isinstance(values, Sequence)
    ):
        raise ValueError(
            f"`{name}` must be a sequence, an array or a mapping from ids. "
            f"Received: {name}={values!r:.60}"
        )
    if not len(values):
        raise ValueError(f"`{name}` must not be empty. Received: {name}=[]")
    if all(isinstance(each, str | bytes) for each in values):
        values = np.array(values, "object")  # as Keras takes strings
    elif not is_array:
        values = np.array(values)
    return list(range(len(values))) if ids is None else ids, values


def _places(
    relevant: Any, queries: list[Any], documents: list[Any]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns places and gains of the relevant documents of each query."""
    if not isinstance(relevant, Mapping):
        if isinstance(relevant, str) or not isinstance(relevant, Sequence):
            raise ValueError(
                "`relevant` must be a mapping from the ids of queries, or a "
                f"sequence in their order. Received: relevant={relevant!r:.60}"
            )
        relevant = dict(enumerate(relevant))
    place_of = {each: place for place, each in enumerate(documents)}
    known = {*queries}
    if unknown := [each for each in relevant if each not in known]:
        raise ValueError(
            "`relevant` must have the ids of `queries`. "
            f"Received: {unknown[0]!r}, which is none of them"
        )
    found = []
    for query in queries:
        own = relevant.get(query, ())
        if isinstance(own, str | bytes) or not isinstance(own, Collection):
            raise ValueError(
                "`relevant` must have a collection of ids of documents for "
                f"each query, such as {{{own!r}}}. Received: {own!r} for query "
                f"{query!r}"
            )
        gains = dict(own) if isinstance(own, Mapping) else dict.fromkeys(own, 1)
        if unknown := [each for each in gains if each not in place_of]:
            raise ValueError(
                "`relevant` must have ids of `documents`. "
                f"Received: {unknown[0]!r} for query {query!r}"
            )
        gains = {
            place_of[each]: check_positive("relevant", gain)
            for each, gain in gains.items()
            if gain != 0
        }
        if not gains:
            raise ValueError(
                "`relevant` must have at least one document for each query: "
                "leave out queries without. Received: none for query "
                f"{query!r}"
            )
        found.append((np.array([*gains]), np.array([*gains.values()])))
    return found


def _ranks(scores: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the rank of each place, from 1, without sorting all scores.

    A product with equal vectors may be rounded differently, so scores are equal
    up to some units in the last place.
    """
    own = scores[places][:, np.newaxis]
    before = np.arange(len(scores)) < places[:, np.newaxis]
    margin = 8 * np.finfo(scores.dtype).eps * np.abs(own)
    ahead = (scores > own + margin) | ((scores >= own - margin) & before)
    return 1 + ahead.sum(axis=1)


def _at(k: int, ranks: np.ndarray, gains: np.ndarray) -> list[float]:
    """Returns recall, reciprocal rank and nDCG of one query."""
    first = ranks.min()
    within = ranks <= k
    best = np.sort(gains)[::-1][:k]
    ideal = np.sum(best / np.log2(np.arange(2, len(best) + 2)))
    gained = np.sum(gains[within] / np.log2(ranks[within] + 1))
    return [np.mean(within), 1 / first if first <= k else 0.0, gained / ideal]
