"""The works that `speed.py` times: who does each, and what is aimed at."""

import compileall
import functools
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from _contest import DIM, SEQ, US, Contest, Peer, Size, Work
from _contestants import (
    compiled,
    keras_hub_encoder,
    numbers,
    onnx_runtime,
    ours,
    plain_keras,
    products,
)

BATCH = 32
# Rounds of works that take long: more of them do not change the medians.
FEW = 7


def encodings(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """Positions for a batch of embeddings."""
    import keras_hub
    import tensorflow as tf

    import keras_posenc as kp

    shape = 8, 2048, 1024
    x, other = numbers(shape, 0), numbers(shape, 1)
    table = tf.constant(kp.positional_encoding(5000, shape[-1]))
    hub = keras_hub.layers.SinePositionEncoding()
    for static in (True, False):
        graph = functools.partial(compiled, x=x, static=static)
        yield Contest(
            f"an encoding added to {shape}, "
            f"{'known' if static else 'unknown'} to the graph",
            {
                US: graph(kp.PositionalEncoding()),
                "plain add": graph(lambda x: x + other),
                "slice of a 5,000-row table": graph(
                    lambda x: x + table[:, : tf.shape(x)[1]]
                ),
                "keras-hub": graph(lambda x: x + hub(x)),
            },
            # At an unknown length the encoding is written first: one more pass
            # over (seq, dim).
            {
                (US, "plain add"): 1.05 if static else 1.25,
                (US, "keras-hub"): 0.25,
            },
        )
    scaled = kp.PositionalEncoding(scale_inputs=True)
    graph = functools.partial(compiled, x=x, static=True, jit_compile=True)
    yield Contest(
        "the same with `scale_inputs`, under XLA",
        {US: graph(scaled), "plain add": graph(lambda x: x + other)},
        {(US, "plain add"): 1.10},
    )


def blocks(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """One block of the paper's size, at inference."""
    x, encoder = numbers((8, SEQ, DIM)), ours(1)
    contestants = {
        US: compiled(encoder, x),
        "its matrix products": compiled(products(8, x.dtype), x),
        "keras-hub": compiled(keras_hub_encoder(1), x),
        "plain Keras": compiled(plain_keras(1), x),
        "ONNX Runtime, our file": onnx_runtime(encoder, folder, x),
    }
    # 1.09 on an AMD processor, and 1.19 on one of Intel with AMX, where norms
    # and softmax take as long and products half of the time.
    goals = {(US, "its matrix products"): 1.20, (US, "keras-hub"): 1.00}
    if torch:
        contestants["PyTorch"] = functools.partial(torch.run, Size())
        goals[US, "PyTorch"] = 1.00
    yield Contest(f"one block, 8 × {SEQ}, float32", contestants, goals)


def low_blocks(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """The same in bfloat16."""
    import tensorflow as tf

    x = numbers((8, SEQ, DIM))
    low = tf.cast(x, tf.bfloat16)
    weights_too = f"{US}, weights too"
    contestants = {
        US: compiled(ours(1, dtype="mixed_bfloat16"), low),
        weights_too: compiled(ours(1, dtype="bfloat16"), low),
        "in float32": compiled(ours(1), x),
        "its matrix products": compiled(products(8, low.dtype), low),
    }
    goals = {(US, "in float32"): 0.55}
    if torch:  # whose weights are in bfloat16
        size = Size(dtype="bfloat16")
        contestants["PyTorch"] = functools.partial(torch.run, size)
        goals |= {(name, "PyTorch"): 1.15 for name in (US, weights_too)}
    yield Contest(f"one block, 8 × {SEQ}, bfloat16", contestants, goals)


def padded_batches(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """Six blocks on texts of many lengths."""
    import tensorflow as tf

    x, mask = numbers((BATCH, SEQ, DIM)), _mask()
    everything = tf.ones_like(mask)
    encoder, dense = ours(6), ours(6, skip_padding=False)
    low = ours(6, dtype="mixed_bfloat16")
    contestants = {
        US: compiled(encoder, x, mask),
        "in bfloat16": compiled(low, x, mask),
        "padding computed": compiled(dense, x, mask),
        "nothing to skip": compiled(encoder, x, everything),
        "keras-hub": compiled(keras_hub_encoder(6), x, mask),
    }
    fill = sum(_lengths()) / (BATCH * SEQ)
    goals = {
        (US, "keras-hub"): 0.62,
        ("in bfloat16", "keras-hub"): 0.36,
        (US, "padding computed"): 1.10 * fill,
        ("nothing to skip", "padding computed"): 1.03,
    }
    if torch:
        size = Size(6, BATCH, lengths=_lengths())
        contestants["PyTorch, nested"] = functools.partial(torch.run, size)
        goals[US, "PyTorch, nested"] = 0.85
    yield Contest(
        f"six blocks, {BATCH} × {SEQ}, {fill:.0%} filled",
        contestants,
        goals,
        rounds=FEW,
    )


def signatures(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """The same from a SavedModel."""
    import keras_posenc as kp

    x, mask = numbers((BATCH, SEQ, DIM)), _mask()
    model = _masked_model(ours(6))
    artifact = kp.export_saved_model(
        model, folder / "six", verify=False, verbose=False
    )
    serve = _signature(artifact.path)
    yield Contest(
        "the same, from a SavedModel",
        {
            US: lambda: serve(x=x, tokens=mask),
            "in process": compiled(lambda x, mask: model([x, mask]), x, mask),
        },
        {(US, "in process"): 1.05},
        rounds=FEW,
    )


def training_steps(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """Forward, backward and Adam on that batch, by `fit`."""
    yield Contest(
        "a training step on that batch",
        {
            US: _training_step(ours(6)),
            "keras-hub": _training_step(keras_hub_encoder(6)),
        },
        {(US, "keras-hub"): 0.70},
        rounds=FEW,
    )


def compiled_training(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """The same of two blocks under XLA, which skips no padding."""
    step = functools.partial(_training_step, jit_compile=True)
    yield Contest(
        "the same of two blocks, under XLA",
        {
            US: step(ours(2)),
            "padding computed": step(ours(2, skip_padding=False)),
        },
        {(US, "padding computed"): 1.05},
        rounds=5,
    )


def short_texts(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """One short text at a time, from a SavedModel."""
    import keras
    import keras_hub
    import tensorflow as tf

    import keras_posenc as kp

    vocabulary, dim, heads = 8000, 256, 4

    class Sum(keras.layers.Layer):
        """Keeps the mask, which a plain sum would lose."""

        def __init__(self):
            super().__init__()
            self.encoding = keras_hub.layers.SinePositionEncoding()
            self.encoding.supports_masking = self.supports_masking = True

        def call(self, x):
            return x + self.encoding(x)

    def model(position: Any, encoders: Sequence[Any]) -> Any:
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(vocabulary, dim, mask_zero=True)(ids)
        x = position(x)
        for encoder in encoders:
            x = encoder(x)
        x = keras.layers.GlobalAveragePooling1D()(x)
        return keras.Model(ids, keras.layers.Dense(2, name="scores")(x))

    theirs = model(
        Sum(),
        [
            keras_hub.layers.TransformerEncoder(4 * dim, heads, dropout=0.1)
            for _ in range(4)
        ],
    )
    theirs.export(folder / "theirs", verbose=False)
    own = model(
        kp.PositionalEncoding(),
        [kp.TransformerEncoder(4, num_heads=heads, intermediate_dim=4 * dim)],
    )
    exported = kp.export_saved_model(
        own,
        folder / US,
        signatures={"serving_default": own},
        verify=False,
        verbose=False,
    )
    paths = {US: exported.path, "keras-hub": folder / "theirs"}
    serve = {name: _signature(path) for name, path in paths.items()}
    for length, most in ((16, {US: 0.86}), (64, {US: 0.86}), (128, {})):
        ids = tf.random.stateless_uniform(
            (1, length), (0, 0), 1, vocabulary, "int32"
        )
        yield Contest(
            f"1 × {length} from a SavedModel, four blocks of {dim}",
            {
                name: functools.partial(call, ids=ids)
                for name, call in serve.items()
            },
            {(name, "keras-hub"): ratio for name, ratio in most.items()},
        )


def long_attention(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """Attention in one long text, by blocks of queries and plainly."""
    plain = "attention, all scores at once"
    size = Size(batch=1, seq=8192)
    with Peer("attention") as blocks, Peer(plain) as at_once:
        peers = {US: blocks, "all scores at once": at_once}
        yield Contest(
            f"attention at 1 × {size.seq}",
            {
                name: functools.partial(peer.run, size)
                for name, peer in peers.items()
            },
            {(US, "all scores at once"): 1.00},
            peers,
            most_gb=1.2,
            rounds=FEW,
        )


def long_training(torch: Peer | None, folder: Path) -> Iterator[Contest]:
    """One block trained on long texts, by blocks of queries and plainly."""
    plain = "training, all scores at once"
    for size in (Size(batch=1, seq=8192), Size(batch=8, seq=2048)):
        with Peer("training") as blocks, Peer(plain) as at_once:
            peers = {US: blocks, "all scores at once": at_once}
            yield Contest(
                f"gradients of one block at {size.batch} × {size.seq}",
                {
                    name: functools.partial(peer.run, size)
                    for name, peer in peers.items()
                },
                {(US, "all scores at once"): 1.20},
                peers,
                most_gb=2.0,
                rounds=2,
            )


WORKS: tuple[Callable[[Peer | None, Path], Iterator[Contest]], ...] = (
    encodings,
    blocks,
    low_blocks,
    padded_batches,
    signatures,
    training_steps,
    compiled_training,
    short_texts,
    long_attention,
    long_training,
)


def first_calls() -> list[dict[str, Any]]:
    """What a user waits for once, in fresh processes.

    With the bytecode that pip leaves where it installs.
    """
    import keras_posenc as kp

    compileall.compile_dir(Path(kp.__file__).parent, quiet=1)
    code = """
import time
import keras
began = time.perf_counter()
import keras_posenc as kp
imported = time.perf_counter()
x = keras.ops.ones((1, 8, 4096))
ready = time.perf_counter()
kp.PositionalEncoding()(x)
called = time.perf_counter()
print((imported - began) * 1e3, (called - ready) * 1e3)
"""
    answers = [
        subprocess.check_output([sys.executable, "-c", code], text=True).split()
        for _ in range(5)
    ]
    works = {
        "import keras_posenc, after keras": 45,
        "first call of PositionalEncoding, d 4096": 100,
    }
    contests = []
    columns = zip(*answers, strict=True)
    for (work, most), column in zip(works.items(), columns, strict=True):
        took = statistics.median(map(float, column))
        goals = [{"of": "ms", "found": took, "at most": most}]
        contests.append(
            {"work": work, "milliseconds": {}, "peaks": {}, "goals": goals}
        )
    return contests


def _training_step(encoder: Any, **options: Any) -> Work:
    """A step on a batch of which a little over half is filled.

    Not by `fit`: as a dataset ends, tf.data waits until its tuning looks again,
    which makes each call last 1.27, 2.55 or 5.11 s.
    """
    inputs, targets = numbers((BATCH, SEQ, DIM)), numbers((BATCH, SEQ, DIM), 1)
    model = _masked_model(encoder)
    model.compile("adam", "mse", **options)
    return functools.partial(
        model.train_on_batch, [inputs, _mask()], targets, return_dict=True
    )


def _masked_model(encoder: Any) -> Any:
    import keras

    x = keras.Input((None, DIM), name="x")
    tokens = keras.Input((None,), dtype="bool", name="tokens")
    return keras.Model([x, tokens], {"y": encoder(x, mask=tokens)})


def _signature(path: Path) -> Any:
    import tensorflow as tf

    return tf.saved_model.load(str(path)).signatures["serving_default"]


@functools.cache
def _lengths() -> tuple[int, ...]:
    """8 to 128 tokens, drawn evenly: a little over half is filled."""
    import numpy as np

    drawn = np.random.default_rng(0).integers(8, SEQ + 1, BATCH)
    return tuple(map(int, drawn))


def _mask() -> Any:
    import tensorflow as tf

    return tf.sequence_mask(_lengths(), SEQ)
