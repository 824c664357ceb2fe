"""Pictures of positional encodings and of generators, with matplotlib.

Each function draws on the axes given, or on new ones, and returns them. Figures
are made without a window, and so also on machines without a screen.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc.analysis.attention import AttentionMap
from keras_posenc.analysis.properties import encoding_vectors, score_matrix
from keras_posenc.checks import check_max_wavelength, check_positive_int
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.positional.attention_position import AttentionPosition

_POSITION = "position (tokens)"
_DIMENSION = "dimension (column)"
_LARGEST = 40.0  # inches: the longest side of a picture of tokens


def plot_heatmap(
    encoding: Any, length: int = 128, dim: int = 64, *, ax: Any = None
) -> Any:
    """Draws the encoding by position and dimension: low ones change fast.

    >>> import keras_posenc as kp
    >>> from keras_posenc import analysis
    >>> axes = analysis.plot_heatmap(kp.PositionalEncoding(), 100, 64)

    Args:
        encoding: A layer of the input, or an array, as for `encoding_vectors`.
        length: How many positions.
        dim: Width of the inputs.
        ax: Matplotlib's axes to draw on; those of a new figure by default.

    Returns:
        The axes. All pictures take `ax` and return it.

    Raises:
        ImportError: Without matplotlib, naming the extra.
        ValueError: As `encoding_vectors`.
    """
    vectors = encoding_vectors(encoding, length, dim)
    limit = np.max(np.abs(vectors)) or 1.0
    return _image(
        ax,
        vectors,
        "value",
        aspect="auto",
        cmap="RdBu",
        vmin=-limit,
        vmax=limit,
        xlabel=_DIMENSION,
    )


def plot_waves(
    encoding: Any,
    length: int = 128,
    dim: int = 64,
    *,
    dimensions: Any = None,
    ax: Any = None,
) -> Any:
    """Draws the encoding over the position, one curve for each dimension.

    Args:
        encoding: As for `plot_heatmap`.
        length: How many positions.
        dim: Width of the inputs.
        dimensions: Which columns; five, evenly spread, by default.
        ax: As for `plot_heatmap`.

    Raises:
        ValueError: As `plot_heatmap`, or a dimension that is not there.
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
    """Draws positions in the first two dimensions: points on a circle.

    Arguments and errors are those of `plot_heatmap`; the encoding must be at
    least two wide.
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
    """Draws positions in the first three dimensions: a curve on a cylinder.

    Arguments and errors are those of `plot_heatmap`; the encoding must be at
    least three wide, and an `ax` made with `projection="3d"`.
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
    """Draws how similar the encodings of any two positions are.

    Args:
        encoding: A layer that encodes its input, an array `(length, dim)`, or
            an `AttentionPosition`.
        length: How many positions.
        dim: Width of the inputs, or of a head.
        num_heads: How many heads, whose mean is shown.
        ax: As for `plot_heatmap`.

    Raises:
        ValueError: As `encoding_vectors` and `score_matrix`.
    """
    if isinstance(encoding, AttentionPosition):
        scores = score_matrix(encoding, length, dim, num_heads)
        similarity, label = np.mean(scores, axis=0), "mean score"
    else:
        vectors = encoding_vectors(encoding, length, dim)
        similarity, label = vectors @ vectors.T, "scalar product"
    return _image(ax, similarity, label)


def plot_bias(
    position: AttentionPosition,
    length: int = 64,
    dim: int = 64,
    *,
    num_heads: int = 8,
    head: int = 0,
    ax: Any = None,
) -> Any:
    """Draws the scores that positions give one head, for identical tokens.

    Args:
        position: The kind of position inside attention.
        length: How many positions.
        dim: Width of a head.
        num_heads: How many heads.
        head: Which of them.
        ax: As for `plot_heatmap`.

    Raises:
        ValueError: As `score_matrix`, or a head that is not there.
    """
    scores = score_matrix(position, length, dim, num_heads)
    if not 0 <= head < num_heads:
        raise ValueError(
            f"`head` must be from 0 to {num_heads - 1}. Received: head={head}"
        )
    ax = _image(
        ax,
        scores[head],
        "score",
        xlabel="key's position (tokens)",
        ylabel="query's position (tokens)",
    )
    ax.set_title(f"head {head} of {num_heads}")
    return ax


def plot_wavelengths(
    dim: int = 64, *, max_wavelength: float = 10000, ax: Any = None
) -> Any:
    """Draws the wavelength of each pair of dimensions of the sinusoid.

    Args:
        dim: Width of the encoding.
        max_wavelength: As for `PositionalEncoding`.
        ax: As for `plot_heatmap`.
    """
    dim = check_positive_int("dim", dim)
    max_wavelength = check_max_wavelength(max_wavelength)
    wavelengths = 2 * np.pi / frequencies(dim, max_wavelength=max_wavelength)
    ax = _axes(ax)
    ax.semilogy(wavelengths, marker=".")
    ax.set(xlabel="pair of dimensions", ylabel="wavelength (tokens)")
    return ax


