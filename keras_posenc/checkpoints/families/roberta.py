"""RoBERTa, also of XLM-R; CamemBERT and data2vec."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.positional.position_embedding import CountedPositionEmbedding


class Roberta(Bert):
    """[Liu et al., 2019](https://arxiv.org/abs/1907.11692)."""

    types: Mapping[str, str] | Sequence[str] = ("roberta", "xlm-roberta")
    prefix = "roberta."
    pooler = Pooler("classifier.dense", "tanh")
    classifier = "classifier.out_proj"
    usual_pad_id = 1

    def options(self, config: Config) -> dict[str, Any]:
        options = self.sizes(config)
        # They count tokens, no padding.
        options["input_position"] = CountedPositionEmbedding(
            config.size("max_position_embeddings") - self.first(options),
            name="position_embedding",
        )
        return {**options, "embedding_norm": True}

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        first = self.first(options)
        return {**super().said(config, options), "first_position": first}

    def first(self, options: dict[str, Any]) -> int:
        """Returns the row of the first token's position."""
        return int(options["pad_id"]) + 1


class Camembert(Roberta):
    """[Martin et al., 2019](https://arxiv.org/abs/1911.03894)."""

    types = ("camembert",)


class Data2VecText(Roberta):
    """[Baevski et al., 2022](https://arxiv.org/abs/2202.03555)."""

    types = ("data2vec-text",)
    prefix = "data2vec_text."
