"""GPT-2, also of DistilGPT2."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.family import ACTIVATIONS, name_of
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.transformer.specs import Norm


class GPT2(DecoderFamily):
    """[Radford et al., 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)."""

    types = ("gpt2",)
    prefix = "transformer."
    names = {
        "embedding": "wte",
        "position": "wpe",
        "query_key_value": "h.{}.attn.c_attn",
        "attention_output": "h.{}.attn.c_proj",
        "attention_norm": "h.{}.ln_1",
        "intermediate": "h.{}.mlp.c_fc",
        "feed_forward_output": "h.{}.mlp.c_proj",
        "feed_forward_norm": "h.{}.ln_2",
        "final_norm": "ln_f",
    }
    # Causal masks, in files of older versions.
    unused = (r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",)
    has_our_kernels = True  # of a layer `Conv1D`
    ignored = "reorder_and_upcast_attn summary_proj_to_labels"
    fixed = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    }

    def own_options(self, config: Config) -> dict[str, Any]:
        width, positions = config.size("n_embd"), config.size("n_positions")
        config.expect("n_ctx", positions)  # repeated
        is_tied = config.take("tie_word_embeddings", True, bool)
        return {
            "vocabulary_size": config.size("vocab_size"),
            "d_model": width,
            "num_layers": config.blocks("n_layer"),
            "num_heads": config.size("n_head"),
            "intermediate_dim": config.size_or("n_inner", 4 * width),
            "activation": config.choose(
                "activation_function", ACTIVATIONS, "gelu_new"
            ),
            "norm": Norm(
                at="before", epsilon=config.positive("layer_norm_epsilon", 1e-5)
            ),
            "dropout": config.rate("resid_pdrop", 0.1),
            # Padding on the left counts no more than in generation.
            "input_position": PositionEmbedding(
                positions, skip_masked=True, name="position_embedding"
            ),
            "embeddings": "tied" if is_tied else "separate",
        }

    def describe(self, model: Any) -> dict[str, Any]:
        positions = getattr(model.input_position, "sequence_length", 1)
        return {
            "vocab_size": model.vocabulary_size,
            "n_embd": model.d_model,
            "n_layer": model.num_layers,
            "n_head": model.num_heads,
            "n_inner": model.intermediate_dim,
            "n_positions": positions,
            "activation_function": name_of(model.activation, "decoder"),
            "layer_norm_epsilon": model.norm.epsilon,
            "resid_pdrop": model.dropout,
            "tie_word_embeddings": model.head is None,
        }
