"""ModernBERT: windows in most blocks, gates, and hardly a bias."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import ACTIVATIONS, Family
from keras_posenc.checkpoints.rotary import rotary_by_kind

_WHOLE, _WINDOW = "full_attention", "sliding_attention"


class ModernBert(Family):
    """[Warner et al., 2024](https://arxiv.org/abs/2412.13663)."""

    prefix = "model."
    names = {
        "embedding": "embeddings.tok_embeddings",
        "embedding_norm": "embeddings.norm",
        "query_key_value": "layers.{}.attn.Wqkv",
        "attention_output": "layers.{}.attn.Wo",
        "attention_norm": "layers.{}.attn_norm",
        "gate_intermediate": "layers.{}.mlp.Wi",
        "feed_forward_output": "layers.{}.mlp.Wo",
        "feed_forward_norm": "layers.{}.mlp_norm",
        "final_norm": "final_norm",
    }
    without_bias = frozenset(
        {"embedding_norm", "attention_norm", "feed_forward_norm", "final_norm"}
    )
    unused = (r"head\..*", r"decoder\..*")

    def options(self, config: Config) -> dict[str, Any]:
        for key in ("attention_bias", "mlp_bias", "norm_bias"):
            config.expect(key, False)
        for key in (  # of heads, and of how it is computed elsewhere
            "classifier_activation",
            "classifier_bias",
            "classifier_pooling",
            "decoder_bias",
            "max_position_embeddings",
            "reference_compile",
            "repad_logits_with_grad",
        ):
            config.take(key, None)
        config.expect("position_embedding_type", "absolute", "sans_pos")
        count = config.blocks("num_hidden_layers")
        every = config.size("global_attn_every_n_layers", 3)
        kinds = config.take(
            "layer_types",
            [_WINDOW if i % every else _WHOLE for i in range(count)],
            list,
        )
        if len(kinds) != count or set(map(str, kinds)) - {_WHOLE, _WINDOW}:
            raise config.wrong(
                "layer_types",
                f"it must say {_WHOLE} or {_WINDOW} of each of {count} blocks",
            )
        window = config.size("local_attention", 128) // 2
        rotary = rotary_by_kind(
            config,
            {
                _WHOLE: ("global_rope_theta", 160000.0),
                _WINDOW: ("local_rope_theta", 10000.0),
            },
        )
        epsilon = config.positive("layer_norm_eps", 1e-5)
        vocabulary_size = config.size("vocab_size")
        return {
            "vocabulary_size": vocabulary_size,
            "d_model": config.size("hidden_size"),
            "num_layers": count,
            "num_heads": config.size("num_attention_heads"),
            "intermediate_dim": config.size("intermediate_size"),
            "activation": config.choose(
                "hidden_activation", ACTIVATIONS, "gelu"
            ),
            "norm_epsilon": config.positive("norm_eps", epsilon),
            "normalize_first": True,
            "use_first_norm": False,
            "use_gate": True,
            "use_bias": False,
            "dropout": 0.0,
            "pad_id": config.index("pad_token_id", vocabulary_size),
            "embedding_norm": True,
            "input_position": None,
            "attention_position": [rotary[kind] for kind in kinds],
            "attention_window": [
                window if kind == _WINDOW else None for kind in kinds
            ],
        }
