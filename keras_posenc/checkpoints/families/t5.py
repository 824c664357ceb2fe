"""T5, T5 v1.1 and FLAN-T5, and mT5."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder
from keras_posenc.checkpoints.family import ACTIVATIONS
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.positional.biases import RelativePositionBias
from keras_posenc.text.files import shown
from keras_posenc.transformer.specs import Attention, Norm

_GATED = "gated-"


class T5(EncoderDecoder):
    """[Raffel et al., 2019](https://arxiv.org/abs/1910.10683)."""

    types = ("t5",)
    prefix = ""
    names = {
        "bias": "block.0.layer.0.SelfAttention.relative_attention_bias",
        "query": "block.{}.layer.0.SelfAttention.q",
        "key": "block.{}.layer.0.SelfAttention.k",
        "value": "block.{}.layer.0.SelfAttention.v",
        "attention_output": "block.{}.layer.0.SelfAttention.o",
        "attention_norm": "block.{}.layer.0.layer_norm",
        "cross_query": "block.{}.layer.1.EncDecAttention.q",
        "cross_key": "block.{}.layer.1.EncDecAttention.k",
        "cross_value": "block.{}.layer.1.EncDecAttention.v",
        "cross_output": "block.{}.layer.1.EncDecAttention.o",
        "cross_attention_norm": "block.{}.layer.1.layer_norm",
        "intermediate": "block.{}.layer.1.DenseReluDense.wi",
        "feed_forward_output": "block.{}.layer.1.DenseReluDense.wo",
        "feed_forward_norm": "block.{}.layer.1.layer_norm",
        "final_norm": "final_layer_norm",
    }
    decoder_names = {
        "intermediate": "block.{}.layer.2.DenseReluDense.wi",
        "feed_forward_output": "block.{}.layer.2.DenseReluDense.wo",
        "feed_forward_norm": "block.{}.layer.2.layer_norm",
    }
    # Of a bias that no version reads.
    unused = (
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\."
        r"relative_attention_bias\.weight",
    )
    may_tie = True
    # Where the config has no such key.
    usual_activation = "relu"
    scales_tied = True  # outputs, before logits that are tied

    def own_options(self, config: Config) -> dict[str, Any]:
        width, heads = config.size("d_model"), config.size("num_heads")
        kind = config.take("feed_forward_proj", self.usual_activation, str)
        is_gated = kind.startswith(_GATED)
        name = kind.removeprefix(_GATED)
        if kind == "gated-gelu":
            name = "gelu_new"  # as transformers has it
        if name not in ACTIVATIONS:
            raise config.wrong(
                "feed_forward_proj",
                f"{shown(kind)} is not supported, only the names "
                f"{', '.join(ACTIVATIONS)}, alone or after '{_GATED}'",
            )
        config.expect("is_gated_act", is_gated)
        config.expect("dense_act_fn", name)
        layers = config.blocks("num_layers")
        decoder_layers = layers
        if config.values.get("num_decoder_layers") is not None:
            decoder_layers = config.blocks("num_decoder_layers")
        config.take("num_decoder_layers", None)
        buckets = config.size("relative_attention_num_buckets", 32)
        distance = config.size("relative_attention_max_distance", 128)
        vocabulary, head_dim = config.size("vocab_size"), config.size("d_kv")
        return {
            "vocabulary_size": vocabulary,
            "d_model": width,
            "num_layers": layers,
            "num_decoder_layers": decoder_layers,
            "num_heads": heads,
            "intermediate_dim": config.size("d_ff"),
            "activation": ACTIVATIONS[name],
            "use_gate": is_gated,
            "use_bias": False,
            "dropout": config.rate("dropout_rate", 0.1),
            "norm": Norm(
                "rms",
                at="before",
                epsilon=config.positive("layer_norm_epsilon", 1e-6),
            ),
            "scale_inputs": False,
            "pad_id": config.index("pad_token_id", vocabulary, 0),
            "input_position": None,
            "attention": Attention(
                RelativePositionBias(
                    buckets,
                    max_distance=distance,
                    name="relative_position_bias",
                ),
                head_dim=head_dim,
            ),
            "target_attention": Attention(
                RelativePositionBias(
                    buckets,
                    max_distance=distance,
                    bidirectional=False,
                    name="target_relative_position_bias",
                ),
                head_dim=head_dim,
            ),
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        found = super().said(config, options)
        # T5 does not divide scores by the root of the width of a head.
        root = options["attention"].head_dim ** 0.5
        found["factors"] = {"query": root, "cross_query": root}
        # Named by what T5 v1.1 differs in, in older configs.
        usual = found["is_tied"] and self.scales_tied
        if config.expect("scale_decoder_outputs", usual, False, True):
            found["output_scale"] = options["d_model"] ** -0.5
        if options["use_gate"]:
            found["names"] = _with_gate(self.names)
            found["decoder_names"] = _with_gate(self.decoder_names)
        return found

    def fill_stack(
        self, stack: Any, position: Any, norm: Any, parts: Parts
    ) -> None:
        super().fill_stack(stack, position, norm, parts)
        # All blocks have the bias that the first one stores.
        table = stack.attention.position.embeddings
        parts.assign(table, "bias", table.shape)


class MT5(T5):
    """[Xue et al., 2020](https://arxiv.org/abs/2010.11934)."""

    types = ("mt5",)
    usual_activation = "gated-gelu"
    scales_tied = False


def _with_gate(names: Any) -> dict[str, str]:
    wide = names["intermediate"]
    return {**names, "gate": f"{wide}_0", "intermediate": f"{wide}_1"}
