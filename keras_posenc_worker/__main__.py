"""Starts a process that obeys: `python -P -m keras_posenc_worker MODULE`.

With two more arguments, PREPARED and SOCKET, it starts one that forks others.
"""

import atexit
import json
import os
import signal
import socket
import sys

from keras_posenc_worker import process

module, *server = sys.argv[1:]
process.limit({})  # no core, whatever ends it
if sys.platform != "win32":  # what its starter's thread has blocked
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
if server:
    prepared, number = server
    # A low number, whatever it was there: `select` knows those only.
    control = socket.socket(fileno=os.dup(int(number)))
    os.close(int(number))
    process.serve(module, json.loads(prepared), control)
process.obey(module)
# TensorFlow takes most of a second to put itself away.
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
