"""The log-likelihood of given targets, in one pass."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.generated import (
    align_left,
    align_right,
    is_any,
    log_probabilities,
    refusable,
)
from keras_posenc.generation.search import check_model, vocabulary_of
from keras_posenc.ops.arguments import known_values
from keras_posenc.ops.named import NamedArguments
from keras_posenc.ops.reductions import largest
from keras_posenc.transformer._input_position import table_size


@keras.saving.register_keras_serializable(package="keras_posenc")
class Scoring(NamedArguments, keras.layers.Layer):
    """Log-likelihoods of targets, given their sources or prompts.

    Of a dict of `source` and `target`, `(batch, seq)`, padded on either side. A
    target that starts with the start symbol is scored without it. With
    `complete`, as for texts whose tokenizer appends no end, the first end
    symbol is added to a target without one. It returns `score`, float32
    `(batch,)`, and `token_score`, `(batch, target + 1)`, 0 for padding.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        start_id: int | None = None,
        end_ids: Sequence[int] = (),
        complete: bool = False,
        **kwargs: Any,
    ) -> None:
        check_model(model)
        super().__init__(**kwargs)
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.model = model
        self.pad_id = model.target_pad_id
        self.start_id = start_id
        self.end_ids = tuple(end_ids)
        self.complete = complete
        if not hasattr(model, "encode"):
            decoder = keras.Model(model.inputs, model.decoder.output)
            # A function, of which Keras saves no second copy of the weights.
            self._decoded = lambda ids: decoder(ids)

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        logs, target, real = self.read(inputs)
        listed = target if self.pad_id >= 0 else ops.where(real, target, 0)
        scores = ops.take_along_axis(logs, ops.expand_dims(listed, 2), axis=2)
        scores = ops.squeeze(scores, 2)
        scores = ops.where(real, scores, ops.zeros_like(scores))
        return {
            "score": ops.cast(ops.sum(scores, axis=1), "float32"),
            "token_score": ops.cast(scores, "float32"),
        }

    def read(self, inputs: Any) -> tuple[Any, Any, Any]:
        """Returns log-probabilities, the targets, and which are tokens."""
        target = refusable(
            inputs["target"], vocabulary_of(self.model), self.pad_id
        )
        target = self.tokens(target)  # (batch, target + 1)
        logits = self.logits(inputs["source"], target, self.end_ids)
        real = ops.not_equal(target, self.pad_id)
        return log_probabilities(logits), target, real

    def logits(
        self, source: Any, target: Any, removed_ids: Sequence[int]
    ) -> Any:
        """Returns the logits `(batch, target, vocabulary)` of targets."""
        model = self.model
        source = refusable(source, model.vocabulary_size, model.pad_id)
        ids, places = self._read(source, target, removed_ids)
        self._check_length(ids)
        if places is None:
            if not source.shape[1]:  # as in a search
                source = ops.pad(
                    source, ((0, 0), (0, 1)), constant_values=model.pad_id
                )
            return self._within(
                ids, lambda ids: model({"source": source, "target": ids})
            )
        # Logits only where they are needed: they need the most memory.
        decoded = ops.take_along_axis(
            self._within(ids, self._decoded), ops.maximum(places, 0), axis=1
        )
        logits = model.logits_at(decoded)
        # Without a prompt, all ids are equally likely to be the first.
        return ops.where(places < 0, ops.zeros_like(logits), logits)

    def check_lengths(self, source: Any, target: Any) -> None:
        """Raises `ValueError` for a target longer than a table of positions."""
        if self.model.max_positions is not None:
            source, target = (ops.cast(x, "int32") for x in (source, target))
            target = self.tokens(target)
            self._check_length(self._read(source, target, self.end_ids)[0])

    def tokens(self, target: Any) -> Any:
        """Returns targets, `(batch, target + 1)`, without the start."""
        target = align_left(self._longer(target, 2), self.pad_id)
        if self.start_id is not None:
            begins = ops.equal(target[:, :1], self.start_id)
            # Only the first: another one is a token like any other. Not by
            # `roll`, for which LiteRT has no operator of its own.
            rest = self._longer(target[:, 1:], 1)
            target = ops.where(begins, rest, target)
        target = target[:, :-1]
        if not self.complete or not self.end_ids:
            return target
        real = ops.cast(ops.not_equal(target, self.pad_id), "int32")
        lengths = ops.sum(real, axis=1, keepdims=True)
        ended = ops.any(is_any(target, self.end_ids), axis=1, keepdims=True)
        columns = ops.arange(ops.shape(target)[1], dtype="int32")
        here = ops.equal(ops.expand_dims(columns, 0), lengths)
        here = ops.logical_and(here, ops.logical_not(ended))
        return ops.where(here, self.end_ids[0], target)

    def _read(
        self, source: Any, target: Any, removed_ids: Sequence[int]
    ) -> tuple[Any, Any]:
        """Returns the ids to read for targets, and the places of their logits.

        The last token of a target is not read, as nothing follows it. Padding
        between a prompt and its target is moved away, as in training. Places
        are `(batch, target, 1)`, below 0 where there is no prompt; None where
        each column is that of its target.
        """
        count = _lengths(target, self.pad_id)
        if hasattr(self.model, "encode"):
            starts = ops.full_like(target[:, :1], self.start_id)
            ids = ops.concatenate([starts, target[:, :-1]], axis=1)
            return _first(ids, count, self.pad_id), None
        prompt = align_right(
            source,
            start_id=self.start_id,
            end_ids=removed_ids,
            pad_id=self.pad_id,
        )
        width, length = ops.shape(prompt)[1], ops.shape(target)[1]
        real = ops.cast(ops.not_equal(prompt, self.pad_id), "int32")
        tokens = ops.sum(real, axis=1, keepdims=True)
        both = ops.concatenate([prompt, target], axis=1)
        columns = ops.expand_dims(ops.arange(width + length, dtype="int32"), 0)
        source = columns + (width - tokens)
        source = ops.where(source >= width + length, 0, source)
        ids = ops.take_along_axis(both, source, axis=1)
        places = (
            tokens - 1 + ops.expand_dims(ops.arange(length, dtype="int32"), 0)
        )  # (batch, target)
        ids = _first(ids, tokens + count - 1, self.pad_id)
        return ids, ops.expand_dims(places, 2)

    @property
    def longest_input(self) -> int | None:
        """How many tokens each input may have; None without a limit."""
        most = self.model.max_positions
        if hasattr(self.model, "encode"):
            known = most, table_size(self.model.input_position)
            return min((each for each in known if each), default=None)
        return None if most is None else most // 2  # both are read together

    def _longer(self, ids: Any, count: int) -> Any:
        """Returns ids with this many columns of padding after them."""
        return ops.pad(ids, ((0, 0), (0, count)), constant_values=self.pad_id)

    def _check_length(self, ids: Any) -> None:
        values = known_values(ids)
        if values is None:
            return
        real = values != self.pad_id
        columns = np.flatnonzero(real.any(axis=0))
        length = int(columns[-1:].sum()) + 1
        what = f"a target of {length} tokens"
        if not hasattr(self.model, "encode"):
            what = (
                f"a source and a target of {length + 1} tokens together, of "
                "which the last is not read"
            )
        self.model.check_length(length, what)

    def _within(self, ids: Any, compute: Callable[[Any], Any]) -> Any:
        """Returns what is computed, `(batch, seq, n)`; NaN beyond positions.

        A table of positions raises for a static length beyond it, even where
        only padding is.
        """
        size, length = self.model.max_positions, ids.shape[1]
        if size is None or not isinstance(length, int) or length <= size:
            return compute(ids)
        beyond = ((0, 0), (0, length - size), (0, 0))
        return ops.pad(compute(ids[:, :size]), beyond, constant_values=np.nan)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        return None

    def compute_output_spec(self, inputs: Any) -> dict[str, Any]:
        batch, length = inputs["target"].shape
        length = None if length is None else length + 1
        return {
            "score": keras.KerasTensor((batch,), "float32"),
            "token_score": keras.KerasTensor((batch, length), "float32"),
        }

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "model": keras.saving.serialize_keras_object(self.model),
            "start_id": self.start_id,
            "end_ids": list(self.end_ids),
            "complete": self.complete,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Scoring":
        config = dict(config)
        config["model"] = keras.saving.deserialize_keras_object(config["model"])
        return cls(**config)


def _lengths(ids: Any, pad_id: int) -> Any:
    """Returns int32 `(batch, 1)`: the column of the last token, from 1 on."""
    columns = ops.arange(ops.shape(ids)[1], dtype="int32") + 1
    real = ops.not_equal(ids, pad_id)
    return largest(ops.where(real, columns, 0), axis=1, keepdims=True)


def _first(ids: Any, lengths: Any, pad_id: int) -> Any:
    """Returns the first ids of each row, without the last token."""
    columns = ops.arange(ops.shape(ids)[1], dtype="int32")
    return ops.where(ops.expand_dims(columns, 0) < lengths, ids, pad_id)
