"""Whether an artifact is still the one that was looked at.

It is read several times: to inspect it, to run it, to compare it. All that is
said of it is of one artifact only if nobody exchanges its files meanwhile, as
an export to the same path does. What the system notes of files tells that, at
no cost: the time of the last change of a file's entry is set by the kernel, and
moves with whatever is written to it or renamed. A digest would cost as much as
reading it all twice, and not see what is put back in the end.
"""

import os
from pathlib import Path

from keras_posenc.artifacts.ground.errors import ExportVerificationError
from keras_posenc.artifacts.ground.regular_files import is_hidden

# More than `inspection/folders.py` lets an artifact have.
_MOST_DEPTH, _MOST_FILES = 128, 20_000

Stamp = dict[str, tuple[int, ...]]


def stamp(artifact: Path) -> Stamp:
    """What the system notes of each file of an artifact, by its path.

    Of a folder all that is in it, and itself: as much of that as an artifact
    may hold.
    """
    paths = [str(artifact)]
    depth = len(artifact.parts) + _MOST_DEPTH
    for folder, folders, files in os.walk(artifact):
        if folder == paths[0]:
            for names in (folders, files):
                names[:] = [each for each in names if not is_hidden(each)]
        paths += (os.path.join(folder, name) for name in (*folders, *files))
        if len(Path(folder).parts) > depth or len(paths) > _MOST_FILES:
            folders.clear()  # it is refused: see `inspection/folders.py`
    found: Stamp = {}
    for path in paths:
        try:
            state = os.stat(path)
        except OSError:  # it is gone, or a link to nothing
            found[path] = ()
            continue
        found[path] = (
            *(state.st_dev, state.st_ino, state.st_size),
            *(state.st_mtime_ns, state.st_ctime_ns),
        )
    return found


def check_unchanged(artifact: Path, before: Stamp) -> None:
    """Raises `ExportVerificationError` where its stamp is not `before`."""
    now = stamp(artifact)
    changed = sorted(
        path
        for path in {*before, *now}
        if before.get(path) != now.get(path) and not os.path.isdir(path)
    )
    if before != now:
        raise ExportVerificationError(
            f"'{artifact}' was changed while it was verified"
            + f" ({', '.join(changed[:3])})" * bool(changed)
            + ". Verify it again, when nobody writes to it"
        )
