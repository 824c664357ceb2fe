"""Reads an exported SavedModel with OpenVINO.

    python reader.py serving/judge/1

prints inputs and outputs; `read_model(path)` is for your own program. OpenVINO
reads `serving_default` alone, and has no TF-Text: export a model of ids, or
give its ids a signature of that name. What it lacks besides is one operator,
Bitcast: the tables of the encodings are kept as the bits of their numbers.

Where the CPU has bfloat16, OpenVINO computes in it, and answers differ in the
third digit. For the model's own:

    openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
"""

import sys

import numpy as np
import openvino
import openvino.opset15 as ops
from openvino.frontend.tensorflow import ConversionExtension


def read_model(path):
    """The SavedModel in a version folder, as an OpenVINO model."""
    core = openvino.Core()
    core.add_extension(ConversionExtension("Bitcast", _bitcast))
    return core.read_model(str(path))


def _bitcast(node):
    """Numbers in float32 from their bits in int32, exactly."""
    bits = node.get_input(0)
    if bits.get_element_type() != openvino.Type.i32:
        raise NotImplementedError("Bitcast from anything but int32")

    def integer(value):
        return ops.constant(np.int32(value))

    exponent = ops.bitwise_and(
        ops.bitwise_right_shift(bits, integer(23)), integer(255)
    )
    fraction = ops.bitwise_and(bits, integer(2**23 - 1))
    # Subnormal numbers have no leading one.
    is_normal = ops.greater(exponent, integer(0))
    fraction = ops.select(
        is_normal, ops.add(fraction, integer(2**23)), fraction
    )
    powers = np.ldexp(np.float32(1), np.maximum(np.arange(256), 1) - 150)
    scale = ops.gather(
        ops.constant(powers.astype("float32")), exponent, integer(0)
    )
    size = ops.multiply(ops.convert(fraction, "f32"), scale)
    is_negative = ops.less(bits, integer(0))
    return ops.select(is_negative, ops.negative(size), size).outputs()


if __name__ == "__main__":
    print(read_model(sys.argv[1]))
