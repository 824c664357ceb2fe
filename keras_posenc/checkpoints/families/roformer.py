"""RoFormer: BERT with rotary positions that rotate neighbouring pairs."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.electra import Electra
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.positional.rotary_embedding import RotaryEmbedding


class RoFormer(Electra):
    """[Su et al., 2021](https://arxiv.org/abs/2104.09864)."""

    types = ("roformer",)
    prefix = "roformer."
    names = {
        part: name for part, name in Electra.names.items() if part != "position"
    }
    # Sines and cosines: computed here, not loaded.
    unused = (*Electra.unused, r"(roformer\.)?encoder\.embed_positions\..*")
    ignored = "max_position_embeddings"  # there is no table
    fixed = {"rotary_value": False}

    def options(self, config: Config) -> dict[str, Any]:
        options = super().options(config)
        options["attention"] = RotaryEmbedding(
            layout="interleaved", name="rotary_embedding"
        )
        return options

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        pooler = Pooler("classifier.dense", options["activation"])
        return {**super().said(config, options), "pooler": pooler}

    def position(self, config: Config) -> Any:
        return None
