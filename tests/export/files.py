"""Exported files of every format: what writes, runs and forges them."""

import contextlib
from pathlib import Path

import onnxruntime
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from tensorflow.core.protobuf import saved_model_pb2

import keras_posenc as kp

EXPORTS = {
    "saved_model": (kp.export_saved_model, "model"),
    "litert": (kp.export_litert, "model.tflite"),
    "onnx": (kp.export_onnx, "model.onnx"),
}


def loaded_file(path, signature="serving_default"):
    """A function from a file's inputs to its outputs, both by their names."""
    if Path(path).suffix == ".onnx":
        held = onnxruntime.InferenceSession(path)
        names = [each.name for each in held.get_outputs()]

        def call(inputs):
            return dict(zip(names, held.run(None, inputs), strict=True))
    elif Path(path).suffix == ".tflite":
        held = Interpreter(str(path))
        runner = held.get_signature_runner(signature)

        def call(inputs):
            return runner(**inputs)
    else:
        held = tf.saved_model.load(str(path))
        run = held.signatures[signature]
        _, specs = run.structured_input_signature

        def call(inputs):
            tensors = {
                name: tf.constant(value, specs[name].dtype)
                for name, value in inputs.items()
            }
            return {name: x.numpy() for name, x in run(**tensors).items()}

    call.held = held  # what runs dies with it
    return call


def run_file(path, inputs, signature="serving_default"):
    """The outputs of a file in its runtime, by their names."""
    return loaded_file(path, signature)(inputs)


@contextlib.contextmanager
def graph_of(folder):
    """The graph of a SavedModel, written again after it was changed."""
    file = folder / "saved_model.pb"
    message = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    (graph,) = message.meta_graphs
    yield graph
    file.write_bytes(message.SerializeToString())
