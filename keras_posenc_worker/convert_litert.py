"""Converts a SavedModel to LiteRT with TensorFlow's converter.

Each conversion leaks up to some 15 MB in the process that runs it (TensorFlow
2.21), writes to its standard error, and may crash.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc_worker import codec
from keras_posenc_worker.formats import litert_schema
from keras_posenc_worker.runtimes import read_graph

# Only operators with weights are quantized statically: 8 bits are too few for
# positions, norms and scores.
WEIGHTED = (
    "CONV_2D",
    "CONV_3D",
    "DEPTHWISE_CONV_2D",
    "EMBEDDING_LOOKUP",
    "FULLY_CONNECTED",
    "GATHER",
    "TRANSPOSE_CONV",
)


def prepare() -> None:
    """Loads the converter ahead of time."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.lite.TFLiteConverter  # noqa: B018  its modules are imported late


def main(path: str) -> str | None:
    """Converts as a request in a folder says; see `codec`.

    It has the `saved_model`, its `signatures`, whether operators of
    TensorFlow's own are `allowed`, and for calibration `batches`: signatures
    with inputs. Returns the converter's error, or None if `model.tflite` is in
    the folder.
    """
    prepare()
    import tensorflow as tf

    request = codec.read(Path(path), "request")
    read_graph(request["saved_model"])
    make: Any = _unread
    if request["batches"]:
        make = tf.lite.TFLiteConverter.from_saved_model
    converter = make(
        request["saved_model"], signature_keys=request["signatures"]
    )
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS,
        *[tf.lite.OpsSet.SELECT_TF_OPS] * request["allowed"],
    ]
    try:
        if request["batches"]:
            content = _calibrated(converter, request["batches"])
        else:
            content = converter.convert()
    except Exception as error:  # ConverterError is not public
        return str(error)
    Path(path, "model.tflite").write_bytes(content)
    return None


def _unread(folder: str, signature_keys: Sequence[str]) -> Any:
    """Returns a converter from SavedModel to LiteRT that skips Python's steps.

    TensorFlow's public converter loads the SavedModel twice and imports its
    graph once more, to look for fake quantization and for debug information.
    To merge equal constants it packs the file again, in Python, and holds it in
    memory four times. This one writes constants after the flatbuffer, where the
    fields `offset` and `size` of its buffers say.
    """
    import tensorflow as tf
    from tensorflow.lite.python import lite

    class Converter(lite.TFLiteSavedModelConverterV2):
        def convert(self) -> bytes:
            content: bytes = self._convert_from_saved_model(None)
            return content

        def _optimize_tflite_model(
            self, model: bytes, *arguments: Any, **named: Any
        ) -> bytes:
            return model

    converter = Converter(folder, {tf.saved_model.SERVING}, signature_keys)
    converter._experimental_use_buffer_offset = True
    return converter


def _calibrated(
    converter: Any, batches: Sequence[tuple[str, dict[str, Any]]]
) -> bytes:
    """Returns a file of `int8-static`."""
    import tensorflow as tf

    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    schema = litert_schema()

    def dataset() -> Iterator[tuple[str, dict[str, Any]]]:
        yield from map(tuple, batches)

    converter.representative_dataset = dataset
    # The converter quantizes every operator that it can, also positions and
    # norms. Its debugger is the public way to exclude operators.
    options = tf.lite.experimental.QuantizationDebugOptions(
        denylisted_ops=[
            name
            for name, value in vars(schema.BuiltinOperator).items()
            if isinstance(value, int) and name not in WEIGHTED
        ]
    )
    with warnings.catch_warnings():
        # The debugger uses an interpreter that warns of its deprecation.
        warnings.filterwarnings("ignore", "(?s).*Interpreter is deprecated")
        debugger = tf.lite.experimental.QuantizationDebugger(
            converter=converter, debug_dataset=dataset, debug_options=options
        )
    content: bytes = debugger.get_nondebug_quantized_model()
    return content
