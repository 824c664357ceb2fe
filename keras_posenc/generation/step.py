"""One token, as a compiled function: what a stream is made of."""

from typing import Any

import keras
from keras import ops

from keras_posenc.generation.generated import Forbidden, is_any
from keras_posenc.generation.one_by_one import Chooser
from keras_posenc.generation.search import Search


class Step(keras.Model):
    """One step of a search, for `predict_on_batch`, which compiles it.

    Eager operators would take ten times as long for each token.

    Args:
        search: The search, without beams.

    Call arguments:
        inputs: A dict of `prompt`, int32 `(1, length)`, `start` and `index`,
            int32 `(1,)`, `noise`, float32 `(1, steps)`, and what a cache is
            made of, `moving` and `fixed`.

    Returns:
        A dict of `token`, int32 `(1,)`, its `score`, `ended`, bool `(1,)`, the
        `prompt` with the token in it, and `moving`.
    """

    def __init__(self, search: Search) -> None:
        # Noise in a low dtype would draw other tokens.
        super().__init__(name=f"{search.name}_step", autocast=False)
        self.search = search

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        search = self.search
        prompt = inputs["prompt"]
        start, index = inputs["start"][0], inputs["index"][0]

        def choose(logits: Any, index: Any) -> Any:
            if search.draw is None:
                return ops.squeeze(ops.top_k(logits, 1)[1], 1)
            noise = ops.take(inputs["noise"], index - start, axis=1)
            return search.draw(logits, noise)

        chooser = Chooser(
            choose,
            Forbidden(search.end_ids, 0, search.least, search.forbidden_ids),
            search.repetition_penalty,
        )
        next = search.next_with(inputs["fixed"])
        logits, _, moving = next(prompt, inputs["moving"], index)
        token, score = chooser(logits, prompt=prompt, index=index, start=start)
        columns = ops.arange(ops.shape(prompt)[1], dtype="int32")
        here = ops.expand_dims(ops.equal(columns, index), 0)
        return {
            "token": token,
            "score": score,
            "ended": is_any(token, search.end_ids),
            "prompt": ops.where(here, ops.expand_dims(token, 1), prompt),
            "moving": moving,
        }
