"""The base of the families of decoders, and what their configs share."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import Family, specs_in
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.transformer.specs import Attention
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
        scales_inputs: Whether embeddings are multiplied by the root of their
            width.
    """

    model: Any = TransformerDecoderModel
    scales_inputs = False

    def as_encoder(self) -> Self:
        """Returns the same family, read without logits."""
        encoder = copy.copy(self)
        encoder.model = TransformerEncoderModel
        encoder.unused = (*self.unused, rf"{HEAD}\..*")
        return encoder

    def options(self, config: Config) -> dict[str, Any]:
        for key in ("pad_token_id", "unk_token_id", "cache_implementation"):
            config.take(key, None)
        key = "is_causal"  # as of gte-Qwen2-instruct
        is_causal = config.expect(key, True, False)
        options = {
            "use_causal_mask": True,
            **self.own_options(config),
            "pad_id": -1,
        }
        if not is_causal:
            options["use_causal_mask"] = False
            if any(spec.window for spec in specs_in(options)):
                raise config.wrong(
                    key, "false is not supported in a model with windows"
                )
        elif not options["use_causal_mask"]:
            key = "use_bidirectional_attention"
        if self.model is TransformerDecoderModel:
            if not options.pop("use_causal_mask"):
                raise config.wrong(
                    key,
                    "tokens attend to later ones, so this model generates no "
                    "text. Such an encoder is read from a folder with "
                    "modules.json, of sentence-transformers",
                )
            return {**options, "scale_inputs": self.scales_inputs}
        del options["embeddings"]
        return options

    def own_options(self, config: Config) -> dict[str, Any]:
        """Returns the arguments of a `TransformerDecoderModel`.

        With `embeddings`, and `use_causal_mask` where it may be False; without
        `pad_id` and `scale_inputs`.
        """
        raise NotImplementedError

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        is_scaled = self.scales_inputs and "scale_inputs" not in options
        scale = options["d_model"] ** 0.5 if is_scaled else 1.0
        return {"embedding_scale": scale}

    def match(self, model: Any, parts: Any) -> None:
        stack = getattr(model, "decoder", None) or model.encoder
        scale = parts.reading.embedding_scale
        parts.table(model.embedding, "embedding", scale=scale)
        if "position" in self.names:
            parts.table(model.input_position, "position")
        for number, block in enumerate(stack.blocks):
            self.fill_block(block, parts, number)
        has_logits = isinstance(model, TransformerDecoderModel)
        factor = parts.reading.output_scale if has_logits else 1.0
        parts.norm(stack.final_norm, "final_norm", factor=factor)
        if has_logits:
            parts.logits(model, HEAD, scale)

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


def whole_at_each(every: int, count: int) -> list[str]:
    """Returns kinds of `count` blocks, each `every`-th of which is `WHOLE`."""
    return [WINDOW if n % every else WHOLE for n in range(1, count + 1)]


def kinds_of(
    config: Config, usual: Sequence[str], has_window: bool = True
) -> list[str]:
    """Returns the kind of each block, `WHOLE` or `WINDOW`, by `layer_types`."""
    kinds = config.take("layer_types", None, list, type(None))
    kinds = [*usual] if kinds is None else kinds
    if len(kinds) != len(usual) or {*map(str, kinds)} - {WHOLE, WINDOW}:
        raise config.wrong(
            "layer_types",
            f"it must say {WHOLE} or {WINDOW} of each of {len(usual)} blocks",
        )
    if WINDOW in kinds and not has_window:
        raise config.wrong(
            "layer_types", f"it says {WINDOW}, and there is no window"
        )
    return kinds


def specs_of(
    kinds: Sequence[str],
    spec: Attention,
    window: int | None,
    positions: Mapping[str, Any],
) -> Attention | list[Attention]:
    """Returns the spec of each block, by its kind; one if all are equal.

    Each is `spec` with the position of its kind, and the window where its kind
    is `WINDOW`.
    """
    by_kind = {
        kind: replace(
            spec, position=position, window=window if kind == WINDOW else None
        )
        for kind, position in positions.items()
    }
    each = [by_kind[kind] for kind in kinds]
    return each if len({*kinds}) > 1 else each[0]
