"""Starts a worker: `python -P -m keras_posenc_worker MODULE`.

With two more arguments, PREPARE and SOCKET, it starts a fork server.
"""

import json
import os
import signal
import socket
import sys

from keras_posenc_worker import process

module, *server = sys.argv[1:]
if (
    module != "keras_posenc_worker.read_keras"
):  # the only one that loads Keras models
    process.forbid("keras", "tf_keras")
process.limit({})  # no core dump after a crash
if sys.platform != "win32":  # inherited from the starting thread
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
if server:
    prepare, number = server
    # `dup` gives a low number: `select` fails for high ones.
    control = socket.socket(fileno=os.dup(int(number)))
    os.close(int(number))
    process.serve(module, json.loads(prepare), control)
process.obey(module)
