"""Cohere's Command R, R+ without norms of queries, R7B and A."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import (
    WHOLE,
    WINDOW,
    kinds_of,
    specs_of,
    whole_at_each,
)
from keras_posenc.checkpoints.families.llama import Llama


class Cohere(Llama):
    """[Cohere, 2024](https://docs.cohere.com/docs/command-r)."""

    types = ("cohere",)
    names = {
        part: name
        for part, name in Llama.names.items()
        if part != "feed_forward_norm"
    }
    is_usually_tied = True
    usual_base = 500000.0
    usual_epsilon = 1e-5
    layout = "interleaved"
    norm_kind, epsilon_key = "layer", "layer_norm_eps"
    norm_at = "parallel"
    fixed = {"use_qk_norm": False}

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        found = super().said(config, options)
        without = {"attention_norm", "final_norm"}
        return {
            **found,
            "output_scale": config.positive("logit_scale", 0.0625),
            "without_bias": found["without_bias"] | without,
        }


class Cohere2(Cohere):
    """[Cohere, 2025](https://arxiv.org/abs/2504.00698)."""

    types = ("cohere2",)
    usual_base = 10000.0
    # Repeats `sliding_window_pattern`; concerns several devices.
    ignored = "layer_switch use_parallel_embedding"
    fixed = {
        **dict.fromkeys(
            (
                "use_embedding_sharing",
                "use_gated_activation",
                "use_parallel_block",
            ),
            True,
        ),
        "order_of_interleaved_layers": "local_attn_first",
        "position_embedding_type": "rope_gptj",
        "rotary_pct": 1.0,
        "use_qk_norm": False,
    }

    def own_options(self, config: Config) -> dict[str, Any]:
        options = super().own_options(config)
        every = config.size("sliding_window_pattern", 4)
        config.take("_sliding_window_pattern", every)
        usual = whole_at_each(every, options["num_layers"])
        spec = options["attention"]
        # It counts the token itself. Where there is none, there is no position.
        window = config.size("sliding_window", 4096) - 1
        positions = {WHOLE: None, WINDOW: spec.position}
        specs = specs_of(kinds_of(config, usual), spec, window, positions)
        return {**options, "attention": specs}
