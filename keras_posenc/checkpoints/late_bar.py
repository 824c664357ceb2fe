"""Progress of predictions that take longer than a second."""

import contextlib
import time
from typing import Any

import keras

_SECONDS = 1.0


class LateBar(contextlib.ExitStack, keras.callbacks.Callback):
    """Shows on standard error how much is done, from the first second on.

    It is a context too, at whose end the bar is removed.

    Args:
        rows: How many rows are predicted.
    """

    def __init__(self, rows: int) -> None:
        contextlib.ExitStack.__init__(self)
        keras.callbacks.Callback.__init__(self)
        self._rows = rows
        self._show: Any = None

    def on_predict_begin(self, logs: Any = None) -> None:
        self._began = time.monotonic()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        total, done = self.params.get("steps"), batch + 1
        is_late = time.monotonic() - self._began > _SECONDS
        if self._show is None and is_late and done != total:
            from keras_posenc.progress import counting  # late: few need it

            self._show = self.enter_context(counting(True, self._rows))
        if self._show is not None:
            rows = self._rows * done // total
            self._show(rows, rows)
