"""DistilBERT: BERT without token types, under other names."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import ACTIVATIONS, Pooler
from keras_posenc.transformer.specs import Norm


class DistilBert(Bert):
    """[Sanh et al., 2019](https://arxiv.org/abs/1910.01108)."""

    types = ("distilbert",)
    prefix = "distilbert."
    names = {
        "embedding": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "query": "transformer.layer.{}.attention.q_lin",
        "key": "transformer.layer.{}.attention.k_lin",
        "value": "transformer.layer.{}.attention.v_lin",
        "attention_output": "transformer.layer.{}.attention.out_lin",
        "attention_norm": "transformer.layer.{}.sa_layer_norm",
        "intermediate": "transformer.layer.{}.ffn.lin1",
        "feed_forward_output": "transformer.layer.{}.ffn.lin2",
        "feed_forward_norm": "transformer.layer.{}.output_layer_norm",
    }
    pooler = Pooler("pre_classifier", "relu")
    ignored = "sinusoidal_pos_embds"  # the table is stored anyway

    def sizes(self, config: Config) -> dict[str, Any]:
        vocabulary_size = config.size("vocab_size")
        return {
            "vocabulary_size": vocabulary_size,
            "d_model": config.size("dim"),
            "num_layers": config.blocks("n_layers"),
            "num_heads": config.size("n_heads"),
            "intermediate_dim": config.size("hidden_dim"),
            "activation": config.choose("activation", ACTIVATIONS, "gelu"),
            "norm": Norm(epsilon=1e-12),
            "dropout": config.rate("dropout", 0.1),
            "pad_id": config.index("pad_token_id", vocabulary_size, 0),
        }
