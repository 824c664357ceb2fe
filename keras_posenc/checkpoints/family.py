"""What a family of encoders is, and how its tensors fill a model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer._sublayers import make_activation
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)
from keras_posenc.transformer.vision_transformer_model import (
    VisionTransformerModel,
)

# By the names that Hugging Face gives them, of which the first one is written;
# its "gelu" is the exact one.
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
# What the sizes of an encoder are called that say it as BERT does.
SIZES = {
    "vocabulary_size": "vocab_size",
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_dim": "intermediate_size",
}


def said_sizes(config: Config, names: Iterable[str] = SIZES) -> dict[str, int]:
    """Those sizes of an encoder, from a config that says them as BERT does."""
    return {
        name: config.blocks(SIZES[name])
        if name == "num_layers"
        else config.size(SIZES[name])
        for name in names
    }


@dataclass(frozen=True)
class Pooler:
    """What a classifier of texts has before its last projection.

    Attributes:
        part: What its own projection is called; `{prefix}` is the encoder's.
        activation: That of the projection.
        pooling: Where a text is read: `"first"`, at its first token, `"mean"`,
            over all tokens, or `"late"`, over what the activation makes of
            each.
        use_bias: Whether the projection has biases.
        norm: What the norm behind the activation is called, or None.
        norm_epsilon: Added to the variance there.
        of_tokens: Whether a classifier of tokens has it all, but for the
            pooling; else it has nothing of it.
    """

    part: str
    activation: str
    pooling: str = "first"
    use_bias: bool = True
    norm: str | None = None
    norm_epsilon: float = 1e-5
    of_tokens: bool = False


class Family:
    """Base of the families: one for each architecture, by its `model_type`.

    Attributes:
        prefix: What the names of an encoder's tensors begin with where the
            checkpoint has more than the encoder.
        names: What the tensors are called, without `.weight` and `.bias`, by
            the part of the model that they fill; `{}` is the block's number.
        without_bias: Parts whose biases stay 0, for they have none on disk.
        unused: Regular expressions of tensors that an encoder has no use for:
            what it was trained with, and what follows from the rest.
        pooler: What a classifier of texts has before its last projection;
            None for images.
        classifier: The last projection of a classifier of texts.
        pooling: The layer behind which a classifier of images stands, or None.
        model: The class of the model.
    """

    prefix: str = ""
    prefix_of_hub: str = ""  # where it is another one
    model: type[TransformerEncoderModel | VisionTransformerModel] = (
        TransformerEncoderModel
    )
    names: Mapping[str, str] = {}
    without_bias: frozenset[str] = frozenset()
    unused: Sequence[str] = ()
    pooler: Pooler | None = None
    classifier: str = "classifier"
    pooling: Any = None
    # How many rows of the table of positions stand before that of the first.
    first_position: int = 0
    # What embeddings are multiplied by.
    embedding_scale: float = 1.0
    # How many types of tokens there are, where `names` has their embeddings.
    token_types: int | None = None

    @property
    def tells_texts_apart(self) -> bool:
        """Whether the tokens of a pair's second text have their own type."""
        return "token_type" in self.names and (self.token_types or 0) > 1

    def options(self, config: Config) -> dict[str, Any]:
        """The arguments of the model."""
        raise NotImplementedError

    def describe(self, model: TransformerEncoderModel) -> dict[str, Any]:
        """The keys of a `config.json` whose `options` a model has.

        A model that is of another family need not have them.
        """
        raise NotImplementedError

    def describe_pooler(
        self, pooling: str | None, projection: Any
    ) -> dict[str, Any]:
        """The keys that say which `pooler` a classifier of texts has.

        Args:
            pooling: As `Pooler` names them; None for a classifier of tokens.
            projection: That of the pooler.
        """
        return {}

    def check(
        self, options: Mapping[str, Any], tensors: Tensors, path: Any
    ) -> None:
        """Raises `ValueError` for sizes that no tensor has.

        Tensors are compared with a model that is made, and a damaged
        `config.json` may ask for one of any size.
        """
        width = options["d_model"]
        position = options.get("input_position")
        sizes = {
            "d_model": width * width,
            "vocabulary_size": options.get("vocabulary_size", 0)
            * options.get("embedding_dim", width),
            "intermediate_dim": options["intermediate_dim"] * width,
            "positions": getattr(position, "sequence_length", 0)
            * options.get("embedding_dim", width),
            "patch_size and num_channels": options.get("patch_size", 0) ** 2
            * options.get("num_channels", 0)
            * width,
            "image_size": (
                options.get("image_size", 0) // options.get("patch_size", 1)
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

    def fill(self, model: Any, tensors: Tensors) -> None:
        """Assigns the checkpoint's tensors to the model's weights."""
        self.match(model, Parts(self, tensors, self.prefix_in(tensors)))

    def match(self, model: Any, parts: Any) -> None:
        """Brings every weight of the model together with its tensor.

        Args:
            model: The model.
            parts: `Parts` to read, `WrittenParts` to write.
        """
        self.fill_embeddings(model, parts)
        for number, block in enumerate(model.encoder.blocks):
            if number and block is model.encoder.blocks[0]:  # shared
                break
            self.fill_block(block, parts, number)
        if model.encoder.final_norm is not None:
            parts.norm(model.encoder.final_norm, "final_norm")

    def fill_embeddings(self, model: Any, parts: "Parts") -> None:
        """Those of ids, positions and token types.

        Type 0 becomes part of what all tokens have.
        """
        embedding, position = model.embedding, model.input_position
        width = embedding.embeddings.shape[1]
        scale = self.embedding_scale
        first_type = parts.first_type(width, model.second_text_embedding)
        if "position" in self.names:
            parts.table(embedding, "embedding", scale=scale)
            parts.table(
                position,
                "position",
                skip=self.first_position,
                offset=first_type,
            )
        else:
            parts.table(embedding, "embedding", scale=scale, offset=first_type)
        if model.embedding_norm:
            parts.norm(model.get_layer("embedding_norm"), "embedding_norm")
        if model.embedding_dim is not None:
            parts.dense(
                model.get_layer("embedding_projection"),
                ["embedding_projection"],
            )

    def fill_block(self, block: Any, parts: "Parts", number: int) -> None:
        """One block."""
        attention, feed_forward = block.attention, block.feed_forward
        fused = "query_key_value" in self.names
        parts.dense(
            attention.query_key_value,
            ["query_key_value"] if fused else ["query", "key", "value"],
            number,
            heads=(attention.num_heads, attention.num_key_value_heads),
        )
        parts.dense(attention.output_projection, ["attention_output"], number)
        if block.attention_norm is not None:
            parts.norm(block.attention_norm, "attention_norm", number)
        # A gate may lie in one tensor with what it multiplies.
        for both in ("gate_intermediate", "intermediate_gate"):
            if both in self.names:
                layers = [getattr(feed_forward, p) for p in both.split("_")]
                parts.halves(layers, both, number)
                break
        else:
            parts.dense(feed_forward.intermediate, ["intermediate"], number)
            if feed_forward.gate is not None:
                parts.dense(feed_forward.gate, ["gate"], number)
        parts.dense(
            feed_forward.output_projection, ["feed_forward_output"], number
        )
        parts.norm(block.feed_forward_norm, "feed_forward_norm", number)

    def prefix_in(self, tensors: Tensors) -> str:
        """What the names of the encoder's tensors begin with."""
        for prefix in (self.prefix, self.prefix_of_hub):
            if any(name.startswith(prefix) for name in tensors.names):
                return prefix
        return ""


def name_of(activation: Any, owner: str = "encoder") -> str:
    """What Hugging Face calls an activation of the encoder, or of a head."""
    for name, ours in ACTIVATIONS.items():
        if make_activation(ours) is activation:
            return name
    known = ", ".join(sorted(set(ACTIVATIONS.values())))
    raise ValueError(
        f"`activation` of the {owner} must be one of {known}, for it to be "
        f"saved. Received: activation={activation!r}"
    )


def sizes_of(layer: Any, count: int, heads: Any) -> list[int]:
    """How wide the parts of a projection are that lie behind another.

    Args:
        layer: The projection.
        count: How many parts it has: one, or those of queries, keys and
            values.
        heads: How many of queries, and of keys and values.
    """
    units = layer.kernel.shape[1]
    if count == 1:
        return [units]
    one = units // (heads[0] + 2 * heads[1])
    return [heads[0] * one, heads[1] * one, heads[1] * one]


class Parts:
    """The tensors of a checkpoint by the parts of a model that they fill.

    Args:
        family: Which names them.
        tensors: All of them.
        prefix: What the encoder's begin with.
    """

    def __init__(self, family: Family, tensors: Any, prefix: str) -> None:
        self._family = family
        self._tensors = tensors
        self._prefix = prefix
        self.types = family.token_types

    def name(self, part: str, number: int | None = None) -> str:
        """What a part is called, of the block of that number."""
        return self._prefix + self._family.names[part].format(number)

    def first_type(self, width: int, second: Any) -> Any:
        """The embedding of token type 0, or 0 where there are no types.

        Args:
            width: That of the embeddings.
            second: The layer that holds what type 1 adds to it, or None.
        """
        if "token_type" not in self._family.names:
            return 0.0
        if not self.types:
            return 0.0
        rows = self.take("token_type", (self.types, width))
        if second is not None:
            second.embedding.assign(rows[1] - rows[0])
        return rows[0]

    def table(
        self,
        layer: Any,
        part: str,
        *,
        skip: int = 0,
        scale: float = 1.0,
        offset: Any = 0.0,
    ) -> None:
        """Fills a table of embeddings.

        Args:
            layer: What has it.
            part: What it is called.
            skip: How many rows stand before those of the table.
            scale: What they are multiplied by.
            offset: What is added to each.
        """
        length, width = layer.embeddings.shape
        rows = self.take(part, (skip + length, width))[skip:]
        rows *= scale  # in place: of all tensors it is the largest
        rows += offset
        layer.embeddings.assign(rows)

    def take(
        self,
        part: str,
        shape: Sequence[int],
        number: int | None = None,
        *,
        of: str | None = "weight",
    ) -> np.ndarray:
        """A tensor as it is: the weight, by default, of what a part names."""
        name = self.name(part, number)
        return self._tensors.take(f"{name}.{of}" if of else name, shape)

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: tuple[int, int] | None = None,
    ) -> None:
        """Fills a projection with one tensor, or with several behind another.

        Args:
            layer: The projection.
            parts: What it is made of.
            number: That of the block.
            heads: Of queries, and of keys and values, where there are three
                parts.
        """
        dim, _ = layer.kernel.shape
        sizes = sizes_of(layer, len(parts), heads)
        names = [self.name(part, number) for part in parts]
        self._fill(
            layer,
            [
                self._tensors.take(f"{name}.weight", (size, dim))
                for name, size in zip(names, sizes, strict=True)
            ],
            [
                self._bias(part, name, size)
                for part, name, size in zip(parts, names, sizes, strict=True)
                if layer.bias is not None
            ],
        )

    def halves(self, layers: Sequence[Any], part: str, number: int) -> None:
        """Fills two projections of the same width with one tensor's halves."""
        dim, units = layers[0].kernel.shape
        name = self.name(part, number)
        kernels = np.split(
            self._tensors.take(f"{name}.weight", (2 * units, dim)), 2
        )
        biases = [np.zeros(units)] * 2
        if layers[0].bias is not None:
            biases = np.split(self._bias(part, name, 2 * units), 2)
        for layer, kernel, bias in zip(layers, kernels, biases, strict=True):
            self._fill(layer, [kernel], [bias])

    def norm(self, layer: Any, part: str, number: int | None = None) -> None:
        """Fills a norm, by the names of today or by `gamma` and `beta`."""
        name = self.name(part, number)
        is_old = f"{name}.gamma" in self._tensors
        scale, offset = ("gamma", "beta") if is_old else ("weight", "bias")
        of_norm = getattr(layer, "gamma", None)
        if of_norm is None:  # RMS, without an offset
            layer.scale.assign(
                self._tensors.take(f"{name}.{scale}", layer.scale.shape)
            )
            return
        of_norm.assign(self._tensors.take(f"{name}.{scale}", of_norm.shape))
        layer.beta.assign(
            np.zeros(layer.beta.shape)
            if part in self._family.without_bias
            else self._tensors.take(f"{name}.{offset}", layer.beta.shape)
        )

    def _bias(self, part: str, name: str, size: int) -> np.ndarray:
        if part in self._family.without_bias:
            return np.zeros(size, "float32")
        return self._tensors.take(f"{name}.bias", (size,))

    def _fill(
        self,
        layer: Any,
        kernels: Sequence[np.ndarray],
        biases: Sequence[np.ndarray],
    ) -> None:
        layer.kernel.assign(np.concatenate(kernels).T)
        if layer.bias is not None:
            layer.bias.assign(np.concatenate(biases))
