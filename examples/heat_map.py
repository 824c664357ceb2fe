"""Draws the sinusoidal encoding: `python examples/heat_map.py [FILE.png]`.

Needs matplotlib: `pip install 'keras-posenc[plot]'`.
"""

import argparse
import os


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", default="encoding.png")
    path = parser.parse_args().path
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from matplotlib.figure import Figure

    import keras_posenc as kp
    from keras_posenc import analysis

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, layout in zip(axes, ("interleaved", "halves"), strict=True):
        encoding = kp.PositionalEncoding(layout=layout)
        analysis.plot_heatmap(encoding, 100, 64, ax=ax)
        ax.set_title(f'layout="{layout}"')
    figure.savefig(path, dpi=110)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
