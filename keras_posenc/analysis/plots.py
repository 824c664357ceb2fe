"""Pictures of positional schemes, for matplotlib.

Each takes the axes to draw on, or makes some, and returns them. Figures are
made without a window, so that all of it works on a machine without a screen.
"""

from typing import Any

import numpy as np

from keras_posenc.analysis.vectors import encoding_vectors, score_matrix
from keras_posenc.ops.arguments import (
    check_max_wavelength,
    check_positive_int,
)
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.positional.attention_position import AttentionPosition

_POSITION = "position (tokens)"
_DIMENSION = "dimension (column)"


def plot_heatmap(
    encoding: Any, length: int = 128, dim: int = 64, *, ax: Any = None
) -> Any:
    """Value by position and dimension: low dimensions change fast.

    Args:
        encoding: As for `encoding_vectors`.
        length: How many positions.
        dim: Width of the inputs.
        ax: Where to draw; a new figure by default.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: As `encoding_vectors`.
    """
    vectors = encoding_vectors(encoding, length, dim)
    ax = _axes(ax)
    limit = np.max(np.abs(vectors)) or 1.0
    image = ax.imshow(
        vectors,
        aspect="auto",
        cmap="RdBu",
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
    )
    ax.set(xlabel=_DIMENSION, ylabel=_POSITION)
    ax.figure.colorbar(image, ax=ax, label="value")
    return ax


def plot_waves(
    encoding: Any,
    length: int = 128,
    dim: int = 64,
    *,
    dimensions: Any = None,
    ax: Any = None,
) -> Any:
    """Value over position, a curve for each of some dimensions.

    Args:
        encoding: As for `encoding_vectors`.
        length: How many positions.
        dim: Width of the inputs.
        dimensions: Which columns; five, evenly spread, by default.
        ax: Where to draw; a new figure by default.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: As `encoding_vectors`, or a dimension that is not there.
    """
    vectors = encoding_vectors(encoding, length, dim)
    width = vectors.shape[1]
    if dimensions is None:
        count = min(5, width)
        dimensions = np.linspace(0, width - 1, count).astype(int).tolist()
    for dimension in dimensions:
        if not -width <= dimension < width:
            raise ValueError(
                f"`dimensions` must be columns of {width}. "
                f"Received: dimensions={list(dimensions)}"
            )
    ax = _axes(ax)
    for dimension in dimensions:
        ax.plot(vectors[:, dimension], label=str(dimension))
    ax.set(xlabel=_POSITION, ylabel="value")
    ax.legend(
        title="dimension",
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        fontsize="small",
    )
    return ax


def plot_circle(
    encoding: Any, length: int = 32, dim: int = 2, *, ax: Any = None
) -> Any:
    """Positions as points of the first two dimensions: on a circle.

    Args:
        encoding: As for `encoding_vectors`; at least two wide.
        length: How many positions.
        dim: Width of the inputs.
        ax: Where to draw; a new figure by default.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: As `encoding_vectors`, or one dimension alone.
    """
    vectors = _at_least(2, encoding_vectors(encoding, length, dim))
    ax = _axes(ax)
    x, y = vectors[:, 0], vectors[:, 1]
    points = ax.scatter(x, y, c=np.arange(length), cmap="viridis", s=18)
    for position in {0, 1, 2, length - 1} & set(range(length)):
        ax.annotate(str(position), (x[position], y[position]))
    ax.set(xlabel="dimension 0 (value)", ylabel="dimension 1 (value)")
    ax.set_aspect("equal")
    ax.figure.colorbar(points, ax=ax, label=_POSITION)
    return ax


