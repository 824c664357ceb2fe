"""Turns a backbone of keras-hub into a model of this package."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import Family, Reading
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.transformer.specs import Norm
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

# By class: the path of its embeddings of ids and positions, and the padding id
# of its published checkpoints, which a backbone does not know.
_TEXTS = {
    "BertBackbone": ("", 0),
    "DistilBertBackbone": ("token_and_position_embedding/", 0),
    "RobertaBackbone": ("embeddings/", 1),
    "XLMRobertaBackbone": ("embeddings/", 1),
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_approximate": "gelu_tanh"}
# Names of weights, by those of tensors in checkpoints.
_KINDS = {
    "weight": ("kernel", "gamma", "embeddings"),
    "bias": ("bias", "beta"),
}


def from_keras_hub(
    backbone: keras.Model,
    *,
    pad_id: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> TransformerEncoderModel:
    """Returns a model with the weights and outputs of a keras-hub backbone.

    >>> import keras_posenc as kp
    >>> import keras_hub  # doctest: +SKIP
    >>> backbone = keras_hub.models.BertBackbone.from_preset(
    ...     "bert_tiny_en_uncased"
    ... )  # doctest: +SKIP
    >>> model = kp.from_keras_hub(backbone)  # doctest: +SKIP

    For `BertBackbone`, `DistilBertBackbone`, `RobertaBackbone` and
    `XLMRobertaBackbone`. Every value of the backbone's config is used or must
    have one value. Every weight is used, except those of BERT's pooler, and of
    token types other than 0.

    keras-hub takes a `padding_mask`; here, ids that are `pad_id` are padding.
    Where the backbone has several outputs, the model's is `sequence_output`.
    Dropout has one rate: that of the hidden states.

    Args:
        backbone: The backbone; `task.backbone` of a task.
        pad_id: The id of padding, which a backbone does not know. By default
            that of the published checkpoints: 1 for RoBERTa and XLM-R, else 0.
        dtype: Dtype or dtype policy of the model; Keras's by default.
        name: Name of the model.

    Raises:
        ValueError: The backbone is of another class, or has a value or a
            weight that is not supported, such as those of LoRA.
    """
    kind = type(backbone).__name__
    is_theirs = type(backbone).__module__.partition(".")[0] == "keras_hub"
    if not is_theirs or kind not in _TEXTS:
        raise ValueError(
            "`backbone` must be a keras_hub.models backbone, one of "
            f"{', '.join(_TEXTS)}. "
            f"Received: backbone of type {type(backbone).__name__}"
        )
    config = Config(backbone.get_config(), f"{kind} '{backbone.name}'")
    for key in ("dtype", "name", "trainable"):
        config.take(key, None)
    place, usual_pad_id = _TEXTS[kind]
    family = _Texts(place, has_types=kind == "BertBackbone")
    options = _text_options(backbone, config)
    options["pad_id"] = usual_pad_id if pad_id is None else pad_id
    types = config.take("num_segments", None) or 0
    config.finish()
    reading = Reading(options, family.names, frozenset(), None, types=types)
    weights = _Weights(backbone, config.path)
    model = TransformerEncoderModel(**options, dtype=dtype, name=name)
    family.match(model, Parts(family, reading, weights, ""))
    weights.finish(("pooled_dense/kernel", "pooled_dense/bias"))
    return model


class _Weights:
    """The weights of a backbone by their paths, each taken once."""

    def __init__(self, backbone: keras.Model, owner: str) -> None:
        self._left = {weight.path: weight for weight in backbone.weights}
        self._owner = owner

    def __contains__(self, path: str) -> bool:
        return path in self._left

    def take(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Returns a weight, as float32; heads are one axis.

        Where they have no biases, ours are zeros.
        """
        path, _, of = name.rpartition(".")
        known = [f"{path}/{kind}" for kind in _KINDS.get(of, ())] or [name]
        found = next((x for x in known if x in self._left), None)
        if found is not None:
            weight = keras.ops.cast(self._left.pop(found), "float32")
            return keras.ops.convert_to_numpy(weight).reshape(shape)
        if of == "bias":
            return np.zeros(shape, "float32")
        raise ValueError(
            f"'{self._owner}' has no weight '{known[0]}', which the model needs"
        )

    def finish(self, of_no_matter: Sequence[str]) -> None:
        """Raises `ValueError` if there are weights that were not taken."""
        left = sorted(self._left.keys() - set(of_no_matter))
        if left:
            listed = ", ".join(left[:5]) + (", …" if len(left) > 5 else "")
            raise ValueError(
                f"'{self._owner}' has {len(left)} weights that its config does "
                f"not account for: {listed}"
            )


class _Texts(Family):
    """The backbones of texts, by the names of their layers."""

    has_our_kernels = True

    def __init__(self, place: str, has_types: bool) -> None:
        block = "transformer_layer_{}/"
        attention = block + "self_attention_layer"
        self.names = {
            "embedding": f"{place}token_embedding",
            "position": f"{place}position_embedding",
            "embedding_norm": "embeddings_layer_norm",
            "query": f"{attention}/query",
            "key": f"{attention}/key",
            "value": f"{attention}/value",
            "attention_output": f"{attention}/attention_output",
            "attention_norm": f"{attention}_norm",
            "intermediate": block + "feedforward_intermediate_dense",
            "feed_forward_output": block + "feedforward_output_dense",
            "feed_forward_norm": block + "feedforward_layer_norm",
            **({"token_type": "segment_embedding"} if has_types else {}),
        }


def _text_options(backbone: Any, config: Config) -> dict[str, Any]:
    blocks = backbone.transformer_layers
    found = {}
    for name in ("layer_norm_epsilon", "activation", "normalize_first"):
        values = [getattr(block, name) for block in blocks]
        if any(value != values[0] for value in values):
            raise ValueError(
                f"'{config.path}' must have one `{name}` for all blocks. "
                f"Received: {values}"
            )
        found[name] = values[0]
    epsilon, activation, first = found.values()
    known = _ACTIVATIONS.get(getattr(activation, "__name__", ""))
    norm = backbone.get_layer("embeddings_layer_norm")
    if known is None or first or norm.epsilon != epsilon:
        raise ValueError(
            f"'{config.path}' must have GELU, norms after its sublayers and "
            f"one epsilon. Received: {activation!r}, normalize_first={first}, "
            f"epsilons {norm.epsilon} and {epsilon}"
        )
    return {
        "vocabulary_size": config.size("vocabulary_size"),
        "d_model": config.size("hidden_dim"),
        "num_layers": config.size("num_layers"),
        "num_heads": config.size("num_heads"),
        "intermediate_dim": config.size("intermediate_dim"),
        "dropout": config.rate("dropout"),
        "activation": known,
        "norm": Norm(epsilon=epsilon),
        "embedding_norm": True,
        "input_position": PositionEmbedding(
            config.size("max_sequence_length"), name="position_embedding"
        ),
    }
