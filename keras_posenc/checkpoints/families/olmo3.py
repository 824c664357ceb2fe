"""OLMo 3 and EXAONE 4: as OLMo 2, with windows in some blocks."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import (
    WHOLE,
    WINDOW,
    kinds_of,
    specs_of,
    whole_at_each,
)
from keras_posenc.checkpoints.families.llama import Olmo2
from keras_posenc.checkpoints.rotary import rotary_by_kind

_BASE = 500000.0


class Olmo3(Olmo2):
    """[OLMo et al., 2025](https://arxiv.org/abs/2512.13961)."""

    types = ("olmo3",)
    # Versions of transformers differ in what another one means to windows.
    fixed = {"rope_theta": _BASE}

    def rotary(self, config: Config) -> None:
        return None

    def own_options(self, config: Config) -> dict[str, Any]:
        options = super().own_options(config)
        kinds = kinds_of(config, whole_at_each(4, options["num_layers"]))
        # It counts the token itself.
        window = config.size("sliding_window", 4096) - 1
        bases = dict.fromkeys((WHOLE, WINDOW), ("rope_theta", _BASE))
        rotary = rotary_by_kind(config, bases)
        specs = specs_of(kinds, options["attention"], window, rotary)
        return {**options, "attention": specs}


class Exaone4(Olmo2):
    """[LG AI Research, 2025](https://arxiv.org/abs/2507.11407).

    Blocks without a window have no position if others have a window.
    """

    types = ("exaone4",)
    query_key_norm = True
    ignored = "sliding_window_pattern"  # repeats `layer_types`

    def own_options(self, config: Config) -> dict[str, Any]:
        config.need("sliding_window")
        if config.values.get("layer_types") is None:
            # Here transformers computes a pattern.
            raise config.wrong("layer_types", "it must be a list")
        options = self.shared_options(config, False, False)
        spec, count = options["attention"], options["num_layers"]
        size = config.size_or("sliding_window", 0)  # 0 for null
        kinds = kinds_of(config, [WHOLE] * count, size > 0)
        whole = None if size else spec.position
        positions = {WHOLE: whole, WINDOW: spec.position}
        # It counts the token itself.
        window = size - 1 if size else None
        specs = specs_of(kinds, spec, window, positions)
        return {**options, "attention": specs}
