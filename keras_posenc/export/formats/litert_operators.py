"""Operators that LiteRT or its converter compute differently, as others."""

from typing import Any

import numpy as np

from keras_posenc.export.graphs.decompose import Functions, einsum


def _softplus(tf: Any, _: Any, x: Any) -> Any:
    """The converter writes log(1 + exp(x)), which overflows above 88."""
    return tf.nn.relu(x) + tf.math.log(1.0 + tf.exp(-tf.abs(x)))


def _rsqrt(tf: Any, _: Any, x: Any) -> Any:
    """XNNPACK (ai-edge-litert 2.3.0) gives NaN at 0 instead of infinity."""
    # Not 1 / sqrt(x), which the converter makes an Rsqrt again.
    return tf.math.reciprocal(tf.sqrt(x))


def _pack(tf: Any, attributes: Any, *parts: Any) -> Any:
    """Joins sizes by CONCATENATION instead of PACK.

    LiteRT computes sizes before a run by every operator of shapes except PACK.
    After one that is left to the run, XNNPACK's delegate (ai-edge-litert 2.3.0)
    moves memory that parts which have already run still read and write.
    """
    if parts[0].dtype != "int32":
        return None
    axis = attributes["axis"]
    return tf.concat([tf.expand_dims(part, axis) for part in parts], axis)


def _sign_bit(tf: Any, attributes: Any, bits: Any, mask: Any) -> Any:
    """Reads the sign bit of a float, as `argmax` does, without BitwiseAnd."""
    _, constant = attributes["constants"]
    if constant is None or np.any(constant != np.int32(-(2**31))):
        return None
    return tf.where(bits < 0, mask, 0)


def _floor_divide(tf: Any, _: Any, x: Any, y: Any) -> Any:
    """Divides in float32, as TensorFlow; FLOOR_DIV does so in float64."""
    if not x.dtype.is_floating:
        return None
    return tf.floor(x / tf.where(tf.abs(x) >= 0.0, y, x))  # NaN stays NaN


def _one_hot(
    tf: Any, attributes: Any, ids: Any, depth: Any, on: Any, off: Any
) -> Any:
    """Clips ids to int32, to which the converter cuts their bits."""
    if ids.dtype != "int64":
        return None
    ids = tf.clip_by_value(ids, -1, tf.int32.max)
    return tf.one_hot(ids, depth, on, off, attributes["axis"])


def _reshape(tf: Any, attributes: Any, x: Any, shape: Any) -> Any:
    """Writes the sizes that TensorFlow knows, and the converter does not."""
    known = attributes.get("_output_shapes")
    if not known or attributes["constants"][1] is not None:
        return None
    sizes = [dim.size for dim in known[0].dim]
    if all(size < 1 for size in sizes) or 0 in sizes or shape.dtype != "int32":
        return None
    if sizes.count(-1) < 2:
        return tf.reshape(x, sizes)
    parts = [
        tf.gather(shape, [place]) if size == -1 else [size]
        for place, size in enumerate(sizes)
    ]
    return tf.reshape(x, tf.concat(parts, 0))


def _slice(tf: Any, attributes: Any, x: Any, *bounds: Any) -> Any:
    """Adds a slice's new axes by ExpandDims, as in `x[..., None, :2]`."""
    strides = attributes["constants"][3]
    names = "begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask"
    masks = {name: attributes[name] for name in names}
    ellipsis, dropped = masks["ellipsis_mask"], masks["shrink_axis_mask"]
    added = attributes["new_axis_mask"] & ~ellipsis
    if not added or strides is None:
        return None
    kept = [place for place in range(strides.size) if not added >> place & 1]
    for name, mask in masks.items():
        bits = (mask >> place & 1 for place in kept)
        masks[name] = sum(bit << k for k, bit in enumerate(bits))
    begin, end, steps = (
        tf.gather(given, kept) if constant is None else constant[kept]
        for given, constant in zip(
            bounds, attributes["constants"][1:], strict=True
        )
    )
    x = tf.raw_ops.StridedSlice(
        input=x, begin=begin, end=end, strides=steps, **masks
    )
    axes = [
        place
        for place in range(strides.size)
        if added >> place & 1 or not dropped >> place & 1
    ]
    # An ellipsis is of any number of axes: those after it are counted back.
    first = [p for p in axes if not ellipsis or 1 << p < ellipsis]
    last = [p for p in axes if 0 < ellipsis < 1 << p][::-1]
    for axis, place in enumerate(first):
        x = tf.expand_dims(x, axis) if added >> place & 1 else x
    for axis, place in enumerate(last):
        x = tf.expand_dims(x, -1 - axis) if added >> place & 1 else x
    return x


REWRITTEN: Functions = {
    "BitwiseAnd": _sign_bit,
    "Einsum": einsum,
    "FloorDiv": _floor_divide,
    "OneHot": _one_hot,
    "Pack": _pack,
    "Reshape": _reshape,
    "Rsqrt": _rsqrt,
    "Softplus": _softplus,
    "StridedSlice": _slice,
}
