"""A model of the next token small enough to be enumerated."""

import keras
import numpy as np
from keras import ops

import keras_posenc as kp

VOCABULARY, LENGTH, END = 5, 4, 4


class Toy:
    """Looks two tokens back, in a table: a model, and an oracle's model.

    Its cache holds the last token but one of each row, so that a search that
    mixes its rows up goes wrong.
    """

    def __init__(self, seed=0, scale=1.5):
        rng = np.random.default_rng(seed)
        size = (VOCABULARY,) * 3
        logits = scale * rng.normal(size=size)
        self.logits = logits.astype("float32")
        self.calls = 0

    def log_probabilities(self, tokens):
        before, last = (0, *tokens)[-2:]
        scores = self.logits[before, last].astype("float64")
        return scores - np.log(np.sum(np.exp(scores)))

    def cache(self, rows):
        """That of as many rows as a prompt has, or a list."""
        rows = ops.convert_to_tensor(rows)
        first = rows[:, 0] if len(rows.shape) > 1 else rows
        return {"before": ops.zeros_like(first), "slot": ops.zeros(())}

    def next(self, prompt, cache, index):
        self.calls += 1
        last = ops.cast(ops.take(prompt, index - 1, axis=1), "int32")
        place = cache["before"] * VOCABULARY + last
        table = ops.convert_to_tensor(self.logits.reshape(-1, VOCABULARY))
        logits = ops.take(table, place, axis=0)
        cache = {"before": last, "slot": cache["slot"] + 1}
        return logits, None, cache

    def prompt(self, starts, length=LENGTH):
        """One token a row, and room."""
        starts = np.asarray(starts, "int32")[:, np.newaxis]
        return np.pad(starts, ((0, 0), (0, length)))


def eager(function):
    return function


def compiled(function):
    """The function as the backend's compiler has it."""
    match keras.backend.backend():
        case "tensorflow":
            import tensorflow as tf

            return tf.function(function, jit_compile=True, autograph=False)
        case "jax":
            import jax

            return jax.jit(function)
    return function


def in_graph(function, autograph=False):
    """The function in a graph whose shapes are not known, where there is one.

    PyTorch has no such thing, and JAX's graphs know all shapes.
    """
    if keras.backend.backend() != "tensorflow":
        return compiled(function)
    import tensorflow as tf

    return tf.function(
        function,
        input_signature=[tf.TensorSpec((None, None), "int32")],
        autograph=autograph,
    )


# ---- Models

SIZES = {
    "d_model": 8,
    "num_layers": 1,  # compilers take their time with each
    "num_heads": 2,
    "intermediate_dim": 16,
    "dropout": 0.0,
}


def shaken(model, noise=0.8):
    """Weights large enough for answers that differ and end."""
    rng = np.random.default_rng(1)
    for weight in model.trainable_weights:
        change = noise * rng.normal(size=weight.shape)
        weight.assign(ops.convert_to_numpy(weight) + change.astype("float32"))
    return model


def twins(made, sources, apart=0.0):
    """Gives an id the embedding of the one that is generated most.

    Args:
        made: A generator.
        sources: What it is asked.
        apart: By what share of itself the embedding differs.

    Returns:
        Both ids.
    """
    ids = ops.convert_to_numpy(made.search(sources)["ids"])
    counts = np.bincount(ids.ravel(), minlength=9)
    counts[:4] = 0  # padding, and what has a meaning
    first = int(np.argmax(counts))
    second = 4 if first != 4 else 5
    table = made.model.target_embedding.embeddings
    values = ops.convert_to_numpy(table).copy()
    values[second] = np.float32(1 + apart) * values[first]
    table.assign(values)
    return first, second


def tokenizer():
    return kp.CharacterTokenizer("abcdefgh", name="characters")


def generator(make=kp.Transformer, *, of_model=None, **options):
    """A generator from texts to texts, of at most six characters."""
    return kp.Generator(
        shaken(make(12, **SIZES, **(of_model or {}))),
        source_tokenizer=tokenizer(),
        target_tokenizer=tokenizer(),
        max_length=6,
        **options,
    )


def varied(**options):
    """One of texts whose answers are not all alike."""
    keras.utils.set_random_seed(8)
    return generator(of_model={"embeddings": "separate"}, **options)
