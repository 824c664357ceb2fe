"""BART, and mBART, whose norms come first."""

from collections.abc import Sequence
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder
from keras_posenc.checkpoints.family import ACTIVATIONS, Pooler
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.transformer.specs import Norm


class Bart(EncoderDecoder):
    """[Lewis et al., 2019](https://arxiv.org/abs/1910.13461)."""

    types = ("bart",)
    names = {
        "position": "embed_positions",
        "embedding_norm": "layernorm_embedding",
        "query": "layers.{}.self_attn.q_proj",
        "key": "layers.{}.self_attn.k_proj",
        "value": "layers.{}.self_attn.v_proj",
        "attention_output": "layers.{}.self_attn.out_proj",
        "attention_norm": "layers.{}.self_attn_layer_norm",
        "cross_query": "layers.{}.encoder_attn.q_proj",
        "cross_key": "layers.{}.encoder_attn.k_proj",
        "cross_value": "layers.{}.encoder_attn.v_proj",
        "cross_output": "layers.{}.encoder_attn.out_proj",
        "cross_attention_norm": "layers.{}.encoder_attn_layer_norm",
        "intermediate": "layers.{}.fc1",
        "feed_forward_output": "layers.{}.fc2",
        "feed_forward_norm": "layers.{}.final_layer_norm",
    }
    unused: Sequence[str] = (r"(model\.)?(encoder|decoder)\.version",)
    pooler: Pooler | None = Pooler(
        "classification_head.dense", "tanh", pooling="last"
    )
    classifier = "classification_head.out_proj"
    # What other keys say of the norms: nothing else is supported.
    norm_at = "after"
    embedding_norm = True
    has_final_norms = False
    usual_start_id: int | None = 2

    def own_options(self, config: Config) -> dict[str, Any]:
        for key, value in (
            ("normalize_before", self.norm_at == "before"),
            ("normalize_embedding", self.embedding_norm),
            ("add_final_layer_norm", self.has_final_norms),
            ("static_position_embeddings", "position" not in self.names),
        ):
            config.expect(key, value)
        for key in ("layers", "attention_heads"):
            hidden = "hidden_layers" if key == "layers" else key
            config.rename(f"num_{hidden}", f"encoder_{key}")
        heads = config.size("encoder_attention_heads")
        width = config.size("encoder_ffn_dim")
        config.expect("decoder_attention_heads", heads)
        config.expect("decoder_ffn_dim", width)
        vocabulary = config.size("vocab_size")
        return {
            "vocabulary_size": vocabulary,
            "d_model": config.size("d_model"),
            "num_layers": config.blocks("encoder_layers"),
            "num_decoder_layers": config.blocks("decoder_layers"),
            "num_heads": heads,
            "intermediate_dim": width,
            "activation": config.choose(
                "activation_function", ACTIVATIONS, "gelu"
            ),
            "dropout": config.rate("dropout", 0.1),
            "norm": Norm(at=self.norm_at),
            "embedding_norm": self.embedding_norm,
            "scale_inputs": config.expect("scale_embedding", False, True),
            "pad_id": config.index(
                "pad_token_id", vocabulary, self.usual_pad_id(vocabulary)
            ),
            "input_position": self.position(config),
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        return {**super().said(config, options), "first_position": 2}

    def usual_pad_id(self, vocabulary: int) -> int:
        """Returns the id of padding where the config has none."""
        return 1

    def position(self, config: Config) -> Any:
        """Returns the layer that adds positions to the source."""
        return PositionEmbedding(
            config.size("max_position_embeddings", 1024),
            name="position_embedding",
        )


class MBart(Bart):
    """[Liu et al., 2020](https://arxiv.org/abs/2001.08210)."""

    types = ("mbart",)
    names = {**Bart.names, "final_norm": "layer_norm"}
    norm_at = "before"
    has_final_norms = True
    usual_start_id = None
