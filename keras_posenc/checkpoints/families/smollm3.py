"""SmolLM3: Llama with rotary positions in some of its blocks."""

from dataclasses import replace
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.llama import Llama


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
