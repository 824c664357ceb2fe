"""Folders that are damaged, forged or of another kind: what is said of each."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_posenc as kp
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.sentence_embedding import sentence_embedding
from keras_posenc.checkpoints.tensors import CONVERSION
from keras_posenc.checkpoints.tokenizers import tokenizer_of
from keras_posenc.transformer._sublayers import make_activation
from tests.checkpoints.folders import (
    GONE,
    INDEX,
    SPECIAL,
    VOCABULARY,
    WEIGHTS,
    WORDPIECE,
    at,
    changed,
    copied,
)

SHARD = "model-00002-of-00003.safetensors"
NORM = "embeddings.LayerNorm.bias"
NAN = float("nan")


@pytest.fixture
def copy(tmp_path):
    """Copies a fixture, to be damaged."""
    return lambda name="bert", **keys: copied(at(name), tmp_path, **keys)


def load(folder, **options):
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


@pytest.fixture(scope="module")
def encoder():
    return load(at("bert")).encoder


def refused(make, *words, error=ValueError):
    """Checks that an error is of one kind, one line, and says these words."""
    with pytest.raises(error) as raised:
        make()
    assert type(raised.value) is error
    message = str(raised.value)
    assert "\n" not in message
    for word in words:
        assert word in message


NTK = {"type": "ntk", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 2.0}


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("bert", {"model_type": "xlnet"}, "'xlnet' is not supported, only alb"),
        ("bert", {"model_type": []}, "must be a string"),
        ("bert", {"surprise": 3}, "ignore_keys=['surprise']` passes"),
        ("bert", {"num_experts": 8}, "a mixture of experts"),
        ("bert", {"quantization_config": {"bits": 4}}, "quantized weights"),
        ("bert", {"hidden_act": "swoosh"}, "'swoosh' is not supported"),
        ("bert", {"hidden_act": {}}, "{} is not supported"),
        ("bert", {"is_decoder": True}, "True is not supported"),
        ("bert", {"position_embedding_type": "relative_key"}, "'relative_key'"),
        (
            "bert",
            {"architectures": ["BertForMultipleChoice"]},
            "encoder_only=True",
        ),
        ("bert", {"architectures": 3}, "must be a list or null, and is 3"),
        ("bert", {"vocab_size": GONE}, "has no key"),
        ("bert", {"vocab_size": "12"}, "positive integer"),
        # Before anything so large is made.
        ("bert", {"vocab_size": 10**30}, f"({10**30}, 16), as"),
        ("bert", {"hidden_size": 20}, "word_embeddings.weight' must have"),
        ("bert", {"intermediate_size": 10**9}, "intermediate_dim"),
        ("bert", {"max_position_embeddings": 10**9}, "positions"),
        ("bert", {"num_hidden_layers": 10**30}, "blocks, but "),
        ("bert", {"num_attention_heads": 3}, "`num_heads` must divide"),
        ("bert", {"pad_token_id": 48}, "integer in [0, 48)"),
        (
            "bert",
            {"hidden_dropout_prob": 10**400},
            "must be a number in [0, 1)",
        ),
        ("bert", {"layer_norm_eps": 0}, "must be a positive finite number"),
        ("bert", {"layer_norm_eps": NAN}, "must be a positive finite number"),
        ("modernbert", {"layer_types": ["full_attention"]}, "each of 3 blocks"),
        ("modernbert", {"layer_types": "full"}, "must be a list"),
        ("modernbert", {"num_hidden_layers": 10**12}, "blocks, but "),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": 3}},
            "an object",
        ),
        ("deberta_v2", {"pos_att_type": ["c2p"]}, "p2c and c2p"),
        ("deberta_v2", {"max_relative_positions": 10**12}, "at most"),
        ("gte", {"rope_parameters": {"rope_theta": "x"}}, "rope_theta"),
        ("gte", {"rope_parameters": {"rope_type": "yarn"}}, "'yarn'"),
        ("gte", {"logn_attention_scale": True}, "True is not supported"),
        ("gte_of_hub", {"rope_scaling": {"type": "linear"}}, "'linear'"),
        ("gte_of_hub", {"rope_scaling": NTK | {"factor": 0.5}}, "at least 1"),
        ("gte_of_hub", {"rope_scaling": NTK | {"mixed_b": 0.5}}, "mixed_b"),
        ("gte_of_hub", {"pack_qkv": False}, "False is not supported"),
        ("gte_of_hub", {"layer_norm_type": "rms_norm"}, "'rms_norm'"),
        ("gte_of_hub", {"position_embedding_type": "absolute"}, "'absolute'"),
        ("nomic_bert_of_hub", {"hidden_size": 17}, "16 differs from"),
        ("nomic_bert_of_hub", {"activation_function": "gelu"}, "'gelu' is not"),
        ("nomic_bert_of_hub", {"rotary_emb_base": GONE}, "has no key"),
        ("nomic_bert_of_hub", {"mlp_fc1_bias": True}, "True is not supported"),
        ("nomic_bert_of_hub", {"rotary_emb_fraction": 0.5}, "0.5 is not"),
        ("nomic_bert_of_hub", {"rotary_scaling_factor": 0}, "positive"),
        ("nomic_bert_of_hub", {"prenorm": True}, "True is not supported"),
        ("geglu", {"feed_forward_type": "swiglu"}, "'swiglu' is not supported"),
        ("modernbert_classifier", {"classifier_pooling": "max"}, "'max'"),
        ("eurobert_classifier", {"classifier_pooling": "cls"}, "'cls'"),
        ("esm", {"position_embedding_type": GONE}, "has no key"),
        ("vit", {"image_size": 10**6}, "the largest has"),
        ("dinov2", {"use_swiglu_ffn": True}, "'use_swiglu_ffn': True is not"),
        ("bert_classifier", {"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ("bert_classifier", {"problem_type": "x"}, "problem_type"),
        ("llama", {"hidden_act": "gelu_new_2"}, "'gelu_new_2' is not"),
        ("llama", {"tie_word_embeddings": True}, "'lm_head.weight' differs"),
        ("llama", {"rope_scaling": {"type": "dynamic"}}, "'dynamic' is not"),
        ("llama", {"rope_scaling": LLAMA3}, "needs the keys 'low_freq_factor'"),
        ("llama", {"rope_parameters": {"rope_type": "default"}}, "differs"),
        ("llama", {"attention_multiplier": 2.0}, "not supported: attention_m"),
        ("llama", {"head_dim": 10**9}, "its head_dim would take a tensor"),
        (
            "llama",
            {"architectures": ["LlamaForSequenceClassification"]},
            "must be one that generates text",
        ),
        ("llama", {"partial_rotary_factor": 0.5}, "supported: partial_rotary"),
        ("llama", {"max_position_embeddings": -5}, "'max_position_embeddings'"),
        ("qwen2", {"use_sliding_window": False}, "there is no window"),
        ("qwen2", {"layer_types": ["full_attention"]}, "each of 2 blocks"),
        ("exaone4", {"sliding_window": None}, "there is no window"),
        ("exaone4", {"layer_types": None}, "must be a list"),
        ("olmo3", {"rope_theta": 10000.0}, "only 500000.0"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "30.0 is not"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "no text"),
        ("gemma4_text", {"num_experts": 8}, "a mixture of experts"),
        ("gemma4_text", {"enable_moe_block": True}, "True is not supported"),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, "'all' is not"),
        ("gemma4_text", {"num_kv_shared_layers": 3}, "no block of one kind"),
        ("gemma4_text", {"vocab_size_per_layer_input": 39}, "39 is not"),
        ("gemma4_text", {"final_logit_softcapping": -1}, "`logits_cap` must"),
        (
            "gemma4_text",
            {"per_layer_config": {"1": {"window": 3}}},
            "not supported: window=3",
        ),
        ("phi3", {"rope_scaling": {"type": "longrope"}}, "differs"),
        ("smollm3", {"no_rope_layers": [1]}, "must have 2 numbers"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "True is not"),
        ("gpt2", {"n_positions": 15}, "must have shape (15, 16)"),
        ("bart", {"normalize_before": True}, "'normalize_before': True"),
        ("bart", {"decoder_ffn_dim": 24}, "'decoder_ffn_dim': 24"),
        ("bart", {"tie_word_embeddings": False}, "no tensor 'lm_head.weight'"),
        ("t5", {"feed_forward_proj": "gated-x"}, "feed_forward_proj"),
        ("t5", {"d_kv": 10**6}, "its head_dim would take"),
        ("marian", {"is_encoder_decoder": False}, "is_encoder_decoder"),
        ("mbart", {"what": 1}, "not supported: what=1"),
    ],
)
def test_config(copy, name, keys, words):
    refused(lambda: load(copy(name, **keys)), words)


@pytest.mark.parametrize(
    ("name", "key", "attribute", "usual"),
    [
        ("roberta", "pad_token_id", "pad_id", 1),
        ("deberta_v2", "layer_norm_eps", "norm", kp.Norm(epsilon=1e-7)),
        ("albert", "hidden_act", "activation", make_activation("gelu_tanh")),
        ("nomic_bert", "hidden_act", "activation", make_activation("silu")),
    ],
)
def test_what_families_mean_where_nothing_is_said(
    copy, name, key, attribute, usual
):
    """As transformers' own classes of configs do."""
    model = load(copy(name, **{key: GONE}))
    assert getattr(model.encoder, attribute) == usual


