"""The contestants that run on TensorFlow, and one that runs an ONNX file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _contest import DIM, FEED_FORWARD, HEADS, SEQ, Size, Work


def prepare(name: str, size: Size) -> Work:
    """A contestant of `Peer`, by name, in a graph."""
    import tensorflow as tf

    encoder = {
        "keras_posenc": ours,
        "keras-hub": keras_hub_encoder,
        "plain Keras": plain_keras,
        "attention": our_attention,
        "attention, all scores at once": scores_at_once,
        "training": lambda layers: trained(ours(layers)),
        "training, all scores at once": lambda layers: trained(
            at_once(ours, layers)
        ),
    }[name](size.layers)
    x = numbers((size.batch, size.seq, DIM))
    mask = None
    if size.lengths is not None:
        mask = tf.sequence_mask(size.lengths, size.seq)
    # Training goes in blocks where the graph knows the length.
    return compiled(encoder, x, mask, static=name.startswith("training"))


def ours(layers: int, **options: Any) -> Any:
    import keras_posenc as kp

    return kp.TransformerEncoder(
        layers, num_heads=HEADS, intermediate_dim=FEED_FORWARD, **options
    )


def our_attention(layers: int) -> Any:
    import keras_posenc as kp

    return kp.SelfAttention(HEADS)


def scores_at_once(layers: int) -> Any:
    return at_once(our_attention, layers)


def at_once(make: Callable[[int], Any], layers: int) -> Any:
    from keras_posenc.ops import attention

    attention.MAX_SCORES = 2**31 - 1
    return make(layers)


def trained(encoder: Any) -> Any:
    """The gradients of an encoder's weights, with dropout."""
    import tensorflow as tf

    encoder.build((None, None, DIM))

    def gradients(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(encoder(x, training=True) ** 3)
        return tape.gradient(loss, encoder.trainable_weights)

    return gradients


def keras_hub_encoder(layers: int) -> Any:
    import keras
    import keras_hub

    class Stack(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True
            self.blocks = [
                keras_hub.layers.TransformerEncoder(
                    FEED_FORWARD, HEADS, dropout=0.1
                )
                for _ in range(layers)
            ]

        def call(self, x, mask=None):
            for block in self.blocks:
                x = block(x, padding_mask=mask)
            return x

        def build(self, shape):
            for block in self.blocks:
                block.build(shape)

    return Stack()


def plain_keras(layers: int) -> Any:
    """Blocks of Keras's own layers, as its guides write them."""
    from keras.layers import Dense, LayerNormalization, MultiHeadAttention

    blocks = [
        (
            MultiHeadAttention(HEADS, DIM // HEADS),
            LayerNormalization(),
            Dense(FEED_FORWARD, "relu"),
            Dense(DIM),
            LayerNormalization(),
        )
        for _ in range(layers)
    ]

    def encoder(x: Any, mask: Any = None) -> Any:
        allowed = None if mask is None else mask[:, None, :]
        for attention, first_norm, up, down, second_norm in blocks:
            x = first_norm(x + attention(x, x, attention_mask=allowed))
            x = second_norm(x + down(up(x)))
        return x

    return encoder


def products(batch: int, dtype: Any) -> Any:
    """The matrix products of a block, and nothing else."""
    import tensorflow as tf

    def kernel(*shape: int) -> Any:
        return tf.cast(numbers(shape, 1), dtype)

    project, out = kernel(DIM, 3 * DIM), kernel(DIM, DIM)
    up, down = kernel(DIM, FEED_FORWARD), kernel(FEED_FORWARD, DIM)

    def run(x: Any) -> Any:
        rows = tf.reshape(x, (-1, DIM))
        query, key, value = (
            tf.reshape(part, (batch, HEADS, SEQ, -1))
            for part in tf.split(tf.matmul(rows, project), 3, axis=-1)
        )
        scores = tf.matmul(query, key, transpose_b=True)
        rows = tf.reshape(tf.matmul(scores, value), (-1, DIM))
        return tf.matmul(tf.matmul(tf.matmul(rows, out), up), down)

    return run


def onnx_runtime(encoder: Any, folder: Path, x: Any) -> Work:
    """Our own encoder from an ONNX file."""
    import keras
    import onnxruntime

    import keras_posenc as kp

    inputs = keras.Input((None, DIM), name="x")
    path = kp.export_onnx(
        keras.Model(inputs, {"y": encoder(inputs)}),
        folder / "encoder.onnx",
        verify=False,
        verbose=False,
    ).path
    session = onnxruntime.InferenceSession(path)
    given = {"x": x.numpy()}
    return lambda: session.run(None, given)


def compiled(
    call: Any, x: Any, mask: Any = None, *, static: bool = False, **options: Any
) -> Work:
    """A graph of it for any batch and length, or for these: `static`.

    Args:
        call: A layer or function.
        x: `(batch, seq, dim)`.
        mask: `(batch, seq)`, passed on if there is one.
        static: Whether the graph knows the shape.
        **options: Those of `tf.function`.
    """
    import tensorflow as tf

    tensors = {"x": x} if mask is None else {"x": x, "mask": mask}

    def run(x: Any, mask: Any = None) -> Any:
        return call(x) if mask is None else call(x, mask=mask)

    function = tf.function(run, **options).get_concrete_function(
        **{
            name: tf.TensorSpec(
                tensor.shape if static else [None, None, *tensor.shape[2:]],
                tensor.dtype,
            )
            for name, tensor in tensors.items()
        }
    )
    return lambda: function(**tensors)


def numbers(shape: Sequence[int], seed: int = 0) -> Any:
    import tensorflow as tf

    return tf.random.stateless_normal(shape, seed=(seed, 0))
