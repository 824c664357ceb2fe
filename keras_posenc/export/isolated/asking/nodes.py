"""What nodes of a graph call, draw and are called."""

import functools
from typing import Any

from keras_posenc.export.isolated.reading.nodes import called_by

INIT = "__saved_model_init_op"


@functools.cache
def draws(operator: str) -> bool:
    """Whether an operator has a state of its own, as random numbers have."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    return (
        definition is not None
        and definition.is_stateful
        and "seed" in {each.name for each in definition.attr}
        and all(
            each.type != tf.resource.as_datatype_enum
            for each in (*definition.input_arg, *definition.output_arg)
        )
    )


def functions_called(node: Any) -> set[str]:
    """The same of a node that has no more attributes than its operator."""
    return called_by(node) if _may_call(node.op) else set()


@functools.cache
def _may_call(operator: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    return definition is None or any(
        each.type in ("func", "list(func)") for each in definition.attr
    )


def captured_by(call: Any, function: Any) -> list[str]:
    """The tensors that the node of a signature has beside its inputs."""
    count = len(call.input) - len(function.captured_inputs)
    return [tensor.removesuffix(":0") for tensor in call.input[count:]]
