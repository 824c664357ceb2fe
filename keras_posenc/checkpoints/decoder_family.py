"""The base of the families of decoders, and what their configs share."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from keras import ops

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import Family, Parts
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer.transformer_decoder_model import (
    TransformerDecoderModel,
)
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

WHOLE, WINDOW = "full_attention", "sliding_attention"
HEAD = "lm_head"


class DecoderFamily(Family):
    """Base of the families of decoders, by `model_type`.

    Every id is a token: `pad_id` is -1. The same blocks without logits are an
    encoder, which reads the tensors of a sentence encoder.

    Attributes:
        is_causal: Whether no token of an encoder attends to later ones.
    """

    model: Any = TransformerDecoderModel
    is_causal = True

    def as_encoder(self) -> Self:
        """Returns the family of the same checkpoints, read without logits."""
        encoder = copy.copy(self)
        encoder.model = TransformerEncoderModel
        encoder.unused = (*self.unused, rf"{HEAD}\..*")
        return encoder

    def options(self, config: Config) -> dict[str, Any]:
        for key in ("pad_token_id", "unk_token_id", "cache_implementation"):
            config.take(key, None)
        key = "is_causal"  # as of gte-Qwen2-instruct
        is_causal = config.expect(key, True, False)
        options = {**self.own_options(config), "pad_id": -1}
        if not is_causal:
            self.is_causal = False
            if options.get("attention_window") is not None:
                raise config.wrong(
                    key, "false is not supported in a model with windows"
                )
        elif not self.is_causal:
            key = "use_bidirectional_attention"
        if self.model is TransformerDecoderModel:
            if not self.is_causal:
                raise config.wrong(
                    key,
                    "tokens attend to later ones, so this model generates no "
                    "text. Such an encoder is read from a folder with "
                    "modules.json, of sentence-transformers",
                )
            return options
        del options["embeddings"]
        if options.pop("scale_inputs"):
            self.embedding_scale = options["d_model"] ** 0.5
        return {**options, "use_causal_mask": self.is_causal}

    def own_options(self, config: Config) -> dict[str, Any]:
        """Returns the arguments of a `TransformerDecoderModel`.

        With `embeddings` and `scale_inputs`, without `pad_id`.
        """
        raise NotImplementedError

    def check(
        self, options: Mapping[str, Any], tensors: Tensors, path: Any
    ) -> None:
        super().check(options, tensors, path)
        heads, width = options["num_heads"], options.get("head_dim") or 0
        size = heads * width * options["d_model"]
        if size > tensors.largest:
            raise ValueError(
                f"'{path}' describes a larger model than the tensors are of: "
                f"its head_dim would take a tensor of {size} numbers, and the "
                f"largest has {tensors.largest}"
            )

    def match(self, model: Any, parts: Any) -> None:
        stack = getattr(model, "decoder", None) or model.encoder
        parts.table(model.embedding, "embedding", scale=self.embedding_scale)
        if "position" in self.names:
            parts.table(model.input_position, "position")
        for number, block in enumerate(stack.blocks):
            self.fill_block(block, parts, number)
        has_logits = isinstance(model, TransformerDecoderModel)
        factor = self.output_scale if has_logits else 1.0
        parts.norm(stack.final_norm, "final_norm", factor=factor)
        if has_logits:
            parts.head(model, self.embedding_scale)

    def fill(self, model: Any, tensors: Tensors) -> None:
        self.match(model, DecoderParts(self, tensors, self.prefix_in(tensors)))

    def fill_block(self, block: Any, parts: Parts, number: int) -> None:
        super().fill_block(block, parts, number)
        attention = block.attention
        factors = self.factors(block, parts, number)
        for norm, part in (
            (attention.query_norm, "query_norm"),
            (attention.key_norm, "key_norm"),
            (block.attention_output_norm, "attention_output_norm"),
            (block.feed_forward_output_norm, "feed_forward_output_norm"),
        ):
            if norm is not None:
                factor = factors.get(part, 1.0)
                parts.norm(norm, part, number, factor=factor)

    def biases(
        self, query_key_value: bool, output: bool, feed_forward: bool
    ) -> dict[str, Any]:
        """Returns the options of the projections that have biases.

        A projection of a block has one or, in `without_bias`, zeros.
        """
        if output or feed_forward:
            without: Sequence[str] = (
                ("attention_output",) if not output else ()
            ) + (
                ("intermediate", "gate", "feed_forward_output")
                if not feed_forward
                else ()
            )
            self.without_bias = frozenset(without)
        return {
            "use_bias": output or feed_forward,
            "query_key_value_bias": query_key_value,
        }


class DecoderParts(Parts):
    """The tensors of a decoder, by the parts of a model that they fill."""

    def head(self, model: TransformerDecoderModel, scale: float) -> None:
        """Fills the projection to logits; checks tied ones, which are stored.

        Args:
            model: The model.
            scale: What the rows of its table were multiplied by.

        Raises:
            ValueError: There are two tables where the config ties them.
        """
        name = f"{HEAD}.weight"
        shape = model.embedding.embeddings.shape
        if model.head is not None:
            model.head.kernel.assign(self._tensors.take(name, shape).T)
            return
        if name not in self._tensors:
            return
        table = model.embedding.embeddings
        stored = ops.cast(self._tensors.take(name, shape) * scale, table.dtype)
        if not np.array_equal(
            ops.convert_to_numpy(stored), ops.convert_to_numpy(table)
        ):
            raise ValueError(
                f"The tensor '{name}' differs from the embeddings, and "
                "config.json says that both are one ('tie_word_embeddings'). "
                'If the model has two, write "tie_word_embeddings": false '
                "into it"
            )


def windows_of(
    config: Config, kinds: Sequence[Any], window: int | None
) -> list[int | None] | None:
    """Returns how many earlier tokens each block sees, by its kind.

    Args:
        config: The config.
        kinds: Those of `layer_types`, one for each block.
        window: How many tokens the blocks with a window see; None for no
            windows in any block.

    Raises:
        ValueError: A kind is unknown, or has no window.
    """
    count = config.values.get("num_hidden_layers")
    if len(kinds) != count or {*map(str, kinds)} - {WHOLE, WINDOW}:
        raise config.wrong(
            "layer_types",
            f"it must say {WHOLE} or {WINDOW} of each of {count} blocks",
        )
    if WINDOW not in kinds:
        return None
    if window is None:
        raise config.wrong(
            "layer_types", f"it says {WINDOW}, and there is no window"
        )
    return [window if kind == WINDOW else None for kind in kinds]