@pytest.mark.parametrize("theta", [100.0, 200.0])
def test_keys_of_the_hub_beside_those_of_transformers(copy, theta):
    """As the hub has them since version 5 of transformers."""
    rotary = {"rope_type": "default", "rope_theta": theta}
    folder = copy("nomic_bert_of_hub", rope_parameters=rotary, hidden_size=16)
    if theta == 100.0:
        assert load(folder).encoder.attention.position.max_wavelength == 100.0
    else:
        refused(lambda: load(folder), "'rope_theta': 100 differs from")


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"image_mean": ["x"], "image_std": [1]}, "'image_mean'"),
        ({"image_mean": [0.5], "image_std": [0]}, "'image_std'"),
        ({"image_mean": [0.5, 0.5], "image_std": [1]}, "'image_std'"),
        ({"do_normalize": False, "do_flip_channel_order": True}, "'do_flip"),
    ],
)
def test_how_pixels_are_prepared(copy, said, word):
    folder = copy("vit")
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    made = lambda: kp.load_hugging_face(folder, verbose=False)  # noqa: E731
    refused(made, "preprocessor_config.json", word)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", ""),
        ("config.json", "\udcff"),
        (INDEX, "[]"),
        ("tokenizer.json", "{"),
        ("modules.json", "3"),
    ],
)
def test_files_that_are_no_json(copy, name, text):
    folder = copy("bert_sharded")
    (folder / name).write_text(text, "utf-8", "surrogateescape")
    made = lambda: kp.load_hugging_face(folder, verbose=False)  # noqa: E731
    refused(made, name)


