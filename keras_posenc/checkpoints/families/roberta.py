"""RoBERTa and XLM-R, whose positions start at `pad_token_id` + 1."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.positional.position_embedding import (
    CountedPositionEmbedding,
)


class Roberta(Bert):
    """[Liu et al., 2019](https://arxiv.org/abs/1907.11692)."""

    types = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
    prefix = "roberta."
    unused = (
        r"(roberta\.)?embeddings\.position_ids",
        r"(roberta\.)?pooler\.dense\.(weight|bias)",
        r"lm_head\..*",
    )
    pooler = Pooler("classifier.dense", "tanh")
    classifier = "classifier.out_proj"
    usual_pad_id = 1

    def options(self, config: Config) -> dict[str, Any]:
        options = self.sizes(config)
        options["input_position"] = self.after(options["pad_id"], config)
        return {**options, "embedding_norm": True}

    def after(self, pad_id: int, config: Config) -> Any:
        """Returns positions that count tokens from `pad_id` + 1, no padding."""
        self.first_position = pad_id + 1
        return CountedPositionEmbedding(
            config.size("max_position_embeddings") - self.first_position,
            name="position_embedding",
        )
