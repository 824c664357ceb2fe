"""EuroBERT: Llama's blocks with attention in both directions."""

from dataclasses import replace
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.llama import Llama
from keras_posenc.checkpoints.family import ACTIVATIONS, Family, Pooler
from keras_posenc.checkpoints.rotary import rotary_of
from keras_posenc.transformer.specs import Attention, Norm

_POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}


class EuroBert(Family):
    """[Boizard et al., 2025](https://arxiv.org/abs/2503.05500)."""

    types = ("eurobert",)
    prefix = "model."
    names = Llama.names
    unused = (r"lm_head\..*",)
    pooler = Pooler("dense", "gelu")
    # Of the Hub's own code, for training and the tokenizer.
    ignored = "bos_token eos_token hidden_dropout mask_token pad_token"
    fixed = {"attention_bias": False, "mlp_bias": False}

    def options(self, config: Config) -> dict[str, Any]:
        width, heads = (
            config.size(key) for key in ("hidden_size", "num_attention_heads")
        )
        config.expect("head_dim", width // heads)
        vocabulary_size = config.size("vocab_size")
        return {
            "vocabulary_size": vocabulary_size,
            "d_model": width,
            "num_layers": config.blocks("num_hidden_layers"),
            "num_heads": heads,
            "attention": Attention(
                rotary_of(config, 10000.0),
                num_key_value_heads=config.size("num_key_value_heads", heads),
            ),
            "intermediate_dim": config.size("intermediate_size"),
            "activation": config.choose("hidden_act", ACTIVATIONS, "silu"),
            "norm": Norm(
                "rms",
                at="before",
                epsilon=config.positive("rms_norm_eps", 1e-5),
            ),
            "use_gate": True,
            "use_bias": False,
            "dropout": 0.0,
            "pad_id": config.index("pad_token_id", vocabulary_size),
            "input_position": None,
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        config.rename("clf_pooling", "classifier_pooling")
        pooling = config.choose("classifier_pooling", _POOLINGS, "late")
        return {"pooler": replace(self.pooler, pooling=pooling)}
