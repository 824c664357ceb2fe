"""One file of answers for each input file, whole or not at all."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.ground.errors import ExportError
from keras_posenc.artifacts.ground.staging import (
    publish,
    staging_beside,
    writing_to,
)
from keras_posenc.scoring.arrow import require_pyarrow
from keras_posenc.scoring.fragments import Fragment
from keras_posenc.scoring.reading import read
from keras_posenc.scoring.scorer import POSITION, REASON, Scorer

_KEY = b"keras_posenc.scoring"


class FragmentError(Exception):
    """A file that cannot be scored, while others can."""


def run_of(scorer: Scorer) -> dict[str, Any]:
    """What all files of a run have in common, as what JSON can hold."""
    return {
        "artifact": scorer.digest,
        "signature": scorer.signature,
        "columns": [each.column for each in scorer.inputs],
        "keep": scorer.keep,
        "max_bytes": scorer.max_bytes,
    }


def written(fragment: Fragment, out: Path) -> dict[str, Any] | None:
    """What was noted of a fragment when it was written; None if it was not.

    Raises:
        ValueError: The file there is another's.
    """
    require_pyarrow()
    import pyarrow.parquet as pq

    path = out / fragment.good
    if not path.exists():
        return None
    try:
        return json.loads(pq.read_schema(path).metadata[_KEY])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"'{path}' is there, and is no file of answers. Give another "
            "folder, or take it away"
        ) from error


def score_fragment(
    scorer: Scorer,
    fragment: Fragment,
    out: Path,
    tell: Callable[[int, int], object] = lambda rows, done: None,
) -> tuple[int, int]:
    """Writes the answers to a file, and its bad rows.

    Both are written beside their places, and renamed: the bad rows first, so
    that a file of good rows is the sign that all is there. Memory is that of
    one window of rows and its answers, however large the file is.

    Args:
        scorer: What answers.
        fragment: The file.
        out: The folder of outputs.
        tell: Is told how many rows were read, and how many bytes, so far.

    Returns:
        How many rows are good, and how many bad.

    Raises:
        FragmentError: The file cannot be read, or is another one meanwhile.
        ExportError: The artifact is gone, or the outputs cannot be written.
    """
    pa = require_pyarrow()
    import pyarrow.parquet as pq

    good_path, bad_path = out / fragment.good, out / fragment.bad
    folder = good_path.parent
    with staging_beside(folder) as staged, contextlib.ExitStack() as stack:
        with writing_to(folder):
            staged.mkdir()
        before = _of_fragment(fragment, fragment.state)
        record = json.dumps({"input": before, **run_of(scorer)}).encode()
        parts = read(
            fragment.path,
            fragment.format,
            inputs=scorer.inputs,
            keep=scorer.keep,
            window=scorer.window,
        )
        writers: list[Any] = []
        good_rows = bad_rows = rows = 0
        while part := _of_fragment(fragment, lambda: next(parts, None)):
            good, bad = _of_fragment(fragment, lambda: scorer(part.table))
            places = bad[POSITION].to_pylist()
            # What the reader says of a row says more than that it is null.
            reasons = [
                part.wrong.get(place, reason)
                for place, reason in zip(
                    places, bad[REASON].to_pylist(), strict=True
                )
            ]
            columns = [
                pa.array([rows + place for place in places], pa.int64()),
                pa.array(reasons, pa.string()),
                *bad.columns[2:],
            ]
            bad = pa.table(columns, schema=bad.schema)
            with writing_to(folder):
                if not writers:
                    for name, table in (("good", good), ("bad", bad)):
                        schema = table.schema.with_metadata({_KEY: record})
                        writers.append(
                            stack.enter_context(
                                pq.ParquetWriter(staged / name, schema)
                            )
                        )
                for writer, table in zip(writers, (good, bad), strict=True):
                    if table.num_rows:
                        writer.write_table(table)
            rows += part.table.num_rows
            good_rows, bad_rows = (
                good_rows + good.num_rows,
                bad_rows + bad.num_rows,
            )
            tell(rows, part.done)
        with writing_to(folder):
            stack.close()
            if _of_fragment(fragment, fragment.state) != before:
                raise FragmentError("it was changed while it was read")
            if bad_rows:
                publish(staged / "bad", bad_path)
            else:
                bad_path.unlink(missing_ok=True)
            publish(staged / "good", good_path)
    return good_rows, bad_rows


def _of_fragment(fragment: Fragment, work: Callable[[], Any]) -> Any:
    """Does what may fail for this file alone."""
    try:
        return work()
    except (ExportError, ImportError):
        raise
    except Exception as error:  # whatever a reader raises
        if isinstance(error, FileNotFoundError):
            raise FragmentError("it does not exist any more") from error
        reason = str(error).strip().partition("\n")[0]
        raise FragmentError(f"{reason or type(error).__name__}") from error
