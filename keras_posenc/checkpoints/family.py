"""The base of all families of encoders, and how tensors fill a model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer._sublayers import make_activation
from keras_posenc.transformer.specs import Attention
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)
from keras_posenc.transformer.vision_transformer_model import (
    VisionTransformerModel,
)

# Our activations by Hugging Face's names; the first name is the one written.
# Hugging Face's "gelu" is the exact one.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
# The keys of these options in the configs of BERT and many others.
SIZES = {
    "vocabulary_size": "vocab_size",
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_dim": "intermediate_size",
}


def said_sizes(config: Config, names: Iterable[str] = SIZES) -> dict[str, int]:
    """Returns these options of an encoder, by the keys that BERT has."""
    return {
        name: config.blocks(SIZES[name])
        if name == "num_layers"
        else config.size(SIZES[name])
        for name in names
    }


@dataclass(frozen=True)
class Pooler:
    """The layers of a text classifier before its last projection.

    Attributes:
        part: Name of its projection; `{prefix}` is the encoder's.
        activation: Of the projection.
        pooling: How a text becomes one vector: `"first"`, its first token;
            `"last"`, its last; `"mean"`, the mean of all tokens; `"late"`, the
            mean after the activation.
        use_bias: Whether the projection has biases.
        norm: Name of the norm after the activation, or None.
        norm_epsilon: Added to the variance there.
        of_tokens: Whether a token classifier has these layers too, without
            the pooling; else it has none of them.
    """

    part: str
    activation: str
    pooling: str = "first"
    use_bias: bool = True
    norm: str | None = None
    norm_epsilon: float = 1e-5
    of_tokens: bool = False


@dataclass(frozen=True)
class Reading:
    """What a config says: of the model, and of how tensors fill it.

    Attributes:
        options: The arguments of the model.
        names: As in `Family`.
        without_bias: As in `Family`.
        pooler: As in `Family`.
        types: How many token types there are, where `names` has their
            embeddings.
        first_position: How many rows of the table of positions no token uses.
        embedding_scale: What embeddings are multiplied by.
        output_scale: What the outputs of a decoder are multiplied by, before
            the logits.
        factors: Of the outputs of the layers of all blocks, by part.
        tasks: How many rows the table of tasks has; 0 without one.
        is_tied: Whether logits are products with the embeddings.
        decoder_names: As in `EncoderDecoder`.
        tables: The embeddings of source and target, and the kernel of logits
            or None, where source and target may share one.
    """

    options: dict[str, Any]
    names: Mapping[str, str]
    without_bias: frozenset[str]
    pooler: Pooler | None
    types: int = 0
    first_position: int = 0
    embedding_scale: float = 1.0
    output_scale: float = 1.0
    factors: Mapping[str, Any] = field(default_factory=dict)
    tasks: int = 0
    is_tied: bool = True
    decoder_names: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Any] = ()

    @property
    def tells_texts_apart(self) -> bool:
        """Whether the second text of a pair has its own token type."""
        return "token_type" in self.names and self.types > 1


class Family:
    """Base of the families: one for each architecture, by `model_type`.

    A family has no state: `read` returns what a config says.

    Attributes:
        types: The `model_type` of the configs that it reads.
        prefix: What the names of an encoder's tensors start with where the
            checkpoint has more than the encoder.
        names: Names of tensors, without `.weight` and `.bias`, by the part of
            the model that they fill; `{}` is the block's number.
        without_bias: Parts whose biases stay 0: the checkpoint has none.
        unused: Regular expressions of tensors that an encoder does not need:
            of training heads, or computed from the others.
        pooler: The layers of a text classifier before its last projection;
            None for images.
        classifier: Name of the last projection of a text classifier.
        pooling: The kind of `Pooling1D` before the projection of an image
            classifier, or None.
        model: The class of the model.
    """

    types: Mapping[str, str] | Sequence[str]
    prefix: str = ""
    prefix_of_hub: str = ""  # of the Hub's custom code, where it differs
    model: type[TransformerEncoderModel | VisionTransformerModel] = (
        TransformerEncoderModel
    )
    names: Mapping[str, str] = {}
    without_bias: frozenset[str] = frozenset()
    unused: Sequence[str] = ()
    pooler: Pooler | None = None
    classifier: str = "classifier"
    pooling: str | list[str] | None = None
    # What is added to the weights of norms.
    norm_offset: float = 0.0
    # Whether kernels are (in, out), as ours, and not (out, in).
    has_our_kernels: bool = False
    # Keys of the config without effect here: of training, of other heads, or
    # between equal implementations; and those that have one value.
    ignored: str = ""
    fixed: Mapping[str, Any] = {}

    def values_of(self, values: Mapping[str, Any], path: Any) -> Any:
        """Returns the keys of a config that concern the model that is read."""
        return values

    def read(self, config: Config) -> Reading:
        """Returns what a config says."""
        for key in self.ignored.split():
            config.take(key, None)
        for key, value in self.fixed.items():
            config.expect(key, value)
        options = self.options(config)
        usual = {
            "names": self.names,
            "without_bias": self.without_bias,
            "pooler": self.pooler,
        }
        return Reading(options, **{**usual, **self.said(config, options)})

    def options(self, config: Config) -> dict[str, Any]:
        """Returns the arguments of the model for a config."""
        raise NotImplementedError

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        """Returns what else a config says: attributes of `Reading`."""
        return {}

    def written(self, model: Any) -> dict[str, Any]:
        """Returns the keys of `config.json` that a model is saved with.

        Those that it was loaded with may not allow the weights of now, of the
        whole model, with the layers after its encoder.
        """
        return {}

    def describe(self, model: TransformerEncoderModel) -> dict[str, Any]:
        """Returns the keys of a `config.json` whose `options` a model has.

        A model of another family may differ from them: the caller checks.
        """
        raise NotImplementedError

    def describe_pooler(
        self, pooling: str | None, projection: Any
    ) -> dict[str, Any]:
        """Returns the keys that say which `pooler` a text classifier has."""
        return {}

    def check(self, reading: Reading, tensors: Tensors, path: Any) -> None:
        """Raises `ValueError` for sizes larger than any tensor.

        Tensors are compared with a model that is made first, and a damaged
        `config.json` could ask for one of any size.
        """
        options = reading.options
        head_dim = max(spec.head_dim or 0 for spec in specs_in(options))
        width = options["d_model"]
        narrow = options.get("embedding_dim", width)
        embedding = reading.names.get("embedding")
        name = f"{self.prefix_in(tensors)}{embedding}.weight"
        if "vocabulary_size" in options and name in tensors:
            # Says which of the two is wrong, as no product does.
            tensors.check_shape(name, (options["vocabulary_size"], narrow))
        position = options.get("input_position")
        sizes = {
            "d_model": width * width,
            "vocabulary_size": options.get("vocabulary_size", 0) * narrow,
            "intermediate_dim": int(np.max(options["intermediate_dim"]))
            * width,
            "head_dim": options["num_heads"] * head_dim * width,
            "layer_input_dim": (options.get("layer_input_dim") or 0)
            * options["num_layers"]
            * width,
            "positions": getattr(position, "sequence_length", 0) * narrow,
            "patch_size and num_channels": options.get("patch_size", 0) ** 2
            * options.get("num_channels", 0)
            * width,
            "image_size": (
                (options.get("image_size") or 0) // options.get("patch_size", 1)
            )
            ** 2
            * width,
        }
        for name, size in sizes.items():
            if size > tensors.largest:
                raise ValueError(
                    f"'{path}' describes a larger model than the tensors are "
                    f"of: its {name} would take a tensor of {size} numbers, "
                    f"and the largest has {tensors.largest}"
                )

    def settle(self, reading: Reading, tensors: Tensors) -> Reading:
        """Returns the reading, with what the tensors decide."""
        return reading

    def match(self, model: Any, parts: Any) -> None:
        """Matches every weight of the model with its tensor.

        `parts` are those of a checkpoint that is loaded or saved.
        """
        self.fill_embeddings(model, parts)
        for number, block in enumerate(model.encoder.blocks):
            if number and block is model.encoder.blocks[0]:  # shared
                break
            self.fill_block(block, parts, number)
        if model.encoder.final_norm is not None:
            parts.norm(model.encoder.final_norm, "final_norm")

    def fill_embeddings(self, model: Any, parts: Parts) -> None:
        """Matches the embeddings of ids, positions and token types.

        Every token has the embedding of type 0: it is added to the positions
        (or to the ids, where there is no table of positions).
        """
        embedding, position = model.embedding, model.input_position
        width = embedding.embeddings.shape[1]
        scale = parts.reading.embedding_scale
        first_type = parts.first_type(width, model.second_text_embedding)
        if "position" in parts.reading.names:
            skip = parts.reading.first_position
            before = parts.table(
                position, "position", skip=skip, offset=first_type
            )
            # Padding has the position before the first one, also within a
            # text; here, where its positions are hidden, the first one.
            more = {model.pad_id: before} if skip else {}
            parts.table(embedding, "embedding", scale=scale, more=more)
        else:
            parts.table(embedding, "embedding", scale=scale, offset=first_type)
        if model.embedding_norm:
            parts.norm(model.get_layer("embedding_norm"), "embedding_norm")
        if model.embedding_dim is not None:
            parts.dense(
                model.get_layer("embedding_projection"),
                ["embedding_projection"],
            )

    def factors(
        self, block: Any, parts: Parts, number: int
    ) -> Mapping[str, Any]:
        """Returns factors of the outputs of a block's layers, by part.

        Each is a number, or has one for each feature.
        """
        return parts.reading.factors

    def fill_block(self, block: Any, parts: Parts, number: int) -> None:
        """Matches one block."""
        attention, feed_forward = block.attention, block.feed_forward
        factors, names = self.factors(block, parts, number), parts.reading.names
        fused = "query_key_value" in names
        parts.dense(
            attention.query_key_value,
            ["query_key_value"]
            if fused
            else ["query", "key", "value"][: len(attention.head_counts)],
            number,
            heads=attention.head_counts,
            factors=factors,
        )
        parts.dense(
            attention.output_projection,
            ["attention_output"],
            number,
            factors=factors,
        )
        if block.attention_norm is not None:
            parts.norm(block.attention_norm, "attention_norm", number)
        # Gate and intermediate projection may be halves of one tensor.
        for both in ("gate_intermediate", "intermediate_gate"):
            if both in names:
                layers = [getattr(feed_forward, p) for p in both.split("_")]
                parts.halves(layers, both, number)
                break
        else:
            parts.dense(feed_forward.intermediate, ["intermediate"], number)
            if feed_forward.gate is not None:
                parts.dense(feed_forward.gate, ["gate"], number)
        parts.dense(
            feed_forward.output_projection,
            ["feed_forward_output"],
            number,
            factors=factors,
        )
        if block.feed_forward_norm is not None:
            parts.norm(block.feed_forward_norm, "feed_forward_norm", number)

    def prefix_in(self, tensors: Any) -> str:
        """Returns what the names of the encoder's tensors start with."""
        for prefix in (self.prefix, self.prefix_of_hub):
            if any(name.startswith(prefix) for name in tensors.names):
                return prefix
        return ""


def specs_in(options: Mapping[str, Any]) -> list[Any]:
    """Lists the specs of attention in the arguments of a model."""
    value = options.get("attention")
    each = value if isinstance(value, list) else [value]
    return [x if isinstance(x, Attention) else Attention(x) for x in each]


def name_of(activation: Any, owner: str = "encoder") -> str:
    """Returns Hugging Face's name of an activation."""
    for name, ours in ACTIVATIONS.items():
        if make_activation(ours) is activation:
            return name
    known = ", ".join(sorted(set(ACTIVATIONS.values())))
    raise ValueError(
        f"`activation` of the {owner} must be one of {known}, for it to be "
        f"saved. Received: activation={activation!r}"
    )
