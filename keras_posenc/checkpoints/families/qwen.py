"""Qwen 2, 2.5 and 3."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import (
    WHOLE,
    WINDOW,
    kinds_of,
    specs_of,
)
from keras_posenc.checkpoints.families.llama import Llama


class Qwen2(Llama):
    """[Yang et al., 2024](https://arxiv.org/abs/2407.10671)."""

    types = ("qwen2",)
    fixed = {"use_mrope": False}  # positions of images

    def own_options(self, config: Config) -> dict[str, Any]:
        return self.windowed(config, self.shared_options(config, True, False))

    def describe(self, model: Any) -> dict[str, Any]:
        values = super().describe(model)
        del values["attention_bias"], values["mlp_bias"]
        return values

    def windowed(
        self, config: Config, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns the options with windows in some blocks."""
        is_used = config.expect("use_sliding_window", False, True)
        size = config.size_or("sliding_window", 4096)
        first = config.take("max_window_layers", 28, int)
        if config.values.get("sliding_window", size) is None:
            is_used = False
        # It counts the token itself.
        window = size - 1 if is_used else None
        numbers = range(config.values["num_hidden_layers"])
        usual = [
            WINDOW if x >= first and window is not None else WHOLE
            for x in numbers
        ]
        kinds = kinds_of(config, usual, window is not None)
        spec = options["attention"]
        positions = dict.fromkeys((WHOLE, WINDOW), spec.position)
        specs = specs_of(kinds, spec, window, positions)
        return {**options, "attention": specs}


class Qwen3(Qwen2):
    """[Yang et al., 2025](https://arxiv.org/abs/2505.09388)."""

    types = ("qwen3",)
    names = Llama.names | {
        "query_norm": "layers.{}.self_attn.q_norm",
        "key_norm": "layers.{}.self_attn.k_norm",
    }
    usual_head_dim = 128
    query_key_norm = True

    def own_options(self, config: Config) -> dict[str, Any]:
        attention = config.expect("attention_bias", False, True)
        options = self.shared_options(config, attention, attention)
        return self.windowed(config, options)

    def describe(self, model: Any) -> dict[str, Any]:
        values = Llama.describe(self, model)
        del values["mlp_bias"]
        return values
