"""Scores files in a process of its own, one after the other.

A script, which `processes.py` starts. Each line of standard input is a file to
score, and the first one the scorer; each line of standard output says how far
it is. It ends as soon as its input does, whatever it does then.
"""

import base64
import json
import os
import pickle
import queue
import sys
import threading
import types
from pathlib import Path


def main() -> None:
    """Answers until there is no more input."""
    if "keras_posenc" not in sys.modules:
        # Without what the package imports first: Keras, which takes seconds.
        package = types.ModuleType("keras_posenc")
        package.__path__ = [str(Path(__file__).parents[1])]
        sys.modules["keras_posenc"] = package
    from keras_posenc.export.errors import ExportError
    from keras_posenc.scoring.fragments import Fragment
    from keras_posenc.scoring.writing import FragmentError, score_fragment

    messages = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what others print is no message

    def say(**message: object) -> None:
        messages.write(json.dumps(message) + "\n")

    orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        os._exit(1)  # who started it has ended, or wants no more

    threading.Thread(target=listen, daemon=True).start()
    scorer = pickle.loads(base64.b64decode(orders.get()))
    while True:
        path, name, format, out = json.loads(orders.get())
        try:
            good, bad = score_fragment(
                scorer,
                Fragment(Path(path), name, format),
                Path(out),
                lambda rows, done: say(rows=rows, done=done),
            )
        except FragmentError as error:
            say(failed=str(error))
        except (ExportError, ImportError) as error:
            say(fatal=str(error), is_import=isinstance(error, ImportError))
        else:
            say(good=good, bad=bad)


if __name__ == "__main__":
    main()