def plot_attention(
    attention: AttentionMap,
    *,
    layer: int | None = None,
    head: int | None = None,
    ax: Any = None,
) -> Any:
    """Draws how much each token attends to each: keys right, queries down.

    For cross-attention the source is to the right, and the target, as it is
    written, down. A new figure is as large as the texts need. Give
    `matplotlib.rcParams["font.family"]` fonts that have all characters.

    Args:
        attention: The output of `attention_map`.
        layer: Which layer, from 0 on; None for the mean of all.
        head: Which head, from 0 on; None for the mean of all.
        ax: As for `plot_heatmap`.

    Raises:
        ValueError: No such layer or head, or not an `AttentionMap`.
    """
    if not isinstance(attention, AttentionMap):
        raise ValueError(
            "`attention` must be what `attention_map` returns, of a generator "
            f"and a text. Received: attention={attention!r:.60}"
        )
    weights = attention.mean(layer=layer, head=head)
    rows, columns = weights.shape
    size = max(4.5, 2.5 + 0.24 * columns), max(3.4, 1.5 + 0.24 * rows)
    ax = _axes(ax, size=size)
    image = ax.imshow(
        weights, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest"
    )
    _tokens_along(ax.xaxis, attention.keys)
    _tokens_along(ax.yaxis, attention.queries)
    for label in ax.get_xticklabels():
        if len(label.get_text()) > 2:
            label.set_rotation(90)
    of_keys, of_queries = {
        "cross": ("source", "written target"),
        "source": ("source", "source"),
        "target": ("read target", "written target"),
    }[attention.kind]
    layers, heads = attention.weights.shape[:2]
    which = _which("layer", layer, layers), _which("head", head, heads)
    ax.set(
        xlabel=f"{of_keys} (tokens)",
        ylabel=f"{of_queries} (tokens)",
        title=", ".join(which),
    )
    # The same width in inches, however many tokens there are.
    width = 0.7 / ax.figure.get_figwidth()
    ax.figure.colorbar(image, ax=ax, label="weight", fraction=width, pad=0.02)
    return ax


def plot_quantization(found: Any, *, ax: Any = None) -> Any:
    """Draws what each weight loses in each mode, and which mode it got.

    >>> import keras_posenc as kp
    >>> from keras_posenc import analysis
    >>> found = kp.quantize(
    ...     model, "m.tflite", samples=texts
    ... )  # doctest: +SKIP
    >>> ax = analysis.plot_quantization(found)  # doctest: +SKIP

    Args:
        found: What `keras_posenc.quantize` returns.
        ax: Matplotlib axes to draw on; by default those of a new figure.

    Returns:
        The axes: a line for each weight, the largest loss on top, with a dot
        for each mode that was measured. The chosen mode's dot is filled, unless
        it was not measured.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: No weight was measured, or it is something else.
    """
    weights = getattr(found, "weights", None)
    if not weights or not hasattr(found, "quantization"):
        raise ValueError(
            "`found` must be what `quantize` returns, with weights that it has "
            f"measured. Received: {found!r:.200}"
        )
    weights = sorted(weights, key=lambda each: max(each.losses.values()))
    ax = _axes(ax, size=(8, 1.2 + 0.25 * len(weights)))
    modes = dict.fromkeys(mode for each in weights for mode in each.losses)
    for color, mode in enumerate(modes):
        places = [
            (each.losses[mode], place, each.mode == mode)
            for place, each in enumerate(weights)
            if each.losses.get(mode)  # a loss of 0 is beyond a logarithm
        ]
        if not places:
            continue
        losses, rows, is_chosen = zip(*places, strict=True)
        ax.scatter(
            losses,
            rows,
            label=mode,
            edgecolors=f"C{color}",
            facecolors=[f"C{color}" if x else "none" for x in is_chosen],
        )
    ax.set_xscale("log")
    ax.set_xlabel("loss of the outputs, with this weight alone in the mode")
    ax.set_yticks(
        range(len(weights)),
        [f"{each.name}: {each.mode}" for each in weights],
        fontsize="small",
    )
    ax.legend(
        title="mode (filled: chosen)",
        fontsize="small",
        loc="lower center",
        bbox_to_anchor=(0.5, 1),  # above the axes
        ncols=len(modes),
    )
    return ax


def _image(
    ax: Any,
    values: Any,
    label: str,
    *,
    xlabel: str = _POSITION,
    ylabel: str = _POSITION,
    **options: Any,
) -> Any:
    """Draws a matrix of colors, with their scale; returns the axes."""
    ax = _axes(ax)
    options = {"cmap": "Blues", "interpolation": "nearest", **options}
    image = ax.imshow(values, **options)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.figure.colorbar(image, ax=ax, label=label)
    return ax


def _which(name: str, index: int | None, count: int) -> str:
    if index is None:
        return f"mean of {count} {name}s" if count > 1 else f"one {name}"
    return f"{name} {index} of {count}"


def _tokens_along(axis: Any, tokens: Sequence[str]) -> None:
    """Labels an axis with tokens: with all of them, as long as they fit."""
    every = -(-len(tokens) // 160)
    axis.set_ticks(range(0, len(tokens), every), tokens[::every])


def _axes(
    ax: Any, *, size: tuple[float, float] = (6, 4.5), **options: Any
) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib: pip install 'keras-posenc[plot]'"
        ) from error
    # Without pyplot, which may open windows and keeps every figure in memory.
    size = min(size[0], _LARGEST), min(size[1], _LARGEST)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot(**options)


def _at_least(count: int, vectors: Any) -> Any:
    if vectors.shape[1] < count:
        raise ValueError(
            f"The encoding must be at least {count} wide for this picture. "
            f"Received: width {vectors.shape[1]}"
        )
    return vectors
