"""ModernBERT: windows in most blocks, gated layers, few biases."""

from dataclasses import replace
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import (
    WHOLE,
    WINDOW,
    kinds_of,
    specs_of,
)
from keras_posenc.checkpoints.family import (
    ACTIVATIONS,
    SIZES,
    Family,
    Pooler,
    name_of,
    said_sizes,
)
from keras_posenc.checkpoints.parts import array_of
from keras_posenc.checkpoints.rotary import rotary_by_kind
from keras_posenc.transformer.specs import Attention, Norm

# For each kind of block: the key of its base in older configs, and the base.
_ROTARY = {
    WHOLE: ("global_rope_theta", 160000.0),
    WINDOW: ("local_rope_theta", 10000.0),
}
_POOLINGS = {"cls": "first", "mean": "mean"}
# Without these keys transformers uses defaults beyond the vocabulary.
_TOKENS = ("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id")


class ModernBert(Family):
    """[Warner et al., 2024](https://arxiv.org/abs/2412.13663)."""

    types = ("modernbert",)
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
        {
            "embedding_norm",
            "attention_norm",
            "feed_forward_norm",
            "final_norm",
            "head.norm",
        }
    )
    unused = (r"head\..*", r"decoder\..*")
    pooler = Pooler("head.dense", "gelu", norm="head.norm", of_tokens=True)
    ignored = "decoder_bias reference_compile repad_logits_with_grad"
    fixed = {
        **dict.fromkeys(("attention_bias", "mlp_bias"), False),
        "rope_scaling": None,
    }

    def options(self, config: Config) -> dict[str, Any]:
        config.expect("position_embedding_type", "absolute", "sans_pos")
        sizes = said_sizes(config)
        count = sizes["num_layers"]
        every = config.size("global_attn_every_n_layers", 3)
        usual = [WINDOW if i % every else WHOLE for i in range(count)]
        kinds = kinds_of(config, usual)
        window = config.size("local_attention", 128) // 2
        rotary = rotary_by_kind(config, _ROTARY)
        epsilon = config.positive(
            "norm_eps", config.positive("layer_norm_eps", 1e-5)
        )
        return {
            **sizes,
            "activation": config.choose(
                "hidden_activation", ACTIVATIONS, "gelu"
            ),
            "norm": Norm(at="between", epsilon=epsilon),
            "use_gate": True,
            "use_bias": False,
            "dropout": 0.0,
            "pad_id": config.index("pad_token_id", sizes["vocabulary_size"]),
            "embedding_norm": True,
            "input_position": None,
            "attention": specs_of(kinds, Attention(), window, rotary),
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        pooler = replace(
            self.pooler,
            activation=config.choose(
                "classifier_activation", ACTIVATIONS, "gelu"
            ),
            pooling=config.choose("classifier_pooling", _POOLINGS, "cls"),
            use_bias=config.expect("classifier_bias", False, True),
            norm_epsilon=options["norm"].epsilon,
        )
        has_bias = config.expect("norm_bias", False, True)
        without = frozenset() if has_bias else self.without_bias
        return {"pooler": pooler, "without_bias": without}

    def written(self, model: Any) -> dict[str, Any]:
        offsets = [x for x in model.weights if x.name == "beta"]
        is_trained = any(array_of(each).any() for each in offsets)
        return {"norm_bias": True} if is_trained else {}

    def describe(self, model: Any) -> dict[str, Any]:
        specs = [block.attention.attention for block in model.encoder.blocks]
        kinds = [WINDOW if spec.window else WHOLE for spec in specs]
        # The first block of each kind has the options of that kind.
        first = dict(zip(reversed(kinds), reversed(specs), strict=True))
        window = first.get(WINDOW, Attention(window=64)).window
        bases = {
            kind: getattr(
                first.get(kind, Attention()).position, "max_wavelength", usual
            )
            for kind, (_, usual) in _ROTARY.items()
        }
        return {
            **{key: getattr(model, name) for name, key in SIZES.items()},
            "hidden_activation": name_of(model.activation),
            "norm_eps": model.norm.epsilon,
            "attention_dropout": model.dropout,
            "embedding_dropout": model.dropout,
            "mlp_dropout": model.dropout,
            "attention_bias": False,
            "mlp_bias": False,
            "pad_token_id": model.pad_id,
            **dict.fromkeys(_TOKENS),
            "layer_types": kinds,
            "local_attention": 2 * window,
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": base}
                for kind, base in bases.items()
            },
        }

    def describe_pooler(
        self, pooling: str | None, projection: Any
    ) -> dict[str, Any]:
        names = {ours: name for name, ours in _POOLINGS.items()}
        return {
            "classifier_activation": name_of(
                projection.activation, "classifier"
            ),
            "classifier_bias": projection.use_bias,
            "classifier_pooling": names.get(pooling or "first", pooling),
        }