class TestTensors:
    @pytest.mark.parametrize(
        ("tensors", "words"),
        [
            ({NORM: None}, [f"has no tensor '{NORM}', of shape (16,)"]),
            ({"more": np.ones(2)}, ["1 tensors", "more"]),
            ({NORM: np.ones((4, 4))}, [NORM, "shape (16,)", "has (4, 4)"]),
            ({NORM: np.ones(16, "int32")}, [NORM, "is of I32"]),
        ],
    )
    def test_others_than_the_config_says(self, copy, tensors, words):
        def change(found):
            found = {**found, **tensors}
            return {k: each for k, each in found.items() if each is not None}

        refused(lambda: load(copy(tensors=change)), *words)

    def test_norms_of_queries_and_keys(self, copy):
        """Of jina-embeddings-v2-base-code, under the config of others."""
        names = [
            f"encoder.layer.0.attention.self.layer_norm_{part}.{of}"
            for part in "qk"
            for of in ("weight", "bias")
        ]
        ones = dict.fromkeys(names, np.ones(12, "f4"))
        folder = copy("geglu", tensors=lambda found: found | ones)
        refused(lambda: load(folder), "normalizes queries and keys")

    @pytest.mark.parametrize("size", [0, 8, 100, -1])
    def test_torn_file(self, copy, size):
        folder = copy("bert_sharded")
        (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:size])
        refused(lambda: load(folder), SHARD, "not a complete safetensors file")

    def test_pointer_in_its_place(self, copy):
        path = copy() / WEIGHTS
        path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        words = WEIGHTS, "`git lfs pull`", "again: `hf download"
        refused(lambda: load(path.parent), *words)

    def test_files_that_are_missing(self, copy):
        folder = copy("bert_sharded")
        (folder / SHARD).unlink()
        words = f"lacks '{SHARD}': {INDEX} names ", "1 are missing"
        refused(lambda: load(folder), *words, error=FileNotFoundError)
        (folder / INDEX).rename(folder / "pytorch_model.bin")
        refused(lambda: load(folder), "in pytorch_model.bin", CONVERSION)
        (folder / "pytorch_model.bin").unlink()
        words = WEIGHTS, "Is its download complete?"
        refused(lambda: load(folder), *words, error=FileNotFoundError)
        (folder / "config.json").rename(folder / "adapter_config.json")
        refused(
            lambda: load(folder), "is an adapter", "load_lora(model, folder)"
        )

    @pytest.mark.parametrize(
        ("file", "error", "word"),
        [
            ("../x", ValueError, "'../x', which would lie outside"),
            ("/etc/passwd", ValueError, "'/etc/passwd', which would lie"),
            ("a\\b", ValueError, "which would lie outside"),
            ("", ValueError, "which would lie outside"),
            ("a" * 5000, FileNotFoundError, "aaa"),
            (3, ValueError, "`weight_map` from names of tensors to files"),
        ],
    )
    def test_index(self, copy, file, error, word):
        folder = copy("bert_sharded")
        changed(folder / INDEX, ["weight_map", NORM], file)
        refused(lambda: load(folder), word, error=error)


