"""ELECTRA: BERT with embeddings that may be narrower than the encoder."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler


class Electra(Bert):
    """[Clark et al., 2020](https://arxiv.org/abs/2003.10555)."""

    types = ("electra",)
    prefix = "electra."
    names = {
        **Bert.names,
        "embedding_projection": "embeddings_project",
    }
    pooler = Pooler("classifier.dense", "gelu")
    classifier = "classifier.out_proj"

    def options(self, config: Config) -> dict[str, Any]:
        options = super().options(config)
        if config.values.get("embedding_size") is None:
            config.take("embedding_size", None)
            return options
        width = config.size("embedding_size")
        if width != options["d_model"]:
            options["embedding_dim"] = width
        return options
