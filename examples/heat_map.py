"""Draws the sinusoidal encoding: `python examples/heat_map.py [FILE.png]`.

Needs matplotlib: `pip install 'keras-posenc[plot]'`.
"""

import argparse
import os


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", default="encoding.png")
    path = parser.parse_args().path
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import matplotlib.pyplot as plt
    from keras import ops

    import keras_posenc as kp

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for ax, layout in zip(axes, ("interleaved", "halves"), strict=True):
        encoding = kp.positional_encoding(100, 64, layout=layout)
        image = ax.imshow(
            ops.convert_to_numpy(encoding)[0],
            aspect="auto",
            cmap="RdBu",
            vmin=-1,
            vmax=1,
            interpolation="nearest",
        )
        ax.set_title(f'layout="{layout}"')
        ax.set_xlabel("dimension (column)")
    axes[0].set_ylabel("position (token)")
    figure.colorbar(image, ax=axes, label="value", fraction=0.03, pad=0.02)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
