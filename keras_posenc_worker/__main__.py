"""Starts a worker: `python -P -m keras_posenc_worker MODULE`."""

import signal
import sys

from keras_posenc_worker import process

(module,) = sys.argv[1:]
if (
    module != "keras_posenc_worker.read_keras"
):  # the only one that loads Keras models
    process.forbid("keras", "tf_keras")
process.limit(None)  # also until the first request
if sys.platform != "win32":  # inherited from the starting thread
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
process.obey(module)
