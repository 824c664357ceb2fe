"""MPNet: BERT with T5's relative position biases."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.roberta import Roberta
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.positional.biases import RelativePositionBias

_BUCKETS = 32


class MPNet(Roberta):
    """[Song et al., 2020](https://arxiv.org/abs/2004.09297)."""

    types = ("mpnet",)
    prefix = "mpnet."
    names = {
        "embedding": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "bias": "encoder.relative_attention_bias",
        "query": "encoder.layer.{}.attention.attn.q",
        "key": "encoder.layer.{}.attention.attn.k",
        "value": "encoder.layer.{}.attention.attn.v",
        "attention_output": "encoder.layer.{}.attention.attn.o",
        "attention_norm": "encoder.layer.{}.attention.LayerNorm",
        "intermediate": "encoder.layer.{}.intermediate.dense",
        "feed_forward_output": "encoder.layer.{}.output.dense",
        "feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
    }
    fixed = {"relative_attention_num_buckets": _BUCKETS}

    def options(self, config: Config) -> dict[str, Any]:
        options = super().options(config)
        options["attention"] = RelativePositionBias(
            _BUCKETS, max_distance=128, name="relative_position_bias"
        )
        return options

    def first(self, options: dict[str, Any]) -> int:
        return 2  # whatever pad_token_id is

    def fill_embeddings(self, model: Any, parts: Parts) -> None:
        super().fill_embeddings(model, parts)
        table = model.attention.position.embeddings
        parts.assign(table, "bias", table.shape)
