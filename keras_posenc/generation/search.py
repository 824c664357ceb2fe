"""Generation from ids to ids, as a layer around a model."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.beams import Beams, TransformersBeams
from keras_posenc.generation.decoding import Decoding, TransformersDecoding
from keras_posenc.generation.generated import (
    IMPOSSIBLE,
    Generated,
    Next,
    align_right,
    is_any,
    refusable,
)
from keras_posenc.generation.loop import (
    Allowed,
    Greedy,
    Sampled,
    decode,
)
from keras_posenc.keras_internals import in_one_thread
from keras_posenc.ops.arguments import check_integers, known_values
from keras_posenc.ops.named import NamedArguments
from keras_posenc.transformer._input_position import table_size

# Parts of a cache that no step changes: a loop need not carry them.
_FIXED = ("memory", "memory_tokens", "encoding")
# Weights of a model that one thread searches at least as fast as several.
_SMALL = 2**22


@keras.saving.register_keras_serializable(package="keras_posenc")
class Search(NamedArguments, keras.layers.Layer):
    """Generates ids with a model: `Generator` without its texts.

    It takes ids, `(batch, seq)`, and to sample with `noise`, floats in [0, 1),
    `(batch, max_length)`, by default from the layer's seed. Only the first
    `generated_ids` of the model's ids may be generated; by default all. It
    returns what `Generator.from_ids` does.
    """

    def __init__(
        self,
        model: keras.Model,
        decoding: Decoding,
        *,
        generated_ids: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_model(model)
        # In a low dtype noise would sample other tokens, and weights that are
        # read here for the model would be rounded.
        super().__init__(**{**kwargs, "dtype": "float32"})
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.autocast = False
        self.model = model
        self.decoding = decoding
        self.generated_ids = generated_ids
        self.has_encoder = hasattr(model, "encode")
        self.vocabulary = vocabulary_of(model)
        self.pad_id = model.target_pad_id
        decoding.check_for(self.vocabulary, self.pad_id)
        if self.has_encoder and decoding.start_id is None:
            raise ValueError(
                "`start_id`, the first id of targets, must be given where no "
                "target tokenizer has one. Received: start_id=None"
            )
        self.seed_generator = (
            None
            if decoding.draw is None
            else keras.random.SeedGenerator(decoding.seed)
        )
        model.check_cacheable(decoding.max_length)

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any, *, noise: Any = None) -> dict[str, Any]:
        self.check_inputs(inputs)
        if noise is None:
            noise = self.noise(ops.shape(inputs)[0])
        weights = self.model.weights
        if sum(math.prod(each.shape) for each in weights) > _SMALL:
            return self._search(inputs, noise)
        return in_one_thread(self._search, weights, inputs, noise)

    def _search(self, inputs: Any, noise: Any) -> dict[str, Any]:
        prompt, start, cache, next = self.begin(inputs)
        found = decode(
            next,
            prompt,
            self.way(noise),
            self.allowed(),
            cache=cache,
            index=start,
        )
        if self.decoding.beams > 1 and self.decoding.n_best == 1:
            found = Generated(*(ops.squeeze(x, 1) for x in found))
        return self._outputs(found)

    def noise(self, batch: Any) -> Any:
        """Returns what a batch is sampled with; None where it is not."""
        if self.seed_generator is None:
            return None
        shape = batch, self.decoding.max_length
        return keras.random.uniform(
            shape, dtype="float32", seed=self.seed_generator
        )

    def way(self, noise: Any) -> Greedy:
        """Returns how each token is chosen."""
        decoding = self.decoding
        kind: type[Greedy] = Greedy if decoding.draw is None else Sampled
        if decoding.beams > 1:
            is_theirs = isinstance(decoding, TransformersDecoding)
            kind = TransformersBeams if is_theirs else Beams
        return kind(decoding, self.pad_id, noise)

    def allowed(self) -> Allowed:
        """Returns what says which tokens may be chosen."""
        return Allowed(self.decoding, self.pad_id, self.forbidden_ids)

    def _outputs(self, found: Generated) -> dict[str, Any]:
        ids = self._after_prompt(found.ids)
        outputs = {
            "ids": ids,
            "score": found.score,
            "token_score": self._after_prompt(found.token_score),
        }
        if end_ids := self.decoding.end_ids:
            outputs["ended"] = ops.any(is_any(ids, end_ids), axis=-1)
        return outputs

    @property
    def forbidden_ids(self) -> tuple[int, ...]:
        """Ids that are never generated, besides padding."""
        most = self.generated_ids
        beyond = () if most is None else range(most, self.vocabulary)
        return (*self.decoding.forbidden_ids, *beyond)

    def _after_prompt(self, x: Any) -> Any:
        if len(x.shape) == 3:
            return x[:, :, -self.decoding.max_length :]
        return x[:, -self.decoding.max_length :]

    def begin(self, inputs: Any) -> tuple[Any, Any, Any, Next]:
        """Returns prompt, index, cache and `next` of a search that begins."""
        prompt, start, cache = self.read(inputs)
        batch = ops.shape(prompt)[0]
        free = ((0, 0), (0, self.decoding.room))
        prompt = ops.pad(prompt, free, constant_values=self.pad_id)
        fixed = {name: cache[name] for name in _FIXED if name in cache}
        moving = {name: cache[name] for name in cache if name not in fixed}
        if (beams := self.decoding.beams) > 1:
            rows = ops.repeat(ops.arange(batch, dtype="int32"), beams)
            wide = self.model.reorder_cache(cache, rows)
            fixed = {name: wide[name] for name in fixed}
        return prompt, start, moving, self.next_with(fixed)

    def read(
        self, inputs: Any, *, front: int | None = None, room: Any = None
    ) -> tuple[Any, Any, Any]:
        """Returns the prompt, its length, and the cache of most of it."""
        room = self.decoding.room if room is None else room
        inputs = refusable(
            inputs, self.model.vocabulary_size, self.model.pad_id
        )
        batch = ops.shape(inputs)[0]
        prompt = self.prompt(inputs, front=front)
        start: Any = prompt.shape[1] or ops.shape(prompt)[1]
        # All tokens except the last are read.
        length = start - 1 + room
        if self.has_encoder:
            if front is not None or not inputs.shape[1]:
                # At least one column: an empty source is one of padding.
                inputs = ops.pad(
                    inputs,
                    ((0, 0), (0, 1)),
                    constant_values=self.model.pad_id,
                )
            cache = self.model.build_cache(inputs, length)
        else:
            # Only the values of prompts tell how many of these are padding.
            cache = self.model.build_cache(
                batch, length, max_tokens=room + len(self.decoding.prefix_ids)
            )
        if not isinstance(start, int) or start > 1:
            _, cache = self.model.call_with_cache(prompt[:, :-1], cache)
        return prompt, start, self.model.own_cache(cache)

    def prompt(self, inputs: Any, *, front: int | None = None) -> Any:
        """Returns the ids that the model continues: int32 `(batch, n)`."""
        ids: tuple[Any, ...] = self.decoding.prefix_ids
        if self.has_encoder:
            ids = (self.decoding.start_id, *ids)
        rows = ops.broadcast_to(
            ops.expand_dims(ops.array(ids, "int32"), 0),
            (ops.shape(inputs)[0], len(ids)),
        )
        if self.has_encoder:
            return rows
        prompt = align_right(
            inputs,
            start_id=self.decoding.start_id,
            end_ids=self.decoding.removed_ids,
            pad_id=self.pad_id,
            front=front,
        )
        return ops.concatenate([prompt, rows], axis=1) if ids else prompt

    def next_with(self, fixed: dict[str, Any]) -> Next:
        """Returns the `next` for parts of a cache that no step changes."""

        def next(prompt: Any, cache: Any, index: Any) -> tuple[Any, Any, Any]:
            last = ops.expand_dims(ops.take(prompt, index - 1, axis=1), 1)
            logits, cache = self.model.call_with_cache(
                last, {**cache, **fixed}, write="memory"
            )
            cache = {name: cache[name] for name in cache if name not in fixed}
            return ops.squeeze(logits, 1), None, cache

        return next

    def check_inputs(
        self,
        inputs: Any,
        *,
        name: str = "ids",
        size: int | None = None,
    ) -> None:
        """Raises `ValueError` for ids that the model does not have."""
        check_integers(name, inputs)
        if len(inputs.shape) != 2:
            raise ValueError(
                f"`{name}` must have shape (batch, seq). "
                f"Received: {name} of shape {tuple(inputs.shape)}"
            )
        size = self.model.vocabulary_size if size is None else size
        values = known_values(inputs)
        if values is None or not values.size:
            return
        pad_id = self.pad_id if name == "target" else self.model.pad_id
        wrong = values[(values < min(pad_id, 0)) | (values >= size)]
        if wrong.size:
            padding = ", or -1, which is padding" if pad_id < 0 else ""
            raise ValueError(
                f"`{name}` must be in [0, {size}), the model's vocabulary"
                f"{padding}. Received: {wrong[0]}"
            )
        if name != "target":
            self.check_lengths(values, name=name)

    def check_scores(self, scores: np.ndarray, *, of_beams: bool) -> None:
        """Raises `ValueError` for scores of a model whose logits are NaN."""
        best = scores[:, 0] if scores.ndim == 2 else scores
        is_none = of_beams and (best == IMPOSSIBLE).any()
        if np.isnan(best).any() or is_none:
            raise ValueError(
                "`model` must give logits that are numbers, and gives NaN: its "
                "weights hold NaN, or numbers exceed "
                f"{self.model.decoder.compute_dtype}. Received: {self.model!r}"
            )

    def check_lengths(self, values: np.ndarray, *, name: str = "ids") -> None:
        """Raises `ValueError` for rows longer than a table of positions."""
        if self.has_encoder:
            real = values != self.model.pad_id
            columns = np.flatnonzero(real.any(axis=0))
            self.model.check_source_length(int(columns[-1:].sum()) + 1)
        elif name != "source":
            tokens = self._longest(values)
            self.decoding.check_prompt(tokens)
            most = self.decoding.max_length
            self.model.check_length(
                tokens + most - 1,
                f"a prompt of {tokens} tokens, and max_length={most} after it, "
                "of which the last is not read",
            )

    @property
    def longest_prompt(self) -> int | None:
        """How many tokens inputs may have; None without a limit."""
        if self.has_encoder:
            return table_size(self.model.input_position)
        most = self.model.max_positions
        if most is not None:
            most -= self.decoding.max_length - 1
        known = [most, self.decoding.longest_prompt]
        return min((each for each in known if each is not None), default=None)

    def _longest(self, prompts: np.ndarray) -> int:
        """Returns how many tokens of the longest prompt are continued."""
        real = prompts != self.pad_id
        counts = real.sum(axis=1)
        places = prompts.shape[1] - 1 - real[:, ::-1].argmax(axis=1)
        last = np.take_along_axis(prompts, places[:, np.newaxis], axis=1)
        counts -= np.isin(last[:, 0], self.decoding.removed_ids)
        return max(int(counts.max()), 1)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        return None  # the output has padding of its own

    def compute_output_spec(
        self, inputs: Any, *, noise: Any = None
    ) -> dict[str, Any]:
        self.check_inputs(inputs)
        several = self.decoding.n_best
        rows = (inputs.shape[0], *((several,) if several > 1 else ()))
        row = (*rows, self.decoding.max_length)
        outputs = {
            "ids": keras.KerasTensor(row, "int32"),
            "score": keras.KerasTensor(rows, "float32"),
            "token_score": keras.KerasTensor(row, "float32"),
        }
        if self.decoding.end_ids:
            outputs["ended"] = keras.KerasTensor(rows, "bool")
        return outputs

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "model": keras.saving.serialize_keras_object(self.model),
            "decoding": keras.saving.serialize_keras_object(self.decoding),
            "generated_ids": self.generated_ids,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Search":
        config = dict(config)
        for name in ("model", "decoding"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


def check_model(model: Any) -> None:
    """Raises `ValueError` unless a model generates token by token."""
    if not isinstance(model, keras.Model) or not hasattr(
        model, "call_with_cache"
    ):
        raise ValueError(
            "`model` must be a Transformer or a TransformerDecoderModel, which "
            f"generate token by token. Received: model={model!r}"
        )
    if not model.built:
        raise ValueError(
            "`model` must be built: call it once on data. "
            f"Received: the unbuilt model '{model.name}'"
        )


def vocabulary_of(model: keras.Model) -> int:
    """Returns how many ids a model can write."""
    size = getattr(model, "target_vocabulary_size", None)
    return int(model.vocabulary_size if size is None else size)


_OF_LOGITS = ("logits", "score", "token_score")
_PROBE = 4  # tokens, which any table of positions is large enough for


def sizes_of(
    model: keras.Model, outputs: Callable[[], Mapping[str, Any]] = dict
) -> dict[str, float]:
    """Returns how large numbers are that outputs are computed from, by name.

    The logits of a token are products of one vector with all embeddings, and
    rounding moves each of them by as much as the largest. A log-likelihood is a
    difference of logits. Exports are verified relative to this size. `outputs`
    returns further ones, such as the keys and values of a token.
    """
    ids = np.arange(1, 1 + _PROBE, dtype="int32")[np.newaxis]
    inputs = ids = ids % model.vocabulary_size
    if hasattr(model, "encode"):
        inputs = {"source": ids, "target": ids % vocabulary_of(model)}
    sizes = dict.fromkeys(_OF_LOGITS, _largest(model(inputs)))
    for name, value in outputs().items():
        if name not in sizes and keras.backend.is_float_dtype(value.dtype):
            sizes[name] = _largest(value)
    return sizes


def _largest(x: Any) -> float:
    size = ops.max(ops.absolute(ops.cast(x, "float32")))
    return max(1.0, float(ops.convert_to_numpy(size)))
