"""Exported files of every format: what writes them, and what runs them."""

from pathlib import Path

import keras_posenc as kp

EXPORTS = {
    "saved_model": (kp.export_saved_model, "model"),
    "litert": (kp.export_litert, "model.tflite"),
    "onnx": (kp.export_onnx, "model.onnx"),
}


def run_file(path, inputs, signature="serving_default"):
    """The outputs of a file in its runtime, by their names."""
    if Path(path).suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))
    if Path(path).suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(path))
        return interpreter.get_signature_runner(signature)(**inputs)
    import tensorflow as tf

    module = tf.saved_model.load(str(path))
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    outputs = module.signatures[signature](**tensors)
    return {name: value.numpy() for name, value in outputs.items()}
