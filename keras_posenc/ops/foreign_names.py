"""Names that other libraries and tutorials use for our arguments and classes.

A name is in these tables only if the advice is right wherever it is given. For
example, `sliding_window` is missing: it is counted in another way.
"""

import difflib
import dis
import sys
from collections.abc import Collection

_NO_LENGTH = "no maximum length is needed: leave it out"
_NO_WIDTH = "the width is taken from the inputs: leave it out"
_NO_HEAD_WIDTH = (
    "the width of a head is the whole width over `num_heads`: leave it out"
)
# Advice on widths is only for layers that are called on vectors.
_OF_VECTORS = (_NO_WIDTH, _NO_HEAD_WIDTH)

# For each row: our arguments, the advice for a class that has none of them, and
# their names in torch.nn, Hugging Face, keras-hub, Keras and tutorials.
_ARGUMENTS: list[tuple[tuple[str, ...], str, str]] = [
    (
        ("max_length", "sequence_length", "max_position"),
        _NO_LENGTH,
        "max_len max_length maxlen max_seq_len max_seq_length max_position "
        "max_sequence_length max_positions max_position_embeddings "
        "n_positions n_ctx context_length context_size block_size",
    ),
    (
        ("sequence_length", "max_length", "max_position"),
        _NO_LENGTH,
        "seq_len seq_length seqlen sequence_length input_length "
        "output_sequence_length",
    ),
    (("max_length",), "", "max_new_tokens"),
    (
        ("d_model",),
        _NO_WIDTH,
        "d_model embed_dim embedding_dim emb_dim embed_size embedding_size "
        "hidden_size model_dim model_size d_embed n_embd dim",
    ),
    (("d_model", "intermediate_dim"), _NO_WIDTH, "hidden_dim"),
    (
        ("head_dim",),
        _NO_HEAD_WIDTH,
        "key_dim value_dim head_dim d_k d_v d_kv size_per_head dim_head "
        "head_size d_head",
    ),
    (
        ("intermediate_dim",),
        "",
        "ff_dim d_ff dff dim_ff dim_feedforward ffn_dim ffn_hidden_dim "
        "feed_forward_dim feedforward_dim intermediate_size mlp_dim d_inner "
        "n_inner inner_dim encoder_ffn_dim decoder_ffn_dim",
    ),
    (
        ("dropout",),
        "",
        "rate dropout_rate drop_rate dropout_prob drop_prob dropout_p "
        "hidden_dropout_prob",
    ),
    (
        ("num_heads",),
        "",
        "n_heads n_head nhead nheads num_head heads num_attention_heads "
        "attention_heads num_query_heads encoder_attention_heads",
    ),
    (("num_key_value_heads",), "", "n_kv_heads num_kv_heads kv_heads"),
    (("query_key_norm",), "", "qk_norm use_qk_norm"),
    (("query_key_value_bias",), "", "qkv_bias"),
    (
        ("num_layers",),
        "",
        "n_layers n_layer num_layer num_hidden_layers num_blocks n_blocks "
        "num_encoder_layers",
    ),
    (
        ("vocabulary_size",),
        "",
        "vocab_size n_vocab num_embeddings ntoken num_tokens",
    ),
    (("target_vocabulary_size",), "", "target_vocab_size tgt_vocab_size"),
    (
        ("norm_epsilon",),
        "",
        "epsilon eps layer_norm_eps layer_norm_epsilon rms_norm_eps",
    ),
    (("normalize_first",), "", "norm_first pre_norm prenorm"),
    (
        ("activation",),
        "",
        "hidden_act act act_layer activation_fn activation_function "
        "hidden_activation",
    ),
    (("use_bias",), "", "bias"),
    (
        ("max_wavelength",),
        "",
        "wavelength base theta rope_theta rope_base rotary_base "
        "rope_max_wavelength",
    ),
    (
        ("scaling", "scale"),
        "",
        "factor scaling_factor rope_scaling rope_parameters rope_type",
    ),
    (("partial_rotary_factor",), "", "rotary_pct"),
    (("merge_mode",), "", "merge"),
    (("pad_id",), "", "padding_idx pad_idx pad_token_id padding_id"),
    (("ignored_id",), "", "ignore_index ignore_class"),
    (("temperature",), "", "tau"),
    (("dims",), "", "matryoshka_dims"),
    (("weights",), "", "matryoshka_weights"),
    (("documents",), "", "corpus"),
    (("relevant",), "", "relevant_docs qrels"),
    (("label_smoothing",), "", "smoothing"),
    (("warmup_steps",), "", "warmup num_warmup_steps n_warmup_steps"),
    (
        ("max_distance",),
        "",
        "max_relative_position max_relative_positions "
        "relative_attention_max_distance",
    ),
    (("num_buckets",), "", "relative_attention_num_buckets"),
    (("image_size",), "", "img_size"),
    (("num_channels",), "", "in_chans in_channels"),
    (("memory_dim",), "", "kdim vdim"),
    (("beams",), "", "num_beams beam_size beam_width"),
    (("vocabulary",), "", "vocab vocab_file"),
    (("lowercase",), "", "do_lower_case lower_case"),
    (("unknown_token",), "", "unk_token oov_token"),
    (("start_token",), "", "cls_token bos_token"),
    (("end_token",), "", "sep_token eos_token"),
]
ARGUMENTS = {
    name: (ours, otherwise)
    for ours, otherwise, names in _ARGUMENTS
    for name in names.split()
}

