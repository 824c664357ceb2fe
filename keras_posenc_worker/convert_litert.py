"""Converts a SavedModel to LiteRT with TensorFlow's converter.

Each conversion leaks up to 15 MB (TensorFlow 2.21), and may crash.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_posenc_worker.process import import_for_good
from keras_posenc_worker.runtimes import read_graph


def prepare() -> None:
    """Loads the converter ahead of time."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_for_good("tensorflow")
    import tensorflow as tf

    tf.lite.TFLiteConverter  # noqa: B018  its modules are imported late


def main(saved_model: str, signatures: list[str], file: str) -> str | None:
    """Writes a file, and returns None; or returns the converter's error."""
    prepare()
    import tensorflow as tf

    read_graph(saved_model)
    converter = _unread(saved_model, signatures)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    try:
        content = converter.convert()
    except Exception as error:  # ConverterError is not public
        return str(error)
    Path(file).write_bytes(content)
    return None


def _unread(folder: str, signature_keys: Sequence[str]) -> Any:
    """Returns a converter that skips Python's steps.

    TensorFlow's public one loads the SavedModel three times, and holds the file
    in memory four times. This one writes constants after the flatbuffer.
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
