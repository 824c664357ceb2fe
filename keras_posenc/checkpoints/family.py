"""What a family of encoders is, and how its tensors fill a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

# By the names that Hugging Face gives them; its "gelu" is the exact one.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


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
        pooler: Of a classifier of texts the part before its last projection,
            with its activation; None where classifiers are not supported.
        classifier: The last projection of a classifier of texts.
    """

    prefix: str = ""
    names: Mapping[str, str] = {}
    without_bias: frozenset[str] = frozenset()
    unused: Sequence[str] = ()
    pooler: tuple[str, str] | None = None
    classifier: str = "classifier"
    # How many rows of the table of positions stand before that of the first.
    first_position: int = 0
    # What embeddings are multiplied by.
    embedding_scale: float = 1.0

    def options(self, config: Config) -> dict[str, Any]:
        """The arguments of the `TransformerEncoderModel`."""
        raise NotImplementedError

    def check(
        self, options: Mapping[str, Any], tensors: Tensors, path: Any
    ) -> None:
        """Raises `ValueError` for sizes that no tensor has.

        Tensors are compared with a model that is made, and a damaged
        `config.json` may ask for one of any size.
        """
        width = options["d_model"]
        position = options["input_position"]
        sizes = {
            "d_model": width * width,
            "vocabulary_size": options["vocabulary_size"]
            * options.get("embedding_dim", width),
            "intermediate_dim": options["intermediate_dim"] * width,
            "positions": getattr(position, "sequence_length", 0) * width,
        }
        for name, size in sizes.items():
            if size > tensors.largest:
                raise ValueError(
                    f"'{path}' describes a larger model than the tensors are "
                    f"of: its {name} would take a tensor of {size} numbers, "
                    f"and the largest has {tensors.largest}"
                )

    def fill(self, model: TransformerEncoderModel, tensors: Tensors) -> None:
        """Assigns the checkpoint's tensors to the model's weights."""
        parts = Parts(self, tensors, self._prefix_in(tensors))
        self.fill_embeddings(model, parts)
        for number, block in enumerate(model.encoder.blocks):
            if number and block is model.encoder.blocks[0]:  # shared
                break
            self.fill_block(block, parts, number)
        if model.encoder.final_norm is not None:
            parts.norm(model.encoder.final_norm, "final_norm")

    def fill_embeddings(
        self, model: TransformerEncoderModel, parts: "Parts"
    ) -> None:
        """Those of ids, positions and token types, of which all are type 0."""
        table = model.embedding.embeddings
        rows = parts.take("embedding", table.shape) * self.embedding_scale
        width = rows.shape[1]
        first_type: Any = 0.0
        if parts.has("token_type"):
            types = parts.types or 1
            first_type = parts.take("token_type", (types, width))[0]
        if "position" in self.names:
            position: Any = model.input_position
            position = position.embeddings
            length = position.shape[0] + self.first_position
            kept = parts.take("position", (length, width))
            position.assign(kept[self.first_position :] + first_type)
        else:
            rows = rows + first_type
        table.assign(rows)
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

    def _prefix_in(self, tensors: Tensors) -> str:
        has = any(name.startswith(self.prefix) for name in tensors.names)
        return self.prefix if has else ""


class Parts:
    """The tensors of a checkpoint by the parts of a model that they fill.

    Args:
        family: Which names them.
        tensors: All of them.
        prefix: What the encoder's begin with.
    """

    def __init__(self, family: Family, tensors: Tensors, prefix: str) -> None:
        self._family = family
        self._tensors = tensors
        self._prefix = prefix
        self.types: int | None = getattr(family, "token_types", None)

    def name(self, part: str, number: int | None = None) -> str:
        """What a part is called, of the block of that number."""
        return self._prefix + self._family.names[part].format(number)

    def has(self, part: str) -> bool:
        """Whether the checkpoint has a part that is in no block."""
        known = part in self._family.names
        return known and f"{self.name(part)}.weight" in self._tensors

    def take(self, part: str, shape: Sequence[int]) -> np.ndarray:
        """The tensor of a table."""
        return self._tensors.take(f"{self.name(part)}.weight", shape)

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
        dim, units = layer.kernel.shape
        sizes = [units]
        if heads is not None and len(parts) == 3:
            one = units // (heads[0] + 2 * heads[1])
            sizes = [heads[0] * one, heads[1] * one, heads[1] * one]
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
