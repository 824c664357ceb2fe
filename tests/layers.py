"""What tests of several subpackages do with layers."""

from pathlib import Path

import keras
import numpy as np
from keras import ops


def randomised(layer, seed=5):
    """The layer with weights none of which is 0 or 1.

    Args:
        layer: A layer or a model that is built.
        seed: Of the weights, or a generator of NumPy's.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        noise = rng.normal(size=weight.shape)
        if len(weight.shape) == 2:
            weight.assign(noise / np.sqrt(weight.shape[0]))
        elif weight.name in ("gamma", "scale"):
            weight.assign(1 + 0.1 * noise)
        else:
            weight.assign(0.1 * noise)
    return layer


@keras.saving.register_keras_serializable(package="tests")
class MaskSeen(keras.layers.Layer):
    """Answers with the mask that Keras handed to it, as integers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        assert mask is not None, "Keras looks for masks somewhere else"
        return ops.cast(mask, "int32")


def check_sizes_before_a_run(path, inputs):
    """LiteRT knows all sizes before a run, and so CompiledModel is right.

    Args:
        path: A LiteRT file with the signature `serving_default`.
        inputs: Inputs by name, of several sizes, which one session runs.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    from keras_posenc.export.formats.litert_compiled_model import (
        compare_in_compiled_model,
    )
    from keras_posenc.export.worker_client import Limits

    # A delegate's operators have outputs without memory.
    interpreter = Interpreter(
        str(path),
        experimental_op_resolver_type=(
            OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        ),
    )
    details = interpreter.get_signature_runner(
        "serving_default"
    ).get_input_details()  # the runner itself would block the interpreter
    unknown = set()
    for each in inputs:
        for name, found in details.items():
            interpreter.resize_tensor_input(found["index"], each[name].shape)
        interpreter.allocate_tensors()
        for operator in interpreter._get_ops_details():
            for index in operator["outputs"]:
                try:
                    interpreter.get_tensor(index)
                except ValueError:  # it has no memory
                    unknown.add((operator["op_name"], index))
    assert unknown == set()
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    found = [{"outputs": runner(**each)} for each in inputs]
    cases = [("serving_default", each) for each in inputs]
    compared = compare_in_compiled_model(Path(path), cases, found, Limits())
    assert compared.startswith("equal"), compared