# Our public names, and other names of them.
_NAMES = {
    "PositionalEncoding": (
        "SinePositionEncoding SinusoidalEncoding SinusoidalPositionEncoding "
        "SinusoidalPositionalEncoding SinusoidalPositionalEmbedding "
        "SinusoidalPositionEmbedding PositionEncoding PositionalEncoding1D"
    ),
    "AxialPositionalEncoding": "PositionalEncoding2D PositionalEncoding3D",
    "PositionEmbedding": (
        "LearnedPositionalEmbedding LearnedPositionEmbedding "
        "LearnedPositionalEncoding"
    ),
    "RotaryEmbedding": (
        "RotaryPositionalEmbedding RotaryPositionalEmbeddings RoPE Rope "
        "RotaryPositionEmbedding RotaryPositionalEncoding RotaryEncoding"
    ),
    "PolarEmbedding": "PoPE PolarPositionEmbedding",
    "FourierEmbedding": "FoPE FourierRotaryEmbedding FourierPositionEmbedding",
    "AlibiBias": "ALiBi Alibi AlibiPositionalBias AlibiPositionBias",
    "RelativePositionBias": "T5Bias T5RelativePositionBias",
    "TimeEncoding": "Time2Vec Time2Vector",
    "TransformerEncoderBlock": "TransformerEncoderLayer TransformerBlock",
    "TransformerDecoderBlock": "TransformerDecoderLayer",
    "SelfAttention": "MultiHeadSelfAttention",
    "CrossAttention": "MultiHeadCrossAttention",
    "SelfAttention CrossAttention": (
        "MultiHeadAttention MultiheadAttention CachedMultiHeadAttention "
        "GroupedQueryAttention"
    ),
    "FeedForward": "FeedForwardNetwork FFN MLP PositionwiseFeedForward",
    "PatchEmbedding": "PatchEmbeddings Patches PatchEncoder PatchEmbed",
    "VisionTransformerModel": "VisionTransformer ViT ViTModel ViTBackbone",
    "MaskedAveragePooling1D": "GlobalAveragePooling1D MeanPooling",
    "MaskedMaxPooling1D": "GlobalMaxPooling1D MaxPooling",
    "WordpieceTokenizer": "BertTokenizer BertTokenizerFast",
    "load_hugging_face": (
        "load_hf load_pretrained from_pretrained from_huggingface AutoModel "
        "load_transformers"
    ),
    "save_hugging_face": "save_hf save_pretrained",
    "from_keras_hub": "load_keras_hub from_keras_nlp",
    "export_litert": (
        "export_tflite export_lite to_tflite to_litert convert_to_tflite "
        "convert_tflite"
    ),
    "export_onnx": "to_onnx convert_to_onnx",
    "export_saved_model": "save_saved_model export_tf export_tensorflow",
    "export_saved_model export_litert export_onnx": "export_model",
    "benchmark_litert": "benchmark_tflite benchmark",
    "training.TokenCrossentropy": "MaskedCrossentropy",
    "training.NoamSchedule": "CustomSchedule TransformerSchedule",
    "training.ContrastiveLoss": (
        "MultipleNegativesRankingLoss MultipleNegativesSymmetricRankingLoss "
        "InfoNCE InfoNCELoss NTXentLoss"
    ),
    "training.RetrievalEvaluator": "InformationRetrievalEvaluator",
}
NAMES = {
    name: ours.split()
    for ours, names in _NAMES.items()
    for name in names.split()
}


def argument_advice(
    name: str,
    known: Collection[str],
    *,
    required: Collection[str] = (),
    takes_vectors: bool = True,
) -> str:
    """Returns advice for an argument that a class does not have, or "".

    Args:
        name: The argument.
        known: The arguments of the class.
        required: Those of them without a default.
        takes_vectors: Whether the class is called on inputs with a width.
    """
    ours, otherwise = ARGUMENTS.get(name, ((), ""))
    if meant := [each for each in ours if each in known]:
        # Maximum lengths are alternatives; widths may all be meant.
        return did_you_mean(meant if name == "hidden_dim" else meant[:1])
    if otherwise == _NO_LENGTH and "max_distance" in required:
        return ""  # the class has its own way to limit lengths
    if otherwise and (takes_vectors or otherwise not in _OF_VECTORS):
        return f" ({otherwise})"
    return "" if name in ARGUMENTS else did_you_mean(misspelt(name, known))


def did_you_mean(names: list[str]) -> str:
    """Returns a question after some names, or "" without any."""
    if not names:
        return ""
    *most, last = [f"`{name}`" for name in names]
    return f". Did you mean {', '.join(most)}{' or ' * bool(most)}{last}?"


def misspelt(name: str, known: Collection[str]) -> list[str]:
    """Returns the one name that `name` is a misspelling of, in a list."""

    def letters(name: str) -> str:
        return name.replace("_", "").lower()

    # `training.NoamSchedule` is compared as `NoamSchedule`.
    by_letters = {letters(each.rpartition(".")[2]): each for each in known}
    near = difflib.get_close_matches(
        letters(name), by_letters, n=1, cutoff=0.85
    )
    return [by_letters[each] for each in near]


def no_such_name(
    module: str, name: str, *, known: Collection[str]
) -> AttributeError | ImportError:
    """Returns the error for a public name that a module does not have.

    For the module's own `__getattr__`. For `from module import name` it is an
    `ImportError`: otherwise Python would raise one with its own message.

    Args:
        module: The module's name.
        name: The missing name.
        known: The public names that it has.
    """
    frame = sys._getframe(1).f_back  # None if a thread starts with it
    operation = frame and dis.opname[frame.f_code.co_code[frame.f_lasti]]
    advice = ""
    if not name.startswith("_"):  # tools look those up
        meant = [each for each in NAMES.get(name, ()) if each in known]
        advice = did_you_mean(meant or misspelt(name, known))
    if operation == "IMPORT_FROM":
        return ImportError(
            f"cannot import name {name!r} from {module!r}{advice}", name=name
        )
    return AttributeError(
        f"module {module!r} has no attribute {name!r}{advice}"
    )