def plot_winding(
    encoding: Any, length: int = 500, dim: int = 3, *, ax: Any = None
) -> Any:
    """Positions as a curve of the first three dimensions: round a cylinder.

    Args:
        encoding: As for `encoding_vectors`; at least three wide.
        length: How many positions.
        dim: Width of the inputs.
        ax: Where to draw, with `projection="3d"`; a new figure by default.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: As `encoding_vectors`, or fewer dimensions, or axes that
            are flat.
    """
    vectors = _at_least(3, encoding_vectors(encoding, length, dim))
    ax = _axes(ax, projection="3d")
    if not hasattr(ax, "set_zlabel"):
        raise ValueError(
            "`ax` must be made with projection='3d'. "
            f"Received: ax={type(ax).__name__}"
        )
    x, y, z = vectors[:, :3].T
    ax.plot(x, y, z, linewidth=0.6, color="0.7")
    points = ax.scatter(x, y, z, c=np.arange(length), cmap="viridis", s=4)
    ax.set(
        xlabel="dimension 0 (value)",
        ylabel="dimension 1 (value)",
        zlabel="dimension 2 (value)",
    )
    ax.locator_params(nbins=4)
    ax.figure.colorbar(points, ax=ax, label=_POSITION, shrink=0.7, pad=0.15)
    return ax


def plot_similarity(
    encoding: Any,
    length: int = 128,
    dim: int = 64,
    *,
    num_heads: int = 8,
    ax: Any = None,
) -> Any:
    """How alike any two positions look.

    Args:
        encoding: A layer that encodes its input, an array `(length, dim)`, or
            an `AttentionPosition`.
        length: How many positions.
        dim: Width of the inputs, or of a head.
        num_heads: How many heads, whose mean is shown.
        ax: Where to draw; a new figure by default.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: As `encoding_vectors` and `score_matrix`.
    """
    if isinstance(encoding, AttentionPosition):
        scores = score_matrix(encoding, length, dim, num_heads)
        similarity, label = np.mean(scores, axis=0), "mean score"
    else:
        vectors = encoding_vectors(encoding, length, dim)
        similarity, label = vectors @ vectors.T, "scalar product"
    ax = _axes(ax)
    image = ax.imshow(similarity, cmap="viridis", interpolation="nearest")
    ax.set(xlabel=_POSITION, ylabel=_POSITION)
    ax.figure.colorbar(image, ax=ax, label=label)
    return ax


def plot_bias(
    position: AttentionPosition,
    length: int = 64,
    dim: int = 64,
    *,
    num_heads: int = 8,
    head: int = 0,
    ax: Any = None,
) -> Any:
    """The scores that one head gives positions, of tokens all the same.

    Args:
        position: The scheme inside attention.
        length: How many positions.
        dim: Width of a head.
        num_heads: How many heads.
        head: Which of them.
        ax: Where to draw; a new figure by default.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: As `score_matrix`, or a head that is not there.
    """
    scores = score_matrix(position, length, dim, num_heads)
    if not 0 <= head < num_heads:
        raise ValueError(
            f"`head` must be from 0 to {num_heads - 1}. Received: head={head}"
        )
    ax = _axes(ax)
    image = ax.imshow(scores[head], cmap="magma", interpolation="nearest")
    ax.set(
        xlabel="key's position (tokens)",
        ylabel="query's position (tokens)",
        title=f"head {head} of {num_heads}",
    )
    ax.figure.colorbar(image, ax=ax, label="score")
    return ax


def plot_wavelengths(
    dim: int = 64, *, max_wavelength: float = 10000, ax: Any = None
) -> Any:
    """The wavelength of each pair of dimensions of the sinusoid.

    Args:
        dim: Width of the encoding.
        max_wavelength: As for `PositionalEncoding`.
        ax: Where to draw; a new figure by default.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: A width or a base that is none.
    """
    dim = check_positive_int("dim", dim)
    max_wavelength = check_max_wavelength(max_wavelength)
    wavelengths = 2 * np.pi / frequencies(dim, max_wavelength=max_wavelength)
    ax = _axes(ax)
    ax.semilogy(wavelengths, marker=".")
    ax.set(xlabel="pair of dimensions", ylabel="wavelength (tokens)")
    return ax


def _axes(ax: Any, **options: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib: pip install 'keras-posenc[plot]'"
        ) from error
    # Not by pyplot, which may open windows and keeps every figure.
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot(**options)


def _at_least(count: int, vectors: Any) -> Any:
    if vectors.shape[1] < count:
        raise ValueError(
            f"The encoding must be at least {count} wide for this picture. "
            f"Received: width {vectors.shape[1]}"
        )
    return vectors
