"""Scores files without Keras: the worker's side of `files.py`."""

import base64
import pickle
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.scoring.scorer import Scorer
from keras_posenc.scoring.writing import Fragment, FragmentError, score_fragment
from keras_posenc_worker.process import respond

_scorer: Scorer


def prepare(pickled: str) -> None:
    """Loads the scorer, which must be pickled and in base64."""
    global _scorer
    _scorer = pickle.loads(base64.b64decode(pickled))


def score(path: str, name: str, format: str, out: str) -> dict[str, Any]:
    """Scores one file; responds with the number of `rows` meanwhile."""
    try:
        good, bad = score_fragment(
            _scorer,
            Fragment(Path(path), name, format),
            Path(out),
            lambda rows: respond({"rows": rows}),
        )
    except FragmentError as error:
        return {"failed": str(error)}
    except (ExportError, ImportError) as error:
        is_import = isinstance(error, ImportError)
        return {"fatal": str(error), "is_import": is_import}
    return {"good": good, "bad": bad}
