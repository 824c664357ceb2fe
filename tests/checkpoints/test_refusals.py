"""Folders that are damaged, forged or of another kind: what is said of each."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_posenc as kp
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.sentence_embedding import sentence_embedding
from keras_posenc.checkpoints.tensors import CONVERSION
from keras_posenc.checkpoints.tokenizers import tokenizer_of
from keras_posenc.transformer._sublayers import make_activation

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"
NORM = "embeddings.LayerNorm.bias"
GONE = object()  # no value at all
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *(f"word{number}" for number in range(43))]


@pytest.fixture
def copy(tmp_path):
    """Copies a fixture, to be damaged."""

    def copy(name="bert"):
        return Path(shutil.copytree(FIXTURES / name, tmp_path / name))

    return copy


def load(folder, **options):
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


@pytest.fixture(scope="module")
def encoder():
    return load(FIXTURES / "bert").encoder


def refused(make, *words, error=ValueError):
    """Checks that an error is of one kind, one line, and says these words."""
    with pytest.raises(error) as raised:
        make()
    assert type(raised.value) is error
    message = str(raised.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def changed(path, keys, value):
    """Gives a place in a JSON file another value."""
    whole = json.loads(path.read_text())
    *outer, last = keys
    part = whole
    for key in outer:
        part = part[key]
    if value is GONE:
        del part[last]
    else:
        part[last] = value
    path.write_text(json.dumps(whole))


NOT_NUMBERS = (None, "12", -1, [], float("nan"))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model_type", "xlnet", ["'xlnet' is not supported, only albert, b"]),
        (
            "model_type",
            "pegasus",
            ["'pegasus' is an encoder and a decoder", "albert, b"],
        ),
        ("model_type", "olmo", ["'olmo' is a decoder", "albert, bart"]),
        ("model_type", "deberta", ["'deberta' is DeBERTa of version 1"]),
        ("model_type", [], ["must be a string"]),
        ("surprise", 3, ["surprise=3", "ignore_keys=['surprise'] passes"]),
        ("num_experts", 8, ["a mixture of experts", "Received: 8"]),
        ("quantization_config", {"bits": 4}, ["quantized weights"]),
        ("hidden_act", "swoosh", ["'swoosh' is not supported"]),
        ("hidden_act", {}, ["{} is not supported"]),
        ("is_decoder", True, ["True is not supported"]),
        ("position_embedding_type", "relative_key", ["'relative_key'"]),
        ("architectures", ["BertForMultipleChoice"], ["encoder_only=True"]),
        ("architectures", 3, ["must be a list or null, and is 3"]),
        ("architectures", {"a": "b"}, ["must be a list or null"]),
        ("vocab_size", GONE, ["has no key"]),
        *(("vocab_size", value, ["positive integer"]) for value in NOT_NUMBERS),
        # Before anything so large is made.
        ("vocab_size", 10**30, [f"({10**30}, 16), as", "has (48, 16)"]),
        ("hidden_size", 10**6, [f"(48, {10**6}), as", "has (48, 16)"]),
        ("hidden_size", 20, ["word_embeddings.weight' must have", "(48, 20)"]),
        ("intermediate_size", 10**9, ["intermediate_dim"]),
        ("max_position_embeddings", 10**9, ["positions"]),
        ("num_hidden_layers", 10**30, ["blocks, but "]),
        ("num_attention_heads", 3, ["`num_heads` must divide"]),
        *(
            ("pad_token_id", value, ["integer in [0, 48)"])
            for value in (48, *NOT_NUMBERS)
        ),
        *(
            ("hidden_dropout_prob", value, ["must be a number in [0, 1)"])
            for value in (1, 10**400, *NOT_NUMBERS)
        ),
        *(
            ("layer_norm_eps", value, ["must be a positive finite number"])
            for value in (0, float("inf"), *NOT_NUMBERS)
        ),
    ],
)
def test_config(copy, key, value, words):
    folder = copy()
    changed(folder / "config.json", [key], value)
    refused(lambda: load(folder), "config.json", *words)


NTK = {"type": "ntk", "factor": 2.0}


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("modernbert", "layer_types", ["full_attention"], ["each of 3 blocks"]),
        ("modernbert", "layer_types", [[]] * 3, ["each of 3 blocks"]),
        ("modernbert", "layer_types", "full", ["must be a list"]),
        ("modernbert", "num_hidden_layers", 10**12, ["blocks, but "]),
        ("modernbert", "rope_parameters", {"full_attention": 3}, ["an object"]),
        ("deberta_v2", "pos_att_type", 3, ["p2c and c2p"]),
        ("deberta_v2", "pos_att_type", ["c2p"], ["p2c and c2p"]),
        ("deberta_v2", "max_relative_positions", "x", ["an integer"]),
        ("gte", "rope_parameters", "x", ["must be an object"]),
        ("gte", "rope_parameters", {"rope_theta": "x"}, ["rope_theta"]),
        ("gte", "rope_parameters", {"rope_type": "yarn"}, ["'yarn'"]),
        ("gte", "logn_attention_scale", True, ["True is not supported"]),
        ("gte_of_hub", "rope_scaling", {"type": "linear"}, ["'linear'"]),
        ("gte_of_hub", "rope_scaling", NTK | {"factor": 0.5}, ["at least 1"]),
        ("gte_of_hub", "rope_scaling", NTK | {"mixed_b": 0.5}, ["mixed_b"]),
        ("gte_of_hub", "rope_theta", GONE, ["has no key"]),
        ("gte_of_hub", "pad_token_id", GONE, ["has no key"]),
        ("gte_of_hub", "pack_qkv", False, ["False is not supported"]),
        ("gte_of_hub", "layer_norm_type", "rms_norm", ["'rms_norm'"]),
        ("gte_of_hub", "position_embedding_type", "absolute", ["'absolute'"]),
        ("nomic_bert_of_hub", "hidden_size", 17, ["n_embd", "16 differs from"]),
        ("nomic_bert_of_hub", "activation_function", "gelu", ["'gelu' is not"]),
        ("nomic_bert_of_hub", "activation_function", GONE, ["has no key"]),
        ("nomic_bert_of_hub", "layer_norm_epsilon", GONE, ["has no key"]),
        ("nomic_bert_of_hub", "rotary_emb_base", GONE, ["has no key"]),
        ("nomic_bert_of_hub", "qkv_proj_bias", GONE, ["has no key"]),
        ("nomic_bert_of_hub", "mlp_fc1_bias", True, ["True is not supported"]),
        ("nomic_bert_of_hub", "rotary_emb_fraction", 0.5, ["0.5 is not"]),
        ("nomic_bert_of_hub", "rotary_scaling_factor", 0, ["positive"]),
        ("nomic_bert_of_hub", "prenorm", True, ["True is not supported"]),
        ("modernbert_classifier", "classifier_pooling", "max", ["'max'"]),
        ("eurobert_classifier", "classifier_pooling", "cls", ["'cls'"]),
        ("esm", "position_embedding_type", GONE, ["has no key"]),
        ("deberta_v2", "max_relative_positions", 10**12, ["at most"]),
        ("vit", "image_size", 10**6, ["the largest has"]),
        ("vit", "num_channels", 10**9, ["the largest has"]),
        ("roberta", "pad_token_id", None, ["integer in [0, 48)"]),
        ("bert_classifier", "id2label", {"0": "a", "2": "b"}, ["id2label"]),
        ("bert_classifier", "id2label", [1, 2], ["id2label", "an object"]),
        ("bert_classifier", "problem_type", "x", ["problem_type", "'x'"]),
    ],
)
def test_config_of_other_families(copy, name, key, value, words):
    folder = copy(name)
    changed(folder / "config.json", [key], value)
    refused(lambda: load(folder), "config.json", key, *words)


@pytest.mark.parametrize(
    ("name", "key", "attribute", "usual"),
    [
        ("roberta", "pad_token_id", "pad_id", 1),
        ("gte", "pad_token_id", "pad_id", 1),
        ("deberta_v2", "layer_norm_eps", "norm_epsilon", 1e-7),
        ("albert", "hidden_act", "activation", make_activation("gelu_tanh")),
        ("nomic_bert", "hidden_act", "activation", make_activation("silu")),
    ],
)
def test_what_families_mean_where_nothing_is_said(
    copy, name, key, attribute, usual
):
    """As transformers' own classes of configs do."""
    folder = copy(name)
    changed(folder / "config.json", [key], GONE)
    assert getattr(load(folder).encoder, attribute) == usual