class TestLinks:
    @pytest.mark.parametrize("name", ["config.json", WEIGHTS])
    def test_out_of_the_folder(self, copy, tmp_path, name):
        folder = copy()
        shutil.move(folder / name, tmp_path / "secret")
        (folder / name).symlink_to(tmp_path / "secret")
        refused(lambda: load(folder), name, "secret', which lies outside")

    def test_into_the_blobs_of_a_cache(self, copy, tmp_path):
        folder = copy()
        cache = tmp_path / "models--who--tiny"
        revision = cache / "snapshots" / "5f3a"
        revision.mkdir(parents=True)
        (cache / "blobs").mkdir()
        for path in folder.iterdir():
            path.rename(cache / "blobs" / path.name)
            (revision / path.name).symlink_to(f"../../blobs/{path.name}")
        model = load(revision)
        assert model.origin["revision"] == "5f3a"
        assert model.name == "tiny"
        refused(lambda: load(cache), "a cache of revisions", "5f3a")

    def test_blobs_that_are_a_link(self, copy, tmp_path):
        """... would let links lead anywhere."""
        revision = tmp_path / "models--who--tiny" / "snapshots" / "5f3a"
        revision.mkdir(parents=True)
        (revision.parent.parent / "blobs").symlink_to("/")
        for path in copy().iterdir():
            (revision / path.name).symlink_to(path)
        refused(lambda: load(revision), "config.json", "which lies outside")


def test_other_folders(tmp_path):
    words = "'./tiny' does not exist", "the name of a model on the hub"
    refused(lambda: load("./tiny"), *words, error=FileNotFoundError)
    refused(lambda: load(None), "Received: folder=None")
    refused(lambda: load("nowhere", dtype="int8"), "dtype='int8'")
    words = "is no checkpoint of Hugging Face", "'config.json'"
    refused(lambda: load(tmp_path), *words, error=FileNotFoundError)
    (tmp_path / "model.keras").touch()
    words = "keras.saving.load_model loads it"
    refused(lambda: load(tmp_path / "model.keras"), words)


ADDED = {"content": "[PAD]", "id": 0}


