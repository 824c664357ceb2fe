"""Ids with their lengths, for servers that pad with any value.

TensorFlow Serving pads the examples of a batch with the first element of each
request's tensor, not with the id of padding.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_posenc.export.signatures.signature import Arrays, Oracle, Signature
from keras_posenc.export.signatures.tracing import called
from keras_posenc.keras_internals import layer_of, layers_within

IDS, LENGTHS = "ids", "lengths"
_RULE = "from_ids: `lengths` must hold one number for each example of `ids`"


def with_lengths(signature: Signature) -> Signature:
    """Returns the signature `from_ids`: ids past a length become padding."""
    name, spec = next(iter(signature.specs.items()))
    if (
        len(signature.specs) > 1
        or "int" not in spec.dtype
        or len(spec.shape) != 2
    ):
        return signature
    padding = padding_of(signature)

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        ops = keras.ops
        ids = tensors[IDS]
        # Without this check, one length would be broadcast to all examples.
        lengths = tf.ensure_shape(tensors[LENGTHS], spec.shape[:1])
        check = tf.debugging.assert_equal(
            tf.size(lengths), tf.shape(ids)[0], _RULE
        )
        # None if the check passed while tracing. Otherwise later operators wait
        # for it: they would fail first, with a message about shapes.
        with tf.control_dependencies([] if check is None else [check]):
            lengths = tf.identity(lengths)
        places = ops.arange(ops.shape(ids)[1], dtype="int32")
        is_real = ops.less(places, ops.expand_dims(lengths, -1))
        ids = ops.where(is_real, ids, ops.full_like(ids, padding))
        return called(signature, {name: ids})

    def to_base(inputs: Arrays) -> Arrays:
        ids = inputs[IDS].copy()
        if len(inputs[LENGTHS]) != len(ids):
            raise ValueError(
                f"{_RULE}. Received: {len(inputs[LENGTHS])} lengths and "
                f"{len(ids)} examples"
            )
        for row, length in zip(ids, inputs[LENGTHS], strict=True):
            row[max(length, 0) :] = padding
        return {name: ids}

    def widen(inputs: Arrays) -> Arrays:
        """Returns inputs as a server pads examples of different lengths."""
        ids = inputs[name].copy()
        # Real ids are neither padding nor the 0 at the end of test inputs.
        is_real = (ids != padding) & (ids != 0)
        lengths = [
            np.max(np.flatnonzero(row), initial=-1) + 1 for row in is_real
        ]
        for row, length in zip(ids, lengths, strict=True):
            if ids.size:
                row[length:] = inputs[name].flat[0]
        return {IDS: ids, LENGTHS: np.array(lengths, "int32")}

    return dataclasses.replace(
        signature,
        name="from_ids",
        specs={
            IDS: spec,
            LENGTHS: keras.InputSpec(shape=spec.shape[:1], dtype="int32"),
        },
        call=call,
        oracle=Oracle(signature, to_base=to_base, widen=widen),
    )


def padding_of(signature: Signature) -> int:
    """Returns a tokenizer's, a generator's or all embeddings' padding, or 0."""
    if signature.cut_at is not None:
        tokenizer = layer_of(signature.cut_at)
        if isinstance(pad_id := getattr(tokenizer, "pad_id", None), int):
            return pad_id
    for layer in layers_within(signature.model):
        if isinstance(getattr(layer, "target_pad_id", None), int):
            return int(layer.pad_id)
    found = {
        getattr(layer, "pad_id", 0)
        for layer in layers_within(signature.model)
        if isinstance(layer, keras.layers.Embedding) and layer.mask_zero
    }
    return int(found.pop()) if len(found) == 1 else 0
