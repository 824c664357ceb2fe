"""Positional encodings and generators, as numbers and as pictures.

    from keras_posenc import analysis

Pictures need matplotlib: `pip install 'keras-posenc[plot]'`.
"""

from keras_posenc.analysis.attention import (
    AttentionMap,
    attention_map,
    token_labels,
)
from keras_posenc.analysis.plots import (
    plot_attention,
    plot_bias,
    plot_circle,
    plot_heatmap,
    plot_quantization,
    plot_similarity,
    plot_wavelengths,
    plot_waves,
    plot_winding,
)
from keras_posenc.analysis.properties import (
    SCHEMES,
    Comparison,
    Properties,
    compare,
    encoding_vectors,
    make_scheme,
    properties,
    score_matrix,
    shift_matrix,
)

__all__ = [
    "SCHEMES",
    "AttentionMap",
    "Comparison",
    "Properties",
    "attention_map",
    "compare",
    "encoding_vectors",
    "make_scheme",
    "plot_attention",
    "plot_bias",
    "plot_circle",
    "plot_heatmap",
    "plot_quantization",
    "plot_similarity",
    "plot_wavelengths",
    "plot_waves",
    "plot_winding",
    "properties",
    "score_matrix",
    "shift_matrix",
    "token_labels",
]
