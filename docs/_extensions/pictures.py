"""Pictures that answer sliders: `<div data-picture="...">` in a page.

`_static/pictures.js` draws them. What it cannot compute itself, the scores of
the schemes inside attention, the package computes here.
"""

import json
from typing import Any

from sphinx.application import Sphinx

SCHEMES = (
    "rotary",
    "alibi",
    "t5",
    "shaw",
    "transformer-xl",
    "kerple",
    "fire",
)
LENGTH, DIM, HEADS = 48, 32, 8


def scores() -> dict[str, Any]:
    """The scores of each scheme and head, by how far the key is behind."""
    import keras
    import numpy as np

    from keras_posenc import analysis

    keras.utils.set_random_seed(0)
    found = {}
    for name in SCHEMES:
        scheme = analysis.make_scheme(name, LENGTH)
        matrix = analysis.score_matrix(scheme, LENGTH, DIM, HEADS)
        # Position alone gives scores of the distance alone.
        apart = range(1 - LENGTH, LENGTH)
        diagonals = [np.diagonal(matrix, n, 1, 2) for n in apart]
        assert max(np.ptp(line, axis=-1).max() for line in diagonals) < 1e-3
        means = [line.mean(axis=-1) for line in diagonals]
        found[name] = np.round(np.transpose(means), 2).tolist()
    return {"length": LENGTH, "scores": found}


def _write(app: Sphinx) -> None:
    if app.builder.format == "html":
        folder = app.outdir / "_static"
        folder.mkdir(parents=True, exist_ok=True)
        data = json.dumps(scores(), separators=(",", ":"))
        (folder / "scores.js").write_text(f"const SCORES = {data};\n")


def _add(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    body = context.get("body", "")
    if 'data-picture="' in body:
        if 'data-picture="attention"' in body:
            app.add_js_file("scores.js", defer="defer")
        app.add_js_file("pictures.js", defer="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", _write)
    app.connect("html-page-context", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