class TestTokenizer:
    @pytest.fixture
    def made(self, tmp_path, encoder):
        """The tokenizer of a folder with these files."""

        def made(**files):
            for name, content in files.items():
                if name == "vocab":
                    (tmp_path / "vocab.txt").write_text(content, "utf-8")
                else:
                    path = tmp_path / f"{name}.json"
                    path.write_text(json.dumps(content))
            return tokenizer_of(Folder(tmp_path), encoder)

        return made

    def test_tokens_that_are_ends_of_lines_elsewhere(self, made):
        tokens = [*SPECIAL, "\u2028", "\x85", "one"]
        assert made(vocab="\n".join(tokens)).vocabulary == tuple(tokens)

    @pytest.mark.parametrize(
        ("keys", "value", "word"),
        [
            ("model", GONE, "'model'"),
            ("model type", "WordLevel", "only WordPiece, Unigram and BPE"),
            ("model type", "BPE", "normalizer={'type'"),
            ("model vocab", {"a": 0, "b": 0}, "ids of the vocabulary"),
            ("model vocab more", 48, "49 tokens, and config.json says voc"),
            ("model vocab [PAD]", True, "added_tokens={'id': 0"),
            ("model unk_token", "nothing", "Missing: nothing"),
            ("model continuing_subword_prefix", "@@", "'@@'"),
            ("normalizer type", "NFC", "'NFC'"),
            ("normalizer clean_text", False, "'clean_text'"),
            ("pre_tokenizer type", "Whitespace", "'Whitespace'"),
            ("post_processor type", "Sequence", "'processors'"),
            (
                "post_processor special_tokens [SEP] ids",
                [4],
                "post_processor={",
            ),
            ("added_tokens", [{"content": "x", "id": -1}], "ids of the voc"),
            (
                "added_tokens",
                [{"content": "[PAD]", "id": 3}],
                "added_tokens={'id': 3",
            ),
            ("normalizer", {"normalizers": [{"type": "NFC"}] * 2}, "'type'"),
            ("added_tokens", [ADDED | {"single_word": True}], "'single_word'"),
            ("truncation", {"direction": "Left"}, "'direction'"),
            ("padding", {"direction": "Left"}, "'direction'"),
        ],
    )
    def test_other_file(self, made, tmp_path, keys, value, word):
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(WORDPIECE))
        changed(path, keys.split(), value)
        refused(made, str(tmp_path), word)

    @pytest.mark.parametrize(
        ("settings", "word"),
        [
            ({"do_lower_case": "x"}, "'do_lower_case'"),
            ({"model_max_length": -1}, "'model_max_length'"),
            ({"model_max_length": 1}, "`max_length` must be at least 2"),
            ({"tokenizer_class": "BertJapaneseTokenizer"}, "Japanese"),
            ({"do_basic_tokenize": False}, "'do_basic_tokenize'"),
            ({"never_split": ["a"]}, "'never_split'"),
            ({"truncation_side": "left"}, "'truncation_side'"),
            ({"padding_side": "left"}, "'padding_side'"),
            (
                {"added_tokens_decoder": {"3": {"content": "[CLS]"}}},
                "'added_tokens_decoder': the token '[CLS]' is not in",
            ),
        ],
    )
    def test_settings(self, made, settings, word):
        files = {"vocab": "\n".join(VOCABULARY), "tokenizer_config": settings}
        refused(lambda: made(**files), word)

    @pytest.mark.parametrize(
        ("settings", "word"),
        [
            ({"do_lower_case": False}, "'do_lower_case': False contra"),
            ({"cls_token": "[UNK]"}, "'cls_token': '[UNK]' would be added"),
            # Of which BERT has none, and then none around a text.
            ({"add_bos_token": True}, "'add_bos_token': None would be added"),
        ],
    )
    def test_settings_that_frame_otherwise(self, made, settings, word):
        """As versions of transformers read them beside the file."""
        files = {"tokenizer": WORDPIECE, "tokenizer_config": settings}
        refused(lambda: made(**files), word)

    def test_settings_that_frame_alike(self, made):
        frame = {"bos_token": "[CLS]", "eos_token": "[SEP]"}
        adds = {"add_bos_token": True, "add_eos_token": True}
        whole = {"tokenizer": WORDPIECE}
        assert made(**whole, tokenizer_config={**frame, **adds}).end_id == 3
        # A class that does what the file says ignores names of the frame.
        kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
        settings = {**kind, "cls_token": "[MASK]"}
        assert made(**whole, tokenizer_config=settings).start_id == 2

    def test_how_long_texts_may_be(self, made):
        """Of what sentence-transformers reads, the first that says so."""
        whole, table = {"tokenizer": WORDPIECE}, 24
        settings = {"tokenizer_config": {"model_max_length": 6}}
        assert made(**whole).max_length == table
        assert made(**whole, **settings).max_length == 6
        own = {"sentence_roberta_config": {"max_seq_length": 9}}
        assert made(**whole, **settings, **own).max_length == 9

    def test_other_files(self, made, tmp_path):
        refused(made, "from_ids=True", error=FileNotFoundError)
        for vocabulary in ("", "a\na\n"):
            refused(lambda: made(vocab=vocabulary), str(tmp_path))  # noqa: B023
        (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
        refused(made, "vocab.txt", "UTF-8")
        files = {"vocab": "\n".join(VOCABULARY)}
        files["sentence_bert_config"] = {"max_seq_length": True}
        words = "sentence_bert_config.json", "max_seq_length"
        refused(lambda: made(**files), *words)


def modules(*kinds):
    return [{"type": f"sentence_transformers.models.{k}"} for k in kinds]


class TestModules:
    @pytest.mark.parametrize(
        ("listed", "word"),
        [
            (modules("Transformer"), ""),
            (modules("Transformer", "Normalize"), ""),
            (modules("Transformer", "Pooling", "Transformer"), ""),
            (
                modules("Transformer", "Pooling", "LSTM"),
                "the module 'LSTM' is not supported, only Transformer",
            ),
            ([*modules("Transformer"), {"type": "somebody.Pooling"}], ""),
            ({"type": "x"}, ""),
        ],
    )
    def test_others(self, tmp_path, listed, word):
        (tmp_path / "modules.json").write_text(json.dumps(listed))
        made = lambda: sentence_embedding(Folder(tmp_path), 16)  # noqa: E731
        refused(made, "modules.json", word)

    @pytest.mark.parametrize("path", ["..", "/etc"])
    def test_outside(self, tmp_path, path):
        listed = modules("Transformer", "Pooling")
        listed[1]["path"] = path
        (tmp_path / "modules.json").write_text(json.dumps(listed))
        refused(lambda: sentence_embedding(Folder(tmp_path), 16), "outside")

    @pytest.mark.parametrize(
        ("kind", "config", "word"),
        [
            ("Pooling", {}, "by other keys none"),
            (
                "Pooling",
                {"pooling_mode": "mean", "pooling_mode_max_tokens": True},
                "it chooses 'mean', by other keys pooling_mode_max_tokens",
            ),
            ("Pooling", {"pooling_mode": ["mean", "sum"]}, "'sum' is not supp"),
            ("Pooling", {"embedding_dimension": 17}, "17 is not supported"),
            ("Pooling", {"surprise": 1}, "surprise=1"),
            ("Dense", {"in_features": 17}, "'in_features': 17"),
            ("Dense", {"activation_function": "os.system"}, "'os.system'"),
            ("Dense", {"module_input_name": "token_embeddings"}, "module_inpu"),
        ],
    )
    def test_config(self, tmp_path, kind, config, word):
        listed = modules("Transformer", "Pooling", "Dense")
        usual = {
            "Pooling": {"pooling_mode_mean_tokens": kind == "Dense"},
            "Dense": {"in_features": 16, "out_features": 4},
        }
        for module in listed[1:]:
            name = module["type"].rpartition(".")[2]
            module["path"] = name
            (tmp_path / name).mkdir()
            said = {**usual[name], **(config if name == kind else {})}
            (tmp_path / name / "config.json").write_text(json.dumps(said))
        (tmp_path / "modules.json").write_text(json.dumps(listed))
        weights = {"linear.weight": np.ones((4, 16)), "linear.bias": np.ones(4)}
        save_file(weights, tmp_path / "Dense" / WEIGHTS)
        refused(lambda: sentence_embedding(Folder(tmp_path), 16), kind, word)
