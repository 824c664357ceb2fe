"""Writes one page of pictures for every scheme: `python examples/gallery.py`.

The page opens by a double click, and needs nothing beside it. Needs
matplotlib: `pip install 'keras-posenc[plot]'`.
"""

import argparse
import base64
import html
import io
import os
from pathlib import Path
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em;
       padding: 0 1em; color: #222; }
section { border-top: 1px solid #ccc; margin-top: 2em; }
.pictures { display: flex; flex-wrap: wrap; gap: 1em; }
figure { margin: 0; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: 0.15em 1em 0.15em 0; text-align: right; }
td:first-child, th:first-child { text-align: left; }
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gallery.html"))
    parser.add_argument("--length", type=int, default=64, help="positions")
    parser.add_argument("--dim", type=int, default=32, help="width")
    options = parser.parse_args()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    from rich.console import Console
    from rich.progress import track

    from keras_posenc import analysis

    keras.utils.set_random_seed(0)
    sections = [
        section(name, options.length, options.dim)
        for name in track(
            analysis.SCHEMES,
            "Drawing",
            console=Console(stderr=True),
            transient=True,
        )
    ]
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<title>Positional schemes</title>"
        f"<style>{STYLE}</style><h1>Positional schemes</h1>"
        f"<p>{options.length} positions; encodings of width {options.dim}, "
        f"attention of 8 heads of width {options.dim}, all tokens the same. "
        "Schemes that learn are shown as they begin.</p>"
        + f"<h2>The sinusoid</h2>{row(geometry())}"
        + "".join(sections)
    )
    options.out.write_text(page + "</html>\n", encoding="utf-8")
    print(f"Wrote {options.out} ({options.out.stat().st_size / 1e6:.1f} MB)")


def geometry() -> list[tuple[Any, str]]:
    """Returns pictures of the sinusoid, each with its caption."""
    import keras_posenc as kp
    from keras_posenc import analysis

    encoding = kp.PositionalEncoding()
    return [
        (analysis.plot_circle(encoding), "32 positions in 2 dimensions"),
        (analysis.plot_winding(encoding), "500 positions in 3 dimensions"),
        (analysis.plot_waves(encoding), "values over position"),
        (analysis.plot_wavelengths(), "wavelengths of 64 dimensions"),
    ]


def pictures_of(scheme: Any, length: int, dim: int) -> list[tuple[Any, str]]:
    """Returns pictures of a positional encoding, each with its caption."""
    import keras_posenc as kp
    from keras_posenc import analysis

    if isinstance(scheme, kp.AttentionPosition):
        pictures = [
            (
                analysis.plot_bias(scheme, length, dim, head=head),
                f"scores of head {head}",
            )
            for head in (0, 7)
        ]
    else:
        pictures = [(analysis.plot_heatmap(scheme, length, dim), "encoding")]
    pictures.append(
        (analysis.plot_similarity(scheme, length, dim), "similarity")
    )
    return pictures


def section(name: str, length: int, dim: int) -> str:
    from keras_posenc import analysis

    scheme = analysis.make_scheme(name, length)
    kind = type(scheme)
    summary = (kind.__doc__ or "").splitlines()[0]
    return (
        f"<section><h2>{html.escape(name)}: <code>{kind.__name__}</code></h2>"
        f"<p>{html.escape(summary)}</p>"
        f"{row(pictures_of(scheme, length, dim))}"
        f"{table(analysis.properties(scheme, length, dim))}</section>"
    )


def png(ax: Any) -> bytes:
    buffer = io.BytesIO()
    ax.figure.set_size_inches(4.4, 3.4)
    # Tight, lest long numbers push a label off the edge.
    ax.figure.savefig(buffer, format="png", dpi=65, bbox_inches="tight")
    return buffer.getvalue()


def row(pictures: list[tuple[Any, str]]) -> str:
    figures = []
    for ax, caption in pictures:
        data = base64.b64encode(png(ax)).decode()
        figures.append(
            f"<figure><img src='data:image/png;base64,{data}' "
            f"alt='{html.escape(caption)}'>"
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    return f"<div class='pictures'>{''.join(figures)}</div>"


def table(found: Any) -> str:
    numbers = found.to_dict()
    del numbers["similarity"]
    cells = "".join(
        f"<tr><td>{name.replace('_', ' ')}</td><td>"
        f"{'too few positions to tell' if value is None else f'{value:.3g}'}"
        "</td></tr>"
        for name, value in numbers.items()
    )
    return f"<table>{cells}</table>"


if __name__ == "__main__":
    main()
