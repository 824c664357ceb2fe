"""The dense text models of Gemma 4."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from keras_posenc.checkpoints.config import REQUIRED, Config
from keras_posenc.checkpoints.decoder_family import (
    WHOLE,
    WINDOW,
    kinds_of,
    whole_at_each,
)
from keras_posenc.checkpoints.families.gemma3 import Gemma3
from keras_posenc.checkpoints.families.llama import Llama
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.checkpoints.rotary import KINDS, rotary_by_kind
from keras_posenc.checks import check_count
from keras_posenc.transformer.specs import Attention

_SIZES = ("head_dim", "num_key_value_heads")
# Keys of images and sounds.
_OF_OTHERS = """
    audio_config audio_token_id boa_token_id boi_token_id eoa_token_id
    eoa_token_index eoi_token_id image_token_id pad_token_id video_token_id
    vision_config vision_soft_tokens_per_image
"""


class Gemma4(Gemma3):
    """[Google, 2026](https://ai.google.dev/gemma/docs/core/model_card_4)."""

    types = ("gemma4_text",)
    names = Gemma3.names | {
        "layer_embedding": "embed_tokens_per_layer",
        "layer_projection": "per_layer_model_projection",
        "layer_norm": "per_layer_projection_norm",
        "input_gate": "layers.{}.per_layer_input_gate",
        "input_projection": "layers.{}.per_layer_projection",
        "input_norm": "layers.{}.post_per_layer_input_norm",
        "output_scale": "layers.{}.layer_scalar",
    }
    # Of blocks with the keys of others.
    unused = (
        r".*layers\.\d+\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\.weight",
    )
    norm_offset = 0.0
    # Of experts, which `enable_moe_block` says.
    ignored = "expert_intermediate_size moe_intermediate_size top_k_experts"
    fixed = {"enable_moe_block": False}
    said = Llama.said  # scores are not scaled

    def as_encoder(self) -> Any:
        raise ValueError(
            "Gemma 4 is read as a model that generates text alone: load it "
            "without `encoder_only`, from a folder without modules.json"
        )

    def own_options(self, config: Config) -> dict[str, Any]:
        config.expect("use_bidirectional_attention", None, "vision")
        has_bias = config.expect("attention_bias", False, True)
        options = self.shared_options(config, has_bias, has_bias)
        width = config.checked("hidden_size_per_layer_input", check_count, 256)
        size = options["vocabulary_size"]
        config.expect("vocab_size_per_layer_input", size)
        specs = self._specs(config, options["num_layers"], options["attention"])
        between = options["intermediate_dim"]
        if config.expect("use_double_wide_mlp", False, True):
            shared = [spec.keys_of is not None for spec in specs]
            between = [between * (2 if each else 1) for each in shared]
        return {
            **options,
            "attention": specs,
            "intermediate_dim": between,
            "layer_input_dim": width or None,
            "use_output_scale": True,
            "logits_cap": config.take("final_logit_softcapping", None),
        }

    def _specs(
        self, config: Config, count: int, spec: Attention
    ) -> list[Attention]:
        kinds = kinds_of(config, whole_at_each(6, count))
        kinds[-1] = WHOLE  # as in transformers
        config.need("rope_parameters")
        bases = {WHOLE: ("rope_theta", 1e6), WINDOW: ("rope_theta", 1e4)}
        rotary = rotary_by_kind(config, bases, (*KINDS, "proportional"))
        has_no_values = config.expect("attention_k_eq_v", False, True)
        heads = config.size_or(
            "num_global_key_value_heads", spec.num_key_value_heads or 1
        )
        of_whole = {"head_dim": config.size_or("global_head_dim", 512)}
        if has_no_values:
            of_whole["num_key_value_heads"] = heads
        # As transformers writes it: what differs, by the number of the block.
        given = config.take("per_layer_config", None, dict, type(None))
        apart = Config(given or {}, f"{config.path}', 'per_layer_config")
        window = config.size("sliding_window", 512) - 1  # less the token itself
        key = "num_kv_shared_layers"
        own = kinds[: max(count - config.checked(key, check_count, 0), 0)]
        if {*kinds} - {*own}:
            raise config.wrong(key, "no block of one kind is left with keys")
        specs = []
        for number, kind in enumerate(kinds):
            sizes: dict[str, Any] = of_whole if kind == WHOLE else {}
            if given is not None:
                part = apart.part(str(number), {})
                sizes = {x: part.size(x) for x in _SIZES if x in part.values}
                part.finish(of_no_matter=())
            last = len(own) - 1 - own[::-1].index(kind)
            has_keys = number < len(own)
            made = replace(
                spec,
                position=rotary[kind],
                window=window if kind == WINDOW else None,
                value_norm=has_keys,
                keys_as_values=has_keys and has_no_values and kind == WHOLE,
                keys_of=None if has_keys else last,
                **sizes,
            )
            specs.append(made)
        apart.finish(of_no_matter=())
        return specs

    def factors(
        self, block: Any, parts: Parts, number: int
    ) -> Mapping[str, Any]:
        # Scores are not divided by the root of the width of a head.
        return {"query_norm": block.attention.attention.head_dim**0.5}

    def match(self, model: Any, parts: Any) -> None:
        super().match(model, parts)
        if model.layer_input_dim is None:
            return
        scale = model.layer_input_dim**0.5
        parts.table(model.layer_embedding, "layer_embedding", scale=scale)
        layer, name = model.decoder.layer_projection, "layer_projection"
        parts.dense(layer, [name], factors={name: model.d_model**-0.5})
        parts.norm(model.decoder.layer_norm, "layer_norm")

    def fill_block(self, block: Any, parts: Parts, number: int) -> None:
        super().fill_block(block, parts, number)
        name = parts.tensor("output_scale", number, None)
        parts.pair(block.output_scale, name, (1,))
        if block.input_gate is not None:
            parts.dense(block.input_gate, ["input_gate"], number)
            layer, name = block.input_projection, "input_projection"
            # Of a sum of two inputs.
            parts.dense(layer, [name], number, factors={name: 0.5**0.5})
            parts.norm(block.input_norm, "input_norm", number)


class Gemma4OfMedia(Gemma4):
    """Of a model of texts, images and sounds, the part for texts."""

    types = ("gemma4",)
    prefix = "model.language_model."
    unused = (
        rf"{Gemma4.unused[0]}|model\.(vision_tower|embed_vision|audio_tower|"
        r"embed_audio)\..*",
    )

    def values_of(self, values: Mapping[str, Any], path: Any) -> Any:
        config = Config(values, path)
        config.refuse_features()
        text = config.take("text_config", REQUIRED, dict)
        for key in _OF_OTHERS.split():
            config.take(key, None)
        config.expect("tie_word_embeddings", True)
        config.finish()
        ends = values.get("eos_token_id", text.get("eos_token_id"))
        return {
            **text,
            "architectures": ["Gemma4ForCausalLM"],
            "eos_token_id": ends,
            "model_type": "gemma4_text",
        }
