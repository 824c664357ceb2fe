"""Arguments that several public functions take."""

from typing import Any

import keras


def check_verify(verify: bool, samples: Any) -> None:
    """Raises `ValueError` for samples that would not be used."""
    if samples is not None and not verify:
        raise ValueError(
            "`samples` are for the verification. Received: samples with "
            "verify=False"
        )


def require_tensorflow_backend(function: str) -> None:
    """Raises `RuntimeError` on another backend, and says what to do."""
    backend = keras.config.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"`{function}` needs the TensorFlow backend, and this is "
            f"'{backend}'. Save the model by model.save('model.keras'), then "
            "run: keras-posenc export saved-model model.keras --out FOLDER "
            "(or export litert model.keras --out FILE.tflite)"
        )
