"""A search cut into steps, to export, for apps that choose tokens."""

import functools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.logit_size import sizes_of
from keras_posenc.generation.search import Search
from keras_posenc.generation.step import First, Step


def step_models(search: Search, name: str) -> dict[str, keras.Model]:
    """Returns `encode` and `decode`, Functional models with these weights."""
    given = keras.Input((None,), dtype="int32", name="ids")
    encode = keras.Model(
        given, First(search, front=2)(given), name=f"{name}_encode"
    )
    state = {
        key: keras.Input(batch_shape=each.shape, dtype=each.dtype, name=key)
        for key, each in encode.output.items()
    }
    decode = keras.Model(
        state, Step(search, chooses=False)(state), name=f"{name}_decode"
    )
    for model in encode, decode:
        model.autocast = False
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        model.supports_masking = True
    if search.has_encoder:
        # The buffers are empty, or hold a prefix. Verification would wonder.
        encode.constant_outputs = tuple(
            name for name in state if name.startswith(("key_", "value_"))
        )
    ids = np.arange(1, 5, dtype="int32")[np.newaxis]
    sizes = functools.partial(
        sizes_of,
        search.model,
        lambda: encode(ids % search.model.vocabulary_size),
    )
    encode.output_scales = decode.output_scales = sizes
    decode.own_probes = functools.partial(_states, search, encode, decode)
    return {"encode": encode, "decode": decode}


def _states(
    search: Search, encode: keras.Model, decode: keras.Model
) -> Iterator[dict[str, Any]]:
    """Yields what `decode` takes, of random ids, to verify exports with."""
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (3, 3), (2, 7)):
        size = search.model.vocabulary_size
        ids = rng.integers(1, size, (batch, length), dtype="int32")
        ids[1:2, (length + 1) // 2 :] = search.pad_id
        state = encode(ids)
        for _ in range(2):  # the first token, and one after it
            yield {
                name: ops.convert_to_numpy(value)
                for name, value in state.items()
            }
            found = decode(state)
            token = ops.top_k(found["logits"], 1)[1][:, 0]
            found["token"] = ops.cast(token, "int32")
            state = {name: found.get(name, state[name]) for name in state}
