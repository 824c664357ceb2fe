"""A progress bar for predictions that take longer than a second."""

import time
from typing import Any

import keras

_SECONDS = 1.0


class LateBar(keras.callbacks.Callback):
    """Shows the batches that are done, from the first second on."""

    def on_predict_begin(self, logs: Any = None) -> None:
        self._bar: Any = None
        self._began = time.monotonic()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        total, done = self.params.get("steps"), batch + 1
        is_late = time.monotonic() - self._began > _SECONDS
        if self._bar is None and is_late and done != total:
            self._bar = keras.utils.Progbar(total)
        if self._bar is not None:
            self._bar.update(done, finalize=done == total)
