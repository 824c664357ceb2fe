"""Positional encodings and generators, as numbers and as pictures.

    from keras_posenc import analysis

Pictures need matplotlib: `pip install 'keras-posenc[plot]'`.
"""

from keras_posenc.analysis.attention import (
    AttentionMap as AttentionMap,
)
from keras_posenc.analysis.attention import (
    attention_map as attention_map,
)
from keras_posenc.analysis.comparison import (
    Comparison as Comparison,
)
from keras_posenc.analysis.comparison import (
    compare as compare,
)
from keras_posenc.analysis.plots import (
    plot_attention as plot_attention,
)
from keras_posenc.analysis.plots import (
    plot_bias as plot_bias,
)
from keras_posenc.analysis.plots import (
    plot_circle as plot_circle,
)
from keras_posenc.analysis.plots import (
    plot_heatmap as plot_heatmap,
)
from keras_posenc.analysis.plots import (
    plot_quantization as plot_quantization,
)
from keras_posenc.analysis.plots import (
    plot_similarity as plot_similarity,
)
from keras_posenc.analysis.plots import (
    plot_wavelengths as plot_wavelengths,
)
from keras_posenc.analysis.plots import (
    plot_waves as plot_waves,
)
from keras_posenc.analysis.plots import (
    plot_winding as plot_winding,
)
from keras_posenc.analysis.properties import (
    Properties as Properties,
)
from keras_posenc.analysis.properties import (
    properties as properties,
)
from keras_posenc.analysis.schemes import (
    SCHEMES as SCHEMES,
)
from keras_posenc.analysis.schemes import (
    make_scheme as make_scheme,
)
from keras_posenc.analysis.shift_matrix import (
    shift_matrix as shift_matrix,
)
from keras_posenc.analysis.tokens import (
    token_labels as token_labels,
)
from keras_posenc.analysis.vectors import (
    encoding_vectors as encoding_vectors,
)
from keras_posenc.analysis.vectors import (
    score_matrix as score_matrix,
)
