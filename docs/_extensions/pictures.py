"""Pictures that are made when the site is built.

`<div data-picture="...">` in a page is a picture with sliders, which
`_static/pictures.js` draws; the scores of positions inside attention, which it
cannot compute, are written here. The directive `gallery` shows the pictures of
`examples/gallery.py`.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]

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


class Gallery(SphinxDirective):
    """Shows each positional encoding: a heading, its pictures, its class."""

    def run(self) -> list[nodes.Node]:
        import keras

        from keras_posenc import analysis

        example = ROOT / "examples" / "gallery.py"
        self.env.note_dependency(str(example))
        spec = importlib.util.spec_from_file_location("gallery", example)
        gallery = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(gallery)
        keras.utils.set_random_seed(0)
        # Below the root of the sources, where Sphinx looks for pictures.
        folder = ROOT / "build" / "docs-gallery"
        folder.mkdir(parents=True, exist_ok=True)

        def show(name: str, pictures: list[tuple[Any, str]]) -> str:
            lines = []
            for number, (ax, caption) in enumerate(pictures):
                file = folder / f"{name}-{number}.png"
                file.write_bytes(gallery.png(ax))
                place = file.relative_to(ROOT)
                lines.append(
                    f":::{{figure}} /{place}\n:alt: {name}, {caption}\n"
                    f":figclass: gallery\n\n{caption}\n:::\n"
                )
            return "\n".join(lines)

        text = f"## The sinusoid\n\n{show('sinusoid', gallery.geometry())}\n"
        for name in analysis.SCHEMES:
            scheme = analysis.make_scheme(name, LENGTH)
            kind = type(scheme).__name__
            summary = (type(scheme).__doc__ or "").splitlines()[0]
            pictures = gallery.pictures_of(scheme, LENGTH, DIM)
            text += (
                f"## {name}\n\n{{py:class}}`keras_posenc.{kind}`: {summary}\n\n"
                f"{show(name, pictures)}\n"
            )
        return self.parse_text_to_nodes(text, allow_section_headings=True)


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
    app.add_directive("gallery", Gallery)
    app.connect("builder-inited", _write)
    app.connect("html-page-context", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
