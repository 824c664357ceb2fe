"""What a SavedModel's signatures are made of: its values and constants."""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from keras_posenc_worker.nodes import called_by

VARIABLE = "VarHandleOp"


@dataclasses.dataclass(frozen=True)
class Contents:
    """What the answers of a signature are made of.

    Attributes:
        weights: The variables, tables and tensors that its function reads, in
            the function's order: the name and the digest of each, or None
            where its value cannot be read.
        constants: How often each constant is in its function, and in those
            that this one calls; the numbers among attributes too.
        graph: By the name of each output, a digest of all the operators that
            it comes from, and of how they are joined: not of their names, nor
            of the functions that they are divided into. By "" one of those that
            do more than give outputs, such as assigning a variable, and of
            what they wait for.
        calls: How functions are called where TensorFlow is told more than to
            call them, such as with another optimizer.
    """

    weights: list[tuple[str, str | None]]
    constants: dict[str, int] | None = None
    graph: dict[str, str] | None = None
    calls: list[str] = dataclasses.field(default_factory=list)


def read_handle(tensor: Any, operation: Any) -> Any:
    """The value behind a tensor, as `read` says; None of unknown resources."""
    import tensorflow as tf

    if tensor.dtype != tf.resource:
        return tensor
    if operation.type == VARIABLE:
        return read(tensor, operation.get_attr("dtype"))
    if "HashTable" in operation.type:
        return read(
            tensor,
            operation.get_attr("key_dtype"),
            operation.get_attr("value_dtype"),
        )
    return None


def read(handle: Any, dtype: Any, value_dtype: Any = None) -> Any:
    """A variable's value, or a table's keys and values."""
    import tensorflow as tf

    if value_dtype is None:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    return tuple(
        tf.raw_ops.LookupTableExportV2(
            table_handle=handle, Tkeys=dtype, Tvalues=value_dtype
        )
    )


def digest(value: Any) -> str:
    """A digest of an array, or of a table's keys and values, bit for bit."""
    import numpy as np

    values = value if isinstance(value, tuple) else (value,)
    arrays = [
        np.array(each, dtype=object)  # else it would lose zeros at its end
        if isinstance(each, bytes)
        else np.asarray(each)  # of a tensor no copy, as `numpy()` makes one
        for each in values
    ]
    if isinstance(value, tuple) and arrays[0].ndim == 1:
        order = np.argsort(arrays[0], kind="stable")  # tables have none
        arrays = [each[order] for each in arrays]
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape};".encode())
        if array.dtype == object:
            for text in array.flat:
                found.update(b"%d;" % len(text) + text)
        else:
            found.update(_bytes_of(array))
    return found.hexdigest()


def digest_in_parts(like: Any, parts: Iterable[Any]) -> str:
    """The `digest` of an array that comes as parts along its first axis.

    Args:
        like: A tensor of its dtype and shape.
        parts: NumPy arrays of numbers.
    """
    shape = tuple(like.shape)
    found = hashlib.sha256(f"{like.dtype.name} {shape};".encode())
    for part in parts:
        found.update(_bytes_of(part))
    return found.hexdigest()


def _bytes_of(array: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def constants(
    nodes: Iterable[Any], library: Mapping[str, Any]
) -> dict[str, int]:
    """How often each constant is in nodes, and in the functions they call."""
    known: dict[str, collections.Counter[str]] = {}

    def of_nodes(nodes: Iterable[Any]) -> collections.Counter[str]:
        total: collections.Counter[str] = collections.Counter()
        for node in nodes:
            called = called_by(node) & library.keys()
            if not called:
                total.update(_constants_of(node))
            for name in called:
                if name not in known:
                    known[name] = collections.Counter()  # if it calls itself
                    known[name] = of_nodes(library[name].node_def)
                total.update(known[name])
        return total

    return dict(of_nodes(nodes))


@functools.cache
def definition_of(operator: str) -> tuple[dict[str, Any], bool]:
    """An operator's default attributes, and whether it has side effects."""
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    if definition is None:
        return {}, True
    usual = {
        each.name: each.default_value
        for each in definition.attr
        if each.HasField("default_value")
    }
    return usual, definition.is_stateful


def _constants_of(node: Any) -> list[str]:
    """What a node always is, or does: a tensor, or numbers and patterns."""
    import tensorflow as tf

    if node.op == "Const":
        value = tf.make_ndarray(node.attr["value"].tensor)
        shown = value.tolist() if value.size <= 4 else digest(value)
        return [f"{value.dtype} {[*value.shape]} {shown}"]
    usual, _ = definition_of(node.op)
    found = []
    for name, value in sorted(node.attr.items()):
        kind = value.WhichOneof("value")
        if kind == "list":
            values = [*value.list.f, *value.list.i, *value.list.b]
            values += value.list.s
        else:
            values = (
                [getattr(value, kind)] if kind in ("f", "i", "b", "s") else []
            )
        if (
            values
            and not name.startswith("_")
            and name not in ("container", "shared_name")
            and value != usual.get(name)
        ):
            found.append(f"{node.op}.{name} {values}")
    return found
