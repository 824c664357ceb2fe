"""RoFormer: BERT with rotary positions that rotate neighbouring pairs."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.electra import Electra
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.positional.rotary_embedding import RotaryEmbedding


class RoFormer(Electra):
    """[Su et al., 2021](https://arxiv.org/abs/2104.09864)."""

    types = {"roformer": "RoFormer"}
    prefix = "roformer."
    names = {
        part: name for part, name in Electra.names.items() if part != "position"
    }
    unused = (
        # Sines and cosines: computed here, not loaded.
        r"(roformer\.)?encoder\.embed_positions\.weight",
        r"(roformer\.)?embeddings\.position_ids",
        r"(roformer\.)?pooler\.dense\.(weight|bias)",
        r"cls\..*",
    )

    def options(self, config: Config) -> dict[str, Any]:
        config.expect("rotary_value", False)
        options = super().options(config)
        self.pooler = Pooler("classifier.dense", options["activation"])
        options["attention_position"] = RotaryEmbedding(
            layout="interleaved", name="rotary_embedding"
        )
        return options

    def position(self, config: Config) -> Any:
        config.take("max_position_embeddings", None)  # there is no table
        return None
