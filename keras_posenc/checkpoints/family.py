"""The base of all families of encoders, and how tensors fill a model."""

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


class Family:
    """Base of the families: one for each architecture, by `model_type`.

    Attributes:
        types: By the `model_type` of the configs that it reads, what the
            names of classes in `architectures` begin with.
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

    types: Mapping[str, str]
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
    # How many rows of the table of positions no token uses.
    first_position: int = 0
    # What embeddings are multiplied by.
    embedding_scale: float = 1.0
    # What the outputs of a decoder are multiplied by, before the logits.
    output_scale: float = 1.0
    # What is added to the weights of norms.
    norm_offset: float = 0.0
    # Whether kernels are (in, out), as ours, and not (out, in).
    has_our_kernels: bool = False
    # How many token types there are, where `names` has their embeddings.
    token_types: int | None = None

    @property
    def tells_texts_apart(self) -> bool:
        """Whether the second text of a pair has its own token type."""
        return "token_type" in self.names and (self.token_types or 0) > 1

    def options(self, config: Config) -> dict[str, Any]:
        """Returns the arguments of the model for a config."""
        raise NotImplementedError

    def describe(self, model: TransformerEncoderModel) -> dict[str, Any]:
        """Returns the keys of a `config.json` whose `options` a model has.

        A model of another family may differ from them: the caller checks.
        """
        raise NotImplementedError

    def describe_pooler(
        self, pooling: str | None, projection: Any
    ) -> dict[str, Any]:
        """Returns the keys that say which `pooler` a text classifier has.

        Args:
            pooling: As in `Pooler`; None for a token classifier.
            projection: Of the pooler.
        """
        return {}

    def check(
        self, options: Mapping[str, Any], tensors: Tensors, path: Any
    ) -> None:
        """Raises `ValueError` for sizes larger than any tensor.

        Tensors are compared with a model that is made first, and a damaged
        `config.json` could ask for one of any size.
        """
        width = options["d_model"]
        narrow = options.get("embedding_dim", width)
        embedding = self.names.get("embedding")
        name = f"{self.prefix_in(tensors)}{embedding}.weight"
        if "vocabulary_size" in options and name in tensors:
            # Says which of the two is wrong, as no product does.
            tensors.check_shape(name, (options["vocabulary_size"], narrow))
        position = options.get("input_position")
        sizes = {
            "d_model": width * width,
            "vocabulary_size": options.get("vocabulary_size", 0) * narrow,
            "intermediate_dim": options["intermediate_dim"] * width,
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

    def settle(
        self, options: dict[str, Any], tensors: Tensors
    ) -> dict[str, Any]:
        """Returns the options, with those that the tensors decide."""
        return options

    def fill(self, model: Any, tensors: Tensors) -> None:
        """Assigns the checkpoint's tensors to the model's weights."""
        self.match(model, Parts(self, tensors, self.prefix_in(tensors)))

    def match(self, model: Any, parts: Any) -> None:
        """Matches every weight of the model with its tensor.

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
        """Matches the embeddings of ids, positions and token types.

        Every token has the embedding of type 0: it is added to the positions
        (or to the ids, where there is no table of positions).
        """
        embedding, position = model.embedding, model.input_position
        width = embedding.embeddings.shape[1]
        scale = self.embedding_scale
        first_type = parts.first_type(width, model.second_text_embedding)
        if "position" in self.names:
            before = parts.table(
                position,
                "position",
                skip=self.first_position,
                offset=first_type,
            )
            # Padding has the position before the first one, also within a
            # text; here, where its positions are hidden, the first one.
            more = {model.pad_id: before} if self.first_position else {}
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

    def factors(self, block: Any, parts: Any, number: int) -> dict[str, Any]:
        """Returns factors of the outputs of a block's layers, by part.

        Each is a number, or has one for each feature.
        """
        return {}

    def fill_block(self, block: Any, parts: "Parts", number: int) -> None:
        """Matches one block."""
        attention, feed_forward = block.attention, block.feed_forward
        factors = self.factors(block, parts, number)
        fused = "query_key_value" in self.names
        parts.dense(
            attention.query_key_value,
            ["query_key_value"] if fused else ["query", "key", "value"],
            number,
            heads=(attention.num_heads, attention.num_key_value_heads),
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
            if both in self.names:
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

    def prefix_in(self, tensors: Tensors) -> str:
        """Returns what the names of the encoder's tensors start with."""
        for prefix in (self.prefix, self.prefix_of_hub):
            if any(name.startswith(prefix) for name in tensors.names):
                return prefix
        return ""


def name_of(activation: Any, owner: str = "encoder") -> str:
    """Returns Hugging Face's name of an activation.

    Raises:
        ValueError: Hugging Face has none for it.
    """
    for name, ours in ACTIVATIONS.items():
        if make_activation(ours) is activation:
            return name
    known = ", ".join(sorted(set(ACTIVATIONS.values())))
    raise ValueError(
        f"`activation` of the {owner} must be one of {known}, for it to be "
        f"saved. Received: activation={activation!r}"
    )


def sizes_of(layer: Any, count: int, heads: Any) -> list[int]:
    """Returns the widths of the projections that one projection joins.

    Args:
        layer: The projection.
        count: How many it joins: 1, 2 of one width, or 3 for queries, keys and
            values.
        heads: How many heads of queries, and of keys and values.
    """
    units = layer.kernel.shape[1]
    if count < 3:
        return [units // count] * count
    one = units // (heads[0] + 2 * heads[1])
    return [heads[0] * one, heads[1] * one, heads[1] * one]


class Parts:
    """The tensors of a checkpoint, by the parts of a model that they fill.

    Args:
        family: Has the names of the parts.
        tensors: All tensors.
        prefix: What the names of the encoder's tensors start with.
    """

    def __init__(self, family: Family, tensors: Any, prefix: str) -> None:
        self._family = family
        self._tensors = tensors
        self._prefix = prefix
        self.types = family.token_types

    def name(self, part: str, number: int | None = None) -> str:
        """Returns the name of a part, of the block of that number."""
        return self._prefix + self._family.names[part].format(number)

    def first_type(self, width: int, second: Any) -> Any:
        """Returns the embedding of token type 0; 0 where there are no types.

        Args:
            width: Of the embeddings.
            second: The layer for type 1 minus type 0, or None.
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
        more: Mapping[int, Any] | None = None,
    ) -> Any:
        """Fills a table of embeddings.

        Args:
            layer: The layer that has the table.
            part: Name of the part.
            skip: How many rows come before those of the table.
            scale: Factor of all rows.
            offset: Added to each row, after scaling.
            more: Added to single rows, by their number.

        Returns:
            The last row that was skipped less the first one that was not; 0 if
            none was skipped.
        """
        length, width = layer.embeddings.shape
        rows = self.take(part, (skip + length, width))
        apart = rows[skip - 1] - rows[skip] if skip else 0.0
        rows = rows[skip:]
        rows *= scale  # in place: this is the largest of all tensors
        rows += offset
        for row, added in (more or {}).items():
            rows[row] += added
        layer.embeddings.assign(rows)
        return apart

    def take(
        self,
        part: str,
        shape: Sequence[int],
        number: int | None = None,
        *,
        of: str | None = "weight",
    ) -> np.ndarray:
        """Returns a tensor unchanged: by default the weight of a part."""
        name = self.name(part, number)
        return self._tensors.take(f"{name}.{of}" if of else name, shape)

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: tuple[int, int] | None = None,
        factors: Mapping[str, Any] | None = None,
    ) -> None:
        """Fills a projection from one tensor, or from several, concatenated.

        Args:
            layer: The projection.
            parts: Names of the parts.
            number: Of the block.
            heads: How many of queries, and of keys and values, where there are
                three parts.
            factors: Of the outputs, by part: see `Family.factors`.
        """
        dim, _ = layer.kernel.shape
        sizes = sizes_of(layer, len(parts), heads)
        kernels, biases = [], []
        for part, size in zip(parts, sizes, strict=True):
            name, factor = self.name(part, number), (factors or {}).get(part)
            kernels.append(_times(factor, self._kernel(name, size, dim)))
            if layer.bias is not None:
                biases.append(_times(factor, self._bias(part, name, size)))
        self._fill(layer, kernels, biases)

    def halves(self, layers: Sequence[Any], part: str, number: int) -> None:
        """Fills two projections of one width from the halves of a tensor."""
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

    def norm(
        self,
        layer: Any,
        part: str,
        number: int | None = None,
        *,
        factor: float = 1.0,
    ) -> None:
        """Fills a norm, by its current names or by `gamma` and `beta`.

        Args:
            layer: The norm.
            part: Name of the part.
            number: Of the block.
            factor: Of the weights of an RMS norm, their offset included.
        """
        name = self.name(part, number)
        is_old = f"{name}.gamma" in self._tensors
        scale, offset = ("gamma", "beta") if is_old else ("weight", "bias")
        of_norm = getattr(layer, "gamma", None)
        if of_norm is None:  # RMS, without an offset
            weights = self._tensors.take(f"{name}.{scale}", layer.scale.shape)
            weights = weights.astype("float64") + self._family.norm_offset
            layer.scale.assign(weights * factor)
            return
        of_norm.assign(self._tensors.take(f"{name}.{scale}", of_norm.shape))
        layer.beta.assign(
            np.zeros(layer.beta.shape)
            if part in self._family.without_bias
            else self._tensors.take(f"{name}.{offset}", layer.beta.shape)
        )

    def _kernel(self, name: str, units: int, dim: int) -> np.ndarray:
        """Returns a kernel of shape (out, in)."""
        if self._family.has_our_kernels:
            return self._tensors.take(f"{name}.weight", (dim, units)).T
        return self._tensors.take(f"{name}.weight", (units, dim))

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


def _times(factor: Any, values: np.ndarray) -> np.ndarray:
    """Multiplies the outputs, in the first axis of a kernel or a bias."""
    if factor is None:
        return values
    return np.asarray((values.astype("float64").T * factor).T)
