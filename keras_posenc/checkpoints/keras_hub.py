"""Turns a backbone of keras-hub into a model of this package."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.config import REQUIRED, Config
from keras_posenc.checks import check_bool
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)
from keras_posenc.transformer.vision_transformer_model import (
    VisionTransformerModel,
)

# By class: the path of its embeddings of ids and positions, and the padding id
# of its published checkpoints, which a backbone does not know.
_TEXTS = {
    "BertBackbone": ("", 0),
    "DistilBertBackbone": ("token_and_position_embedding/", 0),
    "RobertaBackbone": ("embeddings/", 1),
    "XLMRobertaBackbone": ("embeddings/", 1),
}
_IMAGES = "ViTBackbone"
_ACTIVATIONS = {"gelu": "gelu", "gelu_approximate": "gelu_tanh"}


def from_keras_hub(
    backbone: keras.Model,
    *,
    pad_id: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> TransformerEncoderModel | VisionTransformerModel:
    """Returns a model with the weights and outputs of a keras-hub backbone.

    For `BertBackbone`, `DistilBertBackbone`, `RobertaBackbone`,
    `XLMRobertaBackbone` and `ViTBackbone`. Every value of the backbone's
    config is used or must have one value. Every weight is used, except those
    of BERT's pooler, and of token types other than 0.

    keras-hub takes a `padding_mask`; here, ids that are `pad_id` are padding.
    Where the backbone has several outputs, the model's is `sequence_output`.
    Dropout has one rate: that of the hidden states.

    Args:
        backbone: The backbone; `task.backbone` of a task.
        pad_id: The id of padding, which a backbone does not know. By default
            that of the published checkpoints: 1 for RoBERTa and XLM-R, else 0.
            None for images.
        dtype: Dtype or dtype policy of the model; Keras's by default.
        name: Name of the model.

    Raises:
        ValueError: The backbone is of another class, or has a value or a
            weight that is not supported, such as those of LoRA.

    Example:
        >>> import keras_posenc as kp
        >>> import keras_hub  # doctest: +SKIP
        >>> backbone = keras_hub.models.BertBackbone.from_preset(
        ...     "bert_tiny_en_uncased"
        ... )  # doctest: +SKIP
        >>> model = kp.from_keras_hub(backbone)  # doctest: +SKIP
    """
    kind = type(backbone).__name__
    is_theirs = type(backbone).__module__.partition(".")[0] == "keras_hub"
    if not is_theirs or kind not in (*_TEXTS, _IMAGES):
        raise ValueError(
            "`backbone` must be a keras_hub.models backbone, one of "
            f"{', '.join((*_TEXTS, _IMAGES))}. "
            f"Received: backbone of type {type(backbone).__name__}"
        )
    config = Config(backbone.get_config(), f"{kind} '{backbone.name}'")
    for key in ("dtype", "name", "trainable"):
        config.take(key, None)
    weights = _Weights(backbone, config.path)
    if kind == _IMAGES:
        if pad_id is not None:
            raise ValueError(
                "`pad_id` must be None for a model of images. "
                f"Received: pad_id={pad_id!r}"
            )
        images = _image_options(backbone, config)
        config.finish()
        vision = VisionTransformerModel(**images, dtype=dtype, name=name)
        _fill_images(vision, weights)
        weights.finish(())
        return vision
    place, usual_pad_id = _TEXTS[kind]
    texts = _text_options(backbone, config)
    texts["pad_id"] = usual_pad_id if pad_id is None else pad_id
    config.finish()
    model = TransformerEncoderModel(**texts, dtype=dtype, name=name)
    _fill_texts(model, weights, place, is_bert=kind == "BertBackbone")
    weights.finish(("pooled_dense/kernel", "pooled_dense/bias"))
    return model


class _Weights:
    """The weights of a backbone by their paths, each taken once."""

    def __init__(self, backbone: keras.Model, owner: str) -> None:
        self._left = {weight.path: weight for weight in backbone.weights}
        self._owner = owner

    def __contains__(self, path: str) -> bool:
        return path in self._left

    def take(self, path: str) -> np.ndarray:
        """Returns a weight, as float32."""
        if path not in self._left:
            raise ValueError(
                f"'{self._owner}' has no weight '{path}', which the model needs"
            )
        weight = keras.ops.cast(self._left.pop(path), "float32")
        return keras.ops.convert_to_numpy(weight)

    def dense(self, layer: Any, *paths: str) -> None:
        """Fills a projection with one of theirs, or with several side by side.

        Where they have no biases, ours are zeros. Their heads are axes.
        """
        dim, _ = layer.kernel.shape
        kernels = [
            self.take(f"{path}/kernel").reshape(dim, -1) for path in paths
        ]
        layer.kernel.assign(np.concatenate(kernels, axis=1))
        if layer.bias is not None:
            biases = [
                self.take(f"{path}/bias").reshape(-1)
                if f"{path}/bias" in self
                else np.zeros(kernel.shape[1], "float32")
                for path, kernel in zip(paths, kernels, strict=True)
            ]
            layer.bias.assign(np.concatenate(biases))

    def norm(self, layer: Any, path: str) -> None:
        """Fills a norm."""
        layer.gamma.assign(self.take(f"{path}/gamma"))
        layer.beta.assign(self.take(f"{path}/beta"))

    def block(self, block: Any, path: str, names: Sequence[str]) -> None:
        """Fills a block; `names` are its parts in the backbone."""
        attention, attention_norm, inner, outer, feed_forward_norm = (
            f"{path}/{name}" for name in names
        )
        self.dense(
            block.attention.query_key_value,
            *(f"{attention}/{part}" for part in ("query", "key", "value")),
        )
        self.dense(
            block.attention.output_projection, f"{attention}/attention_output"
        )
        self.norm(block.attention_norm, attention_norm)
        self.dense(block.feed_forward.intermediate, inner)
        self.dense(block.feed_forward.output_projection, outer)
        self.norm(block.feed_forward_norm, feed_forward_norm)

    def finish(self, of_no_matter: Sequence[str]) -> None:
        """Raises `ValueError` if there are weights that were not taken."""
        left = sorted(self._left.keys() - set(of_no_matter))
        if left:
            listed = ", ".join(left[:5]) + (", …" if len(left) > 5 else "")
            raise ValueError(
                f"'{self._owner}' has {len(left)} weights that its config does "
                f"not account for: {listed}"
            )


def _text_options(backbone: Any, config: Config) -> dict[str, Any]:
    """Returns the arguments of a model of texts, for a backbone."""
    config.take("num_segments", None)  # all tokens have the first type
    num_layers = config.size("num_layers")
    blocks = backbone.transformer_layers
    epsilon, activation, first = (
        _shared([getattr(block, of) for block in blocks], of, config)
        for of in ("layer_norm_epsilon", "activation", "normalize_first")
    )
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
        "num_layers": num_layers,
        "num_heads": config.size("num_heads"),
        "intermediate_dim": config.size("intermediate_dim"),
        "dropout": config.rate("dropout"),
        "activation": known,
        "norm_epsilon": epsilon,
        "embedding_norm": True,
        "input_position": PositionEmbedding(
            config.size("max_sequence_length"), name="position_embedding"
        ),
    }


def _shared(values: Sequence[Any], of: str, config: Config) -> Any:
    """Returns the value that all blocks have."""
    if any(value != values[0] for value in values):
        raise ValueError(
            f"'{config.path}' must have one `{of}` for all blocks. "
            f"Received: {values}"
        )
    return values[0]


def _fill_texts(
    model: Any, weights: _Weights, place: str, is_bert: bool
) -> None:
    tokens = weights.take(f"{place}token_embedding/embeddings")
    model.embedding.embeddings.assign(tokens)
    positions = weights.take(f"{place}position_embedding/embeddings")
    if is_bert:  # every token has type 0
        positions = positions + weights.take("segment_embedding/embeddings")[0]
    model.input_position.embeddings.assign(positions)
    weights.norm(model.get_layer("embedding_norm"), "embeddings_layer_norm")
    names = (
        "self_attention_layer",
        "self_attention_layer_norm",
        "feedforward_intermediate_dense",
        "feedforward_output_dense",
        "feedforward_layer_norm",
    )
    for number, block in enumerate(model.encoder.blocks):
        weights.block(block, f"transformer_layer_{number}", names)


def _image_options(backbone: Any, config: Config) -> dict[str, Any]:
    # The config lacks `data_format`: only an attribute has it.
    if backbone.data_format != "channels_last":
        raise config.wrong(
            "data_format",
            f"'{backbone.data_format}' is not supported, only 'channels_last'",
        )
    height, width, channels = config.take("image_shape", REQUIRED)
    patch = config.take("patch_size", REQUIRED)
    if len({*patch}) != 1:
        raise config.wrong("patch_size", f"{patch} must be square")
    config.take("attention_dropout", 0.0)
    config.take("use_patch_bias", True)
    has_biases = [
        check_bool(key, config.take(key, True))
        for key in ("use_mha_bias", "use_mlp_bias")
    ]
    has_class_token = check_bool(
        "use_class_token", config.take("use_class_token", True)
    )
    return {
        "image_size": (height, width),
        "num_channels": channels,
        "patch_size": patch[0],
        "num_class_tokens": int(has_class_token),
        "d_model": config.size("hidden_dim"),
        "num_layers": config.size("num_layers"),
        "num_heads": config.size("num_heads"),
        "intermediate_dim": config.size("mlp_dim"),
        "dropout": config.rate("dropout_rate"),
        "norm_epsilon": config.positive("layer_norm_epsilon"),
        "use_bias": any(has_biases),
    }


def _fill_images(model: Any, weights: _Weights) -> None:
    place = "vit_patching_and_embedding"
    projection = model.embedding.projection
    kernel = weights.take(f"{place}/patch_embedding/kernel")
    projection.kernel.assign(kernel)
    if f"{place}/patch_embedding/bias" in weights:
        projection.bias.assign(weights.take(f"{place}/patch_embedding/bias"))
    rows = np.array(weights.take(f"{place}/position_embedding/embeddings"))
    if model.num_class_tokens:
        rows[0] += weights.take(f"{place}/class_token")[0, 0]
    model.embedding.embeddings.assign(rows)
    names = ("mha", "ln_1", "mlp/dense_1", "mlp/dense_2", "ln_2")
    for number, block in enumerate(model.encoder.blocks, start=1):
        weights.block(block, f"vit_encoder/transformer_block_{number}", names)
    weights.norm(model.encoder.final_norm, "vit_encoder/ln")
