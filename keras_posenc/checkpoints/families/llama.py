"""Llama, Mistral and their descendants."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import WHOLE, DecoderFamily
from keras_posenc.checkpoints.family import (
    ACTIVATIONS,
    SIZES,
    name_of,
    said_sizes,
    specs_in,
)
from keras_posenc.checkpoints.rotary import KINDS, rotary_of
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.transformer.specs import Attention, Norm


class Llama(DecoderFamily):
    """[Touvron et al., 2023](https://arxiv.org/abs/2302.13971)."""

    types = ("llama",)
    prefix = "model."
    names = {
        "embedding": "embed_tokens",
        "query": "layers.{}.self_attn.q_proj",
        "key": "layers.{}.self_attn.k_proj",
        "value": "layers.{}.self_attn.v_proj",
        "attention_output": "layers.{}.self_attn.o_proj",
        "attention_norm": "layers.{}.input_layernorm",
        "intermediate": "layers.{}.mlp.up_proj",
        "gate": "layers.{}.mlp.gate_proj",
        "feed_forward_output": "layers.{}.mlp.down_proj",
        "feed_forward_norm": "layers.{}.post_attention_layernorm",
        "final_norm": "norm",
    }
    # Computed from the config, in files of older versions.
    unused = (r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)
    # Defaults where the config has no such key.
    is_usually_tied = False
    usual_head_dim: int | None = None  # the width, divided by the heads
    usual_activation = "silu"
    usual_base = 10000.0
    usual_epsilon = 1e-6
    usual_share: float | None = None  # of the features that are rotated: all
    layout = "halves"  # of the pairs that are rotated
    scalings: tuple[str, ...] = KINDS
    norm_kind, epsilon_key = "rms", "rms_norm_eps"
    norm_at = "before"
    query_key_norm: bool | str = False
    activation_key = "hidden_act"
    ignored = "is_llama_config"  # of SmolLM2's training
    fixed: Mapping[str, Any] = {"rope_interleaved": False}

    def own_options(self, config: Config) -> dict[str, Any]:
        attention = config.expect("attention_bias", False, True)
        rest = config.expect("mlp_bias", False, True)
        return self.shared_options(config, attention, attention or rest)

    def rotary(self, config: Config) -> RotaryEmbedding | None:
        """Returns the position of all blocks; None if that is by kind."""
        return rotary_of(
            config,
            self.usual_base,
            kinds=self.scalings,
            share=self.usual_share,
            layout=self.layout,
        )

    def shared_options(
        self, config: Config, query_key_value: bool, others: bool
    ) -> dict[str, Any]:
        """Returns the options that all descendants of Llama have in common.

        The flags say which projections have biases: a projection of a block has
        one or, in `without_bias`, zeros.
        """
        sizes = said_sizes(config)
        heads = sizes["num_heads"]
        usual = self.usual_head_dim or sizes["d_model"] // heads
        is_tied = config.take("tie_word_embeddings", self.is_usually_tied, bool)
        return {
            **sizes,
            "attention": Attention(
                self.rotary(config),
                num_key_value_heads=config.size_or(
                    "num_key_value_heads", heads
                ),
                head_dim=config.size_or("head_dim", usual),
                use_bias=query_key_value,
                query_key_norm=self.query_key_norm,
            ),
            "activation": config.choose(
                self.activation_key, ACTIVATIONS, self.usual_activation
            ),
            "norm": Norm(
                self.norm_kind,
                at=self.norm_at,
                epsilon=config.positive(self.epsilon_key, self.usual_epsilon),
            ),
            "use_bias": others,
            "use_gate": True,
            "dropout": 0.0,
            "input_position": None,
            "embeddings": "tied" if is_tied else "separate",
        }

    def describe(self, model: Any) -> dict[str, Any]:
        spec = specs_in({"attention": model.attention})[0]
        base = getattr(spec.position, "max_wavelength", self.usual_base)
        scaling = getattr(spec.position, "scaling", None) or {}
        has_bias = model.use_bias if spec.use_bias is None else spec.use_bias
        return {
            **{key: getattr(model, name) for name, key in SIZES.items()},
            self.activation_key: name_of(model.activation, "decoder"),
            "attention_bias": has_bias,
            "head_dim": spec.head_dim or model.d_model // model.num_heads,
            "mlp_bias": model.use_bias,
            "num_key_value_heads": spec.num_key_value_heads or model.num_heads,
            "rms_norm_eps": model.norm.epsilon,
            "rope_parameters": {
                "rope_type": "default",
                **scaling,
                "rope_theta": base,
            },
            "rope_theta": base,
            "tie_word_embeddings": model.head is None,
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        without: set[str] = set()
        if not config.values.get("attention_bias"):
            without |= {"attention_output"}
        if not config.values.get("mlp_bias"):
            without |= {"intermediate", "gate", "feed_forward_output"}
        found = super().said(config, options)
        return {**found, "without_bias": frozenset(without)}


class Mistral(Llama):
    """[Jiang et al., 2023](https://arxiv.org/abs/2310.06825)."""

    types = ("mistral",)
    usual_window: int | None = 4096

    def own_options(self, config: Config) -> dict[str, Any]:
        window = config.values.get("sliding_window", self.usual_window)
        if window is not None:
            # It counts the token itself.
            window = config.size("sliding_window", window) - 1
        else:
            config.take("sliding_window", None)
        options = self.shared_options(config, False, False)
        attention = replace(options["attention"], window=window)
        return {**options, "attention": attention}

    def describe(self, model: Any) -> dict[str, Any]:
        spec = specs_in({"attention": model.attention})[0]
        values = super().describe(model)
        del values["attention_bias"], values["mlp_bias"]
        return {**values, "sliding_window": spec.window and spec.window + 1}


class Olmo2(Llama):
    """[OLMo et al., 2024](https://arxiv.org/abs/2501.00656)."""

    types = ("olmo2",)
    names = Llama.names | {
        "query_norm": "layers.{}.self_attn.q_norm",
        "key_norm": "layers.{}.self_attn.k_norm",
        "attention_output_norm": "layers.{}.post_attention_layernorm",
        "feed_forward_output_norm": "layers.{}.post_feedforward_layernorm",
    }
    usual_epsilon = 1e-5
    norm_at = "output"
    query_key_norm: bool | str = "all"


class Granite(Llama):
    """[IBM, 2024](https://arxiv.org/abs/2407.13739): depth scaling by muP."""

    types = ("granite",)

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        embedding, residual, query, logits = (
            config.positive(key, 1.0)
            for key in (
                "embedding_multiplier",
                "residual_multiplier",
                "attention_multiplier",
                "logits_scaling",
            )
        )
        is_tied = options.get("embeddings") == "tied"  # which are scaled
        return {
            **super().said(config, options),
            "embedding_scale": embedding,
            "output_scale": 1 / logits / (embedding if is_tied else 1),
            "factors": {
                "query": query * options["attention"].head_dim ** 0.5,
                "attention_output": residual,
                "feed_forward_output": residual,
            },
        }


class GraniteHybrid(Granite):
    """[IBM, 2025](https://huggingface.co/ibm-granite/granite-4.0-micro).

    Granite 4, if all blocks have attention and none has experts.
    """

    types = ("granitemoehybrid",)
    names = Llama.names | {
        "gate_intermediate": "layers.{}.shared_mlp.input_linear",
        "feed_forward_output": "layers.{}.shared_mlp.output_linear",
    }
    # Of Mamba, of experts and of training.
    ignored = """
        init_method mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head
        mamba_d_state mamba_expand mamba_n_groups mamba_n_heads
        mamba_proj_bias num_experts_per_tok output_router_logits
        router_aux_loss_coef time_step_limit time_step_max time_step_min
    """
    fixed = {"normalization_function": "rmsnorm"}

    def rotary(self, config: Config) -> RotaryEmbedding | None:
        rotary = super().rotary(config)
        kind = config.expect("position_embedding_type", None, "nope", "rope")
        return rotary if kind == "rope" else None

    def own_options(self, config: Config) -> dict[str, Any]:
        kinds = config.take("layer_types", ["mamba"], list)
        if {*map(str, kinds)} - {"attention", WHOLE}:
            raise config.wrong(
                "layer_types",
                "only blocks of attention are supported, not those of Mamba. "
                "Choose a checkpoint that has none, such as granite-4.0-micro",
            )
        width = config.size("shared_intermediate_size", 1024)
        return {**super().own_options(config), "intermediate_dim": width}


class SmolLM3(Llama):
    """[Bakouch et al., 2025](https://huggingface.co/blog/smollm3)."""

    types = ("smollm3",)
    is_usually_tied = True
    usual_base = 2000000.0
    # Of windows, which are not used.
    ignored = "layer_types max_window_layers sliding_window"
    fixed = {"use_sliding_window": False}

    def own_options(self, config: Config) -> dict[str, Any]:
        every = config.size("no_rope_layer_interval", 4)
        options = super().own_options(config)
        count = options["num_layers"]
        usual = [number % every for number in range(1, count + 1)]
        has_rotary = config.take("no_rope_layers", None, list, type(None))
        if has_rotary is None:
            has_rotary = usual
        if len(has_rotary) != count:
            raise config.wrong(
                "no_rope_layers", f"it must have {count} numbers"
            )
        spec = options["attention"]
        specs = [
            spec if each else replace(spec, position=None)
            for each in has_rotary
        ]
        return {**options, "attention": specs}


class Phi3(Mistral):
    """[Abdin et al., 2024](https://arxiv.org/abs/2404.14219)."""

    types = ("phi3",)
    names = Mistral.names | {
        "query_key_value": "layers.{}.self_attn.qkv_proj",
        "gate_intermediate": "layers.{}.mlp.gate_up_proj",
    }
    usual_epsilon = 1e-5
    usual_window = None
    usual_share = 1.0
    scalings = (*KINDS, "longrope")
    fixed = {
        **dict.fromkeys(("attention_bias", "lm_head_bias", "mlp_bias"), False),
        **dict.fromkeys(("full_attn_mod", "interpolate_factor"), 1),
    }


class Glm(Llama):
    """[GLM et al., 2024](https://arxiv.org/abs/2406.12793)."""

    types = ("glm",)
    names = Llama.names | {"gate_intermediate": "layers.{}.mlp.gate_up_proj"}
    usual_head_dim = 128
    usual_epsilon = 1.5625e-7
    usual_share = 0.5
    layout = "interleaved"
    fixed: Mapping[str, Any] = {}

    def own_options(self, config: Config) -> dict[str, Any]:
        has_bias = config.expect("attention_bias", True, False)
        return self.shared_options(config, has_bias, False)


class Glm4(Glm):
    """[Zhipu AI, 2025](https://huggingface.co/zai-org/GLM-4-9B-0414)."""

    types = ("glm4",)
    names = Glm.names | {
        "attention_output_norm": "layers.{}.post_self_attn_layernorm",
        "feed_forward_output_norm": "layers.{}.post_mlp_layernorm",
    }
    norm_at = "before output"