@pytest.mark.parametrize("theta", [100.0, 200.0])
def test_keys_of_the_hub_beside_those_of_transformers(copy, theta):
    """As the hub has them since version 5 of transformers."""
    folder = copy("nomic_bert_of_hub")
    rotary = {"rope_type": "default", "rope_theta": theta}
    changed(folder / "config.json", ["rope_parameters"], rotary)
    changed(folder / "config.json", ["hidden_size"], 16)
    changed(folder / "config.json", ["hidden_act"], "silu")
    if theta == 100.0:
        assert load(folder).encoder.attention_position.max_wavelength == 100.0
    else:
        refused(lambda: load(folder), "'rope_theta': 100 differs from")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("albert", "num_hidden_layers", 30),  # of one block's 16 tensors
        ("bert_classifier", "num_labels", 3),
        ("bert", "architectures", ["BertForMultipleChoice"]),
    ],
)
def test_what_does_not_matter_to_an_encoder(copy, name, key, value):
    folder = copy(name)
    changed(folder / "config.json", [key], value)
    assert load(folder, encoder_only=True).labels is None


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"image_mean": 0.5, "image_std": [1]}, "'image_mean'"),
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
    "text",
    ["", "[]", "3", "{", "[" * 100_000, '{"a":' * 100_000, "\udcff"],
    ids=["empty", "list", "number", "torn", "deep", "deeper", "bytes"],
)
@pytest.mark.parametrize(
    "name", ["config.json", INDEX, "tokenizer.json", "modules.json"]
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
            ({NORM: np.ones(17)}, [NORM, "shape (16,)", "has (17,)"]),
            ({NORM: np.ones((4, 4))}, [NORM, "has (4, 4)"]),
            ({NORM: np.ones(16, "int32")}, [NORM, "is of I32"]),
        ],
    )
    def test_others_than_the_config_says(self, copy, tensors, words):
        folder = copy()
        found = {**load_file(folder / WEIGHTS), **tensors}
        kept = {name: each for name, each in found.items() if each is not None}
        save_file(kept, folder / WEIGHTS)
        refused(lambda: load(folder), *words)

    @pytest.mark.parametrize("size", [0, 4, 8, 100, 2_000, -1])
    def test_torn_file(self, copy, size):
        folder = copy("bert_sharded")
        (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:size])
        refused(lambda: load(folder), SHARD, "not a complete safetensors file")

    @pytest.mark.parametrize(
        ("start", "word"),
        [
            (b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull`"),
            (b"GGUF\x03\0\0\0", "a GGUF file"),
        ],
    )
    def test_another_file_in_its_place(self, copy, start, word):
        path = copy() / WEIGHTS
        path.write_bytes(start + bytes(100))
        refused(lambda: load(path.parent), WEIGHTS, word, "again: `hf download")

    def test_shards_that_are_missing(self, copy):
        folder = copy("bert_sharded")
        (folder / SHARD).unlink()
        words = (
            f"lacks '{SHARD}': {INDEX} names ",
            "1 are missing",
            "hf download",
        )
        refused(lambda: load(folder), *words, error=FileNotFoundError)

    def test_an_adapter_alone(self, copy):
        folder = copy()
        (folder / "config.json").rename(folder / "adapter_config.json")
        refused(lambda: load(folder), "is an adapter", "merge_and_unload()")

    @pytest.mark.parametrize("length", [2**64 - 1, 2**40, 10**8, 7])
    def test_length_of_a_header(self, copy, length):
        path = copy() / WEIGHTS
        path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
        refused(
            lambda: load(path.parent),
            WEIGHTS,
            "not a complete safetensors file",
        )

    @pytest.mark.parametrize(
        "forged",
        [
            {"data_offsets": [64, 128]},  # another tensor's
            {"data_offsets": [0, 68]},
            {"data_offsets": [-1, 63]},
            {"shape": [2**62, 4]},
            {"dtype": "X"},
        ],
    )
    def test_forged_header(self, copy, forged):
        path = copy() / WEIGHTS
        whole = path.read_bytes()
        end = 8 + int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8:end])
        header[NORM].update(forged)
        new = json.dumps(header).encode()
        path.write_bytes(len(new).to_bytes(8, "little") + new + whole[end:])
        refused(
            lambda: load(path.parent),
            WEIGHTS,
            "not a complete safetensors file",
        )

    def test_no_weights(self, copy):
        folder = copy()
        (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
        refused(lambda: load(folder), "in pytorch_model.bin", CONVERSION)
        (folder / "pytorch_model.bin").unlink()
        words = WEIGHTS, "Is its download complete?"
        refused(lambda: load(folder), *words, error=FileNotFoundError)

    @pytest.mark.parametrize(
        ("file", "error", "word"),
        [
            ("../x", ValueError, "'../x', which would lie outside"),
            ("/etc/passwd", ValueError, "'/etc/passwd', which would lie"),
            ("a\\b", ValueError, "which would lie outside"),
            ("", ValueError, "which would lie outside"),
            ("none.safetensors", FileNotFoundError, "'none.safetensors'"),
            ("a" * 5000, FileNotFoundError, "aaa"),
            (SHARD, ValueError, "differ in these tensors: "),
            (3, ValueError, "`weight_map`"),
        ],
    )
    def test_index(self, copy, file, error, word):
        folder = copy("bert_sharded")
        changed(folder / INDEX, ["weight_map", NORM], file)
        refused(lambda: load(folder), word, error=error)

    @pytest.mark.parametrize(
        ("folder", "command"),
        [
            ("org/tiny-1.0", "`hf download org/tiny-1.0 --local-dir tiny-1.0`"),
            ("./tiny", "`hf download NAME --local-dir FOLDER`"),
        ],
    )
    def test_no_folder(self, folder, command):
        words = (f"'{folder}' does not exist", command)
        refused(lambda: load(folder), *words, error=FileNotFoundError)

    def test_index_of_no_tensors(self, copy):
        folder = copy("bert_sharded")
        for found, said in (({}, "is empty"), (None, "is empty"), (3, "is 3")):
            changed(folder / INDEX, ["weight_map"], found)
            refused(lambda: load(folder), f"to files, and it {said}")

    def test_index_of_a_tensor_that_is_nowhere(self, copy):
        folder = copy("bert_sharded")
        changed(folder / INDEX, ["weight_map", "nothing"], SHARD)
        refused(lambda: load(folder), INDEX, "these tensors: nothing")


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
        assert model.name == "models__who__tiny"
        refused(lambda: load(cache), "a cache of revisions", "5f3a")

    def test_blobs_that_are_a_link(self, copy, tmp_path):
        """... would let links lead anywhere."""
        revision = tmp_path / "models--who--tiny" / "snapshots" / "5f3a"
        revision.mkdir(parents=True)
        (revision.parent.parent / "blobs").symlink_to("/")
        for path in copy().iterdir():
            (revision / path.name).symlink_to(path)
        refused(lambda: load(revision), "config.json", "which lies outside")

    @pytest.mark.parametrize("folder", [3, None, ""])
    def test_no_path(self, folder):
        refused(lambda: load(folder), f"Received: folder={folder!r}")


class TestOtherKinds:
    @pytest.mark.parametrize("version", ["", "2"])
    def test_saved_model(self, tmp_path, version):
        (tmp_path / version).mkdir(exist_ok=True)
        (tmp_path / version / "saved_model.pb").touch()
        refused(lambda: load(tmp_path), str(tmp_path), "is a SavedModel")

    def test_empty_folder(self, tmp_path):
        words = "is no checkpoint of Hugging Face", "'config.json'"
        refused(lambda: load(tmp_path), *words, error=FileNotFoundError)

    def test_keras_file(self, tmp_path):
        path = tmp_path / "model.keras"
        path.touch()
        refused(lambda: load(path), "keras.saving.load_model loads it")


@pytest.mark.parametrize("dtype", ["float17", "int8", 3])
def test_dtype(dtype):
    refused(lambda: load("nowhere", dtype=dtype), f"dtype={dtype!r}")


TOKENIZER = {
    "added_tokens": [
        {"id": number, "content": token} for number, token in enumerate(SPECIAL)
    ],
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[CLS]"}},
            {"Sequence": {"id": "A"}},
            {"SpecialToken": {"id": "[SEP]"}},
        ],
        "special_tokens": {"[CLS]": {"ids": [2]}, "[SEP]": {"ids": [3]}},
    },
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "vocab": {token: id for id, token in enumerate(VOCABULARY)},
    },
}


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

    def test_whole(self, made):
        assert made(tokenizer=TOKENIZER).vocabulary == tuple(VOCABULARY)

    def test_tokens_that_are_ends_of_lines_elsewhere(self, made):
        tokens = [*SPECIAL, "\u2028", "\x85", "one"]
        assert made(vocab="\n".join(tokens)).vocabulary == tuple(tokens)

    @pytest.mark.parametrize(
        ("keys", "value", "word"),
        [
            ("model", GONE, "'model'"),
            ("model", "x", "'model'"),
            ("model type", "WordLevel", "only WordPiece, Unigram and BPE"),
            ("model type", "BPE", "a tokenizer.json of type BPE"),
            ("model type", [], "'type'"),
            ("model vocab", [], "'vocab'"),
            ("model vocab", {"a": "b"}, "ids of the vocabulary"),
            ("model vocab", {"a": 0, "b": 0}, "ids of the vocabulary"),
            ("model vocab more", 48, "49 tokens, and config.json says voc"),
            ("model vocab [PAD]", True, "'added_tokens', '0'"),
            ("model unk_token", None, "'unk_token'"),
            ("model unk_token", "nothing", "Missing: nothing"),
            ("model continuing_subword_prefix", "@@", "'@@'"),
            ("normalizer", None, "'normalizer'"),
            ("normalizer type", "NFC", "'NFC'"),
            ("normalizer clean_text", False, "'clean_text'"),
            ("normalizer lowercase", "yes", "'lowercase'"),
            ("normalizer strip_accents", 3, "'strip_accents'"),
            ("pre_tokenizer type", "Whitespace", "'Whitespace'"),
            ("post_processor", GONE, "'post_processor'"),
            ("post_processor type", "Sequence", "'post_processor'"),
            ("post_processor single", None, "'post_processor'"),
            ("post_processor single", [{}, {}, {}], "'post_processor'"),
            ("post_processor single", [None] * 3, "'post_processor'"),
            (
                "post_processor special_tokens [SEP] ids",
                [4],
                "'post_processor': a text must be between one token and "
                "another, each with its id",
            ),
            (
                "post_processor",
                {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["x"]},
                "'post_processor'",
            ),
            (
                "post_processor",
                {
                    "type": "BertProcessing",
                    "cls": ["[CLS]", 4],
                    "sep": ["[SEP]", 3],
                },
                "each with its id",
            ),
            ("added_tokens", 3, "'added_tokens'"),
            ("added_tokens", [None], "'added_tokens', '0'"),
            ("added_tokens", [{"id": 1}], "'content'"),
            ("added_tokens", [{"content": []}], "'content'"),
            ("added_tokens", [{"content": "x", "id": -1}], "ids of the voc"),
            ("added_tokens", [{"content": "x", "id": []}], "ids of the voc"),
            ("added_tokens", [{"content": "[PAD]", "id": 3}], "another one"),
            ("added_tokens", [ADDED | {"normalized": 1}], "'normalized'"),
            ("normalizer", {"normalizers": [{"type": "NFC"}] * 2}, "'type'"),
            ("added_tokens", [ADDED | {"single_word": True}], "'single_word'"),
            ("truncation", {"direction": "Left"}, "'direction'"),
            ("padding", {"direction": "Left"}, "'direction'"),
        ],
    )
    def test_other_file(self, made, tmp_path, keys, value, word):
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(TOKENIZER))
        changed(path, keys.split(), value)
        refused(made, str(tmp_path), word)

    @pytest.mark.parametrize(
        ("settings", "word"),
        [
            ({"unk_token": None}, "'unk_token'"),
            ({"cls_token": {"content": 3}}, "'cls_token', key 'content'"),
            ({"sep_token": {}}, "'content'"),
            ({"do_lower_case": "x"}, "'do_lower_case'"),
            ({"model_max_length": -1}, "'model_max_length'"),
            ({"model_max_length": "x"}, "'model_max_length'"),
            ({"model_max_length": 1}, "`max_length` must be at least 2"),
            ({"tokenizer_class": "BertJapaneseTokenizer"}, "Japanese"),
            ({"do_basic_tokenize": False}, "'do_basic_tokenize'"),
            ({"never_split": ["a"]}, "'never_split'"),
            ({"truncation_side": "left"}, "'truncation_side'"),
            ({"padding_side": "left"}, "'padding_side'"),
            ({"added_tokens_decoder": {"48": {}}}, "vocab.txt has not"),
            (
                {"added_tokens_decoder": {"3": {"content": "[CLS]"}}},
                "'[CLS]' with the id 3, which vocab.txt has not",
            ),
        ],
    )
    def test_settings(self, made, settings, word):
        files = {"vocab": "\n".join(VOCABULARY), "tokenizer_config": settings}
        refused(lambda: made(**files), word)

    @pytest.mark.parametrize(
        ("other", "said"),
        [
            ("do_lower_case", False),
            ("strip_accents", False),
            ("tokenize_chinese_chars", False),
        ],
    )
    def test_what_two_files_say_otherwise(self, made, other, said):
        files = {"tokenizer": TOKENIZER, "tokenizer_config": {other: said}}
        refused(lambda: made(**files), f"'{other}': False contra")

    @pytest.mark.parametrize(
        ("settings", "word"),
        [
            ({"cls_token": "[UNK]"}, "'cls_token': '[UNK]' would be added"),
            ({"sep_token": {"content": "[PAD]"}}, "'sep_token': '[PAD]'"),
            # Of which BERT has none, and then none around a text.
            ({"add_bos_token": True}, "'add_bos_token': None would be added"),
            ({"add_eos_token": True}, "'add_bos_token': None would be added"),
            (
                {"add_bos_token": True, "bos_token": "[CLS]"},
                "'add_eos_token': None would be added",
            ),
            (
                {"add_bos_token": True, "bos_token": "[MASK]"},
                "'add_bos_token': '[MASK]' would be added",
            ),
            ({"add_bos_token": 3}, "'add_bos_token'"),
        ],
    )
    def test_settings_that_frame_otherwise(self, made, settings, word):
        """As versions of transformers read them beside the file."""
        files = {"tokenizer": TOKENIZER, "tokenizer_config": settings}
        refused(lambda: made(**files), word)

    def test_settings_that_frame_alike(self, made):
        frame = {"bos_token": "[CLS]", "eos_token": "[SEP]"}
        adds = {"add_bos_token": True, "add_eos_token": True}
        whole = {"tokenizer": TOKENIZER}
        assert made(**whole, tokenizer_config={**frame, **adds}).end_id == 3
        # A class that does what the file says takes no name for the frame.
        kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
        settings = {**kind, "cls_token": "[MASK]"}
        assert made(**whole, tokenizer_config=settings).start_id == 2

    def test_how_long_texts_may_be(self, made):
        """Of what sentence-transformers reads, the first that says so."""
        whole, table = {"tokenizer": TOKENIZER}, 24
        settings = {"tokenizer_config": {"model_max_length": 6}}
        assert made(**whole).max_length == table
        assert made(**whole, **settings).max_length == 6
        own = {"sentence_roberta_config": {"max_seq_length": 9}}
        assert made(**whole, **settings, **own).max_length == 9

    @pytest.mark.parametrize(
        "lengths", [{"max_seq_length": True}, {"do_lower_case": 1}]
    )
    def test_lengths(self, made, lengths):
        files = {"vocab": "\n".join(VOCABULARY)}
        refused(
            lambda: made(**files, sentence_bert_config=lengths),
            "sentence_bert_config.json",
            *lengths,
        )

    @pytest.mark.parametrize("vocabulary", ["", "\n\n", "a\na\n", "a\nb\n"])
    def test_vocabulary(self, made, tmp_path, vocabulary):
        refused(lambda: made(vocab=vocabulary), str(tmp_path))

    def test_bytes(self, made, tmp_path):
        (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
        refused(made, "vocab.txt", "UTF-8")

    def test_none(self, made):
        refused(made, "from_ids=True", error=FileNotFoundError)


def modules(*kinds):
    return [{"type": f"sentence_transformers.models.{k}"} for k in kinds]


class TestModules:
    @pytest.mark.parametrize(
        "listed",
        [
            modules(),
            modules("Transformer"),
            modules("Pooling", "Transformer"),
            modules("Transformer", "Normalize"),
            modules("Transformer", "Pooling", "LSTM"),
            modules("Transformer", "Pooling", "Transformer"),
            [*modules("Transformer"), {"type": "somebody.Pooling"}],
            [{**modules("Transformer")[0], "path": "0"}, *modules("Pooling")],
            [{"type": 3}],
            {"type": "x"},
        ],
    )
    def test_others(self, tmp_path, listed):
        (tmp_path / "modules.json").write_text(json.dumps(listed))
        words = ["modules.j"]
        if listed == modules("Transformer", "Pooling", "LSTM"):
            words.append("the module 'LSTM' is not supported, only Transformer")
        refused(lambda: sentence_embedding(Folder(tmp_path), 16), *words)

    @pytest.mark.parametrize("path", ["..", "/etc", "a/../.."])
    def test_outside(self, tmp_path, path):
        listed = modules("Transformer", "Pooling")
        listed[1]["path"] = path
        (tmp_path / "modules.json").write_text(json.dumps(listed))
        refused(lambda: sentence_embedding(Folder(tmp_path), 16), "outside")

    @pytest.mark.parametrize(
        ("kind", "config", "word"),
        [
            ("Pooling", {}, "by other keys none"),
            ("Pooling", {"pooling_mode": []}, "it chooses []"),
            (
                "Pooling",
                {"pooling_mode": "mean", "pooling_mode_max_tokens": True},
                "it chooses 'mean', by other keys pooling_mode_max_tokens",
            ),
            ("Pooling", {"pooling_mode": ["mean", "sum"]}, "'sum' is not supp"),
            (
                "Pooling",
                {"pooling_mode": ["mean", ["cls"]]},
                "is not supported",
            ),
            ("Pooling", {"include_prompt": "no"}, "'include_prompt'"),
            ("Pooling", {"embedding_dimension": 17}, "17 is not supported"),
            ("Pooling", {"surprise": 1}, "surprise=1"),
            ("Dense", {"in_features": 17}, "'in_features': 17"),
            ("Dense", {"out_features": 2**62}, "tensor 'linear.weight'"),
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
