"""Generating one token, as a compiled function, for streams."""

from typing import Any

import keras
from keras import ops

from keras_posenc.generation.generated import is_any
from keras_posenc.generation.repetition import penalize, seen_ids
from keras_posenc.generation.search import Search
from keras_posenc.generation.token_steps import Beginning, Continuing


class First(keras.Model):
    """The state before the first step, compiled by `predict_on_batch`.

    Args:
        search: The search, without beams.

    Call arguments:
        inputs: Integers `(1, seq)`.

    Returns:
        What `Beginning` returns.
    """

    def __init__(self, search: Search) -> None:
        super().__init__(name=f"{search.name}_first", autocast=False)
        self.beginning = Beginning(search, front=None, name="begin")

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        return self.beginning(inputs)


class Step(keras.Model):
    """One step of a search, compiled by `predict_on_batch`.

    Eager operators would take ten times as long for each token.

    Args:
        search: As for `First`.

    Call arguments:
        inputs: A dict of what `First` and then each step returns, and of
            `noise`, float32 `(1,)`; `seen`, int32 `(1, length)`, the prompt
            and the ids after it, padded; and `index`, int32 `(1,)`, the column
            of `seen` that the token is for.

    Returns:
        A dict of the `token`, int32 `(1,)`, whether it has `ended`, bool
        `(1,)`, a `score`, float32 `(1,)`, NaN where a logit is, and the
        model's state.
    """

    def __init__(self, search: Search) -> None:
        # Noise in a low dtype would sample other tokens.
        super().__init__(name=f"{search.name}_step", autocast=False)
        self.search = search
        self.continuing = Continuing(search, name="step")

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        search, inputs = self.search, dict(inputs)
        noise, seen, index = (
            inputs.pop(name) for name in ("noise", "seen", "index")
        )
        found = self.continuing(inputs)
        logits = found.pop("logits")
        score = ops.logsumexp(logits, axis=-1)  # before rules hide a NaN
        if search.repetition_penalty != 1:
            repeated = seen_ids(seen, logits.shape[-1], before=index)
            logits = penalize(logits, repeated, search.repetition_penalty)
        if search.rules:
            logits = search.rules(logits, seen, index[0])
        if search.draw is None:
            token = ops.squeeze(ops.top_k(logits, 1)[1], 1)
        else:
            token = search.draw(logits, noise)
        token = ops.cast(token, "int32")
        return {
            **found,
            "token": token,
            "ended": is_any(token, search.end_ids),
            "score": score,
        }


def run_on_batch(model: keras.Model, inputs: Any) -> Any:
    """Returns what `predict_on_batch` does, as tensors where possible.

    A cache is large: turned into an array of NumPy and back at each step, it
    would take a part of each step's time.
    """
    if keras.backend.backend() == "jax":
        return model.predict_on_batch(inputs)
    model.make_predict_function()
    return model.predict_function([(inputs,)])
