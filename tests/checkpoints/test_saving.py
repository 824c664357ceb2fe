"""What is saved, and read again."""

import base64
import json
import runpy
import shutil
import zlib

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints import read_back, saving, writing
from keras_posenc.checkpoints.read_back import _inputs
from keras_posenc.checkpoints.read_back import answers as answers_of
from tests.checkpoints.folders import WEIGHTS, at, copied
from tests.checkpoints.test_sentences import VARIANTS, write
from tests.text.files import FIXTURES

# Relative to the largest output: weights that have a factor change by their
# last bit, as sums of up to 64 terms do.
TOLERANCE = 5e-6
BERT = {
    "vocabulary_size": 12,
    "d_model": 8,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_dim": 6,
    "input_position": "table",
    "embedding_norm": True,
}
MODERN_BERT = {
    **BERT,
    "input_position": None,
    "attention": "rotary",
    "norm": "between",
    "use_gate": True,
    "use_bias": False,
}
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] to be or not ##s , é e".split()


def made(options, **others):
    options = {**options, **others}
    if options["input_position"] == "table":
        options["input_position"] = kp.PositionEmbedding(10)
    if options.get("attention") == "rotary":
        rotary = kp.RotaryEmbedding(layout="halves")
        options["attention"] = kp.Attention(rotary, window=3)
    return kp.TransformerEncoderModel(**options)


def classifier(*layers, **options):
    return kp.PretrainedModel(
        [
            keras.Input((None,), dtype="int32"),
            kp.TransformerEncoderModel(
                **{**BERT, "input_position": kp.PositionEmbedding(10)},
                name="encoder",
            ),
            *layers,
        ],
        **options,
    )


def answers(model, ids):
    return keras.ops.convert_to_numpy(model(ids))


# One of each way that tensors become weights.
LOADED = """
    albert_narrow bart bart_mnli bert_old_names cohere2 deberta_narrow
    deberta_v2 dinov2 dinov3 embedding_gemma ernie eurobert_classifier exaone4
    flan_t5 gemma3_text gemma4_text glm4 gpt2 granite granitemoehybrid gte
    marian_two modernbert_token_classifier mpnet nomic_bert_scaled olmo3 phi3
    qwen3 roberta_classifier vit
"""


# Keys of configs that do not allow what training changes.
WRITTEN = {
    "deberta_narrow": {"norm_rel_ebd", "share_att_key"},
    "deberta_v2": {"norm_rel_ebd", "share_att_key"},
    "dinov3": {"key_bias"},
}


def folder_of(name, parent):
    """Returns a fixture, or one whose distances are more than its width."""
    if name != "deberta_narrow":
        return at(name)
    rows = np.random.default_rng(1).normal(size=(20, 16)).astype("float32")
    more = {"encoder.rel_embeddings.weight": rows}
    return copied(
        at("deberta_v2"), parent, lambda x: {**x, **more}, position_buckets=10
    )


def trained(model):
    """Changes all weights that training would, zeros too."""
    rng = np.random.default_rng(0)
    whole = getattr(model, "model", model)  # of a generator
    for weight in whole.trainable_weights:
        values = keras.ops.convert_to_numpy(weight)
        values = values * rng.uniform(0.9, 1.1, values.shape)
        weight.assign(values + rng.normal(0, 0.01, values.shape))


def loaded(folder):
    config = json.loads((folder / "config.json").read_text("utf-8"))
    options = {} if "patch_size" in config else {"from_ids": True}
    if config["model_type"] == "eurobert":  # its padding ends texts too
        options["pad_id"] = 45
    return kp.load_hugging_face(folder, verbose=False, **options)


def saved(model, folder, **options):
    options = {"verify": False, "verbose": False, **options}
    return kp.save_hugging_face(model, folder, **options)


def outputs_of(model):
    return [answers_of(model, _inputs(model))]


def weights_of(model):
    weights = getattr(model, "model", model).weights
    return [keras.ops.convert_to_numpy(each) for each in weights]


def is_read_back(model, folder, of=outputs_of):
    again = loaded(saved(model, folder))
    for expected, found in zip(of(model), of(again), strict=True):
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max()
        )


@pytest.mark.parametrize("name", LOADED.split())
def test_what_was_loaded_is_saved_with_its_weights_of_now(name, tmp_path):
    folder = folder_of(name, tmp_path)
    model = loaded(folder)
    trained(model)
    of = outputs_of if name in WRITTEN else weights_of  # of the same config
    is_read_back(model, tmp_path / "new", of)
    first, last = (
        json.loads((each / "config.json").read_text("utf-8"))
        for each in (folder, tmp_path / "new")
    )
    unlike = {key for key in first if last[key] != first[key]}
    assert unlike - {"dtype", "torch_dtype"} == WRITTEN.get(name, set())


@pytest.mark.parametrize("is_whole", [True, False])
def test_modernbert_of_a_keras_file_gets_biases(is_whole, tmp_path):
    model = loaded(at("modernbert_token_classifier"))
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    model.encoder.trainable = is_whole
    trained(model)
    is_read_back(model, tmp_path / "new")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["norm_bias"]


@pytest.mark.parametrize(
    "name", ["cohere2", "gte", "modernbert_token_classifier"]
)
def test_biases_without_a_tensor_stay_0_in_training(name, tmp_path):
    model = loaded(at(name))
    whole = getattr(model, "model", model)
    whole.trainable = False  # and again True, as in phases of fine-tuning
    whole.trainable = True
    weights = whole.trainable_weights
    gradients = [keras.ops.ones_like(each) for each in weights]
    keras.optimizers.SGD(0.01).apply(gradients, weights)
    is_read_back(model, tmp_path / "new")
    config = (tmp_path / "new" / "config.json").read_text()
    assert '"norm_bias": true' not in config


def with_dense(folder):
    """Writes a sentence encoder with a projection of its vectors."""
    write(folder, VARIANTS["lasttoken"])
    modules = json.loads((folder / "modules.json").read_text())
    kind, path = "sentence_transformers.models.Dense", "9_Dense"
    modules.append({"idx": 9, "name": "9", "path": path, "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / path).mkdir()
    sizes = {"in_features": 16, "out_features": 3, "bias": True}
    (folder / path / "config.json").write_text(json.dumps(sizes))
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(3, 16)), rng.normal(size=3)
    tensors = {"linear.weight": kernel, "linear.bias": bias}
    writing.write_tensors(folder / path, tensors)
    return folder


def test_files_of_the_tokenizer_and_modules_stay_after_keras(tmp_path):
    folder = with_dense(tmp_path / "original")
    model = kp.load_hugging_face(folder, verbose=False)
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    saved(model, tmp_path / "new")
    again = kp.load_hugging_face(tmp_path / "new", verbose=False)
    texts = keras.ops.convert_to_tensor(["how tall is a tree?", ""])
    assert np.array_equal(answers(again, texts), answers(model, texts))
    names = contents(folder)
    assert contents(tmp_path / "new") == names
    for name in names:
        file = folder / name
        if file.is_file() and file.name not in (WEIGHTS, "config.json"):
            assert (tmp_path / "new" / name).read_bytes() == file.read_bytes()


def test_a_folder_is_loaded_again_before_it_appears(tmp_path, monkeypatch):
    def run(command, **_):  # another process takes seconds to begin
        assert command[1:4] == ["-P", "-m", read_back.__name__]
        monkeypatch.setattr("sys.argv", command[3:])
        runpy.run_path(read_back.__file__, run_name="__main__")

    monkeypatch.setattr(read_back.subprocess, "run", run)
    tokenizer = kp.WordpieceTokenizer(
        VOCABULARY, normalization="bert", max_length=7
    )
    own = [keras.Input((), dtype="string"), tokenizer, made(BERT)]
    saved(kp.PretrainedModel(own), tmp_path / "own", verify=True)
    model = loaded(at("bert_classifier"))
    # The folder says that a softmax follows.
    other = kp.PretrainedModel(
        [keras.Input((None,), dtype="int32"), *model.layers[:-1]],
        labels=model.labels,
        checkpoint=model.checkpoint,
    )
    with pytest.raises(kp.ExportError, match="differ by up to"):
        saved(other, tmp_path / "other", verify=True)
    assert [each.name for each in tmp_path.iterdir()] == ["own"]


def test_the_library_of_transformers_reads_a_tokenizer_made_here(tmp_path):
    library = pytest.importorskip("tokenizers")
    texts = [
        "To be, or NOT to be?",
        "caf\u00e9\u6728\t12",
        "[SEP] unknown: \u03a9",
        "",
    ]
    for lowercase in (True, False):
        tokenizer = kp.WordpieceTokenizer.learn(
            texts[:2], 60, normalization="bert", lowercase=lowercase
        )
        encoder = made(BERT, vocabulary_size=len(tokenizer.vocabulary))
        own = [keras.Input((), dtype="string"), tokenizer, encoder]
        folder = saved(kp.PretrainedModel(own), tmp_path / str(lowercase))
        read = library.Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = keras.ops.convert_to_numpy(tokenizer(np.array(texts, object)))
        for text, row in zip(texts, ids.tolist(), strict=True):
            found = read.encode(text).ids
            assert found + [0] * (len(row) - len(found)) == row


def test_heads_of_training_are_not_named(tmp_path):
    """They are not loaded: transformers would draw them at random."""
    for name, encoder in (
        ("BertForMaskedLM", "BertModel"),
        ("RoFormerForPreTraining", "RoFormerModel"),
        ("BertLMHeadModel", "BertModel"),
    ):
        folder = copied(
            at("bert"), tmp_path / "of" / name, architectures=[name]
        )
        saved(loaded(folder), tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config["architectures"] == [encoder]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../config.json", "x.py"])
def test_files_of_a_strangers_model_stay_inside(name, tmp_path):
    model = loaded(at("bert"))
    model.checkpoint["files"] = {name: ""}
    with pytest.raises(ValueError, match="which no checkpoint has"):
        saved(model, tmp_path / "in" / "new")
    assert not list(tmp_path.iterdir())


def test_a_bomb_in_a_strangers_model(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MOST_BYTES", 2**20)
    model = loaded(at("bert"))
    bomb = zlib.compress(bytes(2**21))
    packed = base64.b85encode(bomb).decode()
    model.checkpoint["files"] = {"tokenizer.json": packed}
    with pytest.raises(ValueError, match="a file of more than"):
        saved(model, tmp_path / "new")


def test_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_MOST", 5000)
    model = loaded(at("llama"))
    saved(model, tmp_path)
    assert len([*tmp_path.glob("model-*.safetensors")]) > 2
    assert not (tmp_path / WEIGHTS).exists()
    inputs = _inputs(model)
    again = answers_of(loaded(tmp_path), inputs)
    assert np.array_equal(again, answers_of(model, inputs))


@pytest.mark.parametrize("options", [BERT, MODERN_BERT])
def test_an_encoder_of_ones_own(options, tmp_path):
    model = made(options, activation="gelu_tanh", pad_id=2)
    for weight in model.weights:
        weight.assign(keras.random.normal(weight.shape, seed=1))
    folder = saved(model, tmp_path)
    again = kp.load_hugging_face(folder, from_ids=True, verbose=False)
    ids = np.array([[4, 5, 6, 7, 1, 0, 2, 2], [8, 1, 3, 4, 5, 6, 7, 9]])
    assert np.array_equal(answers(again, ids), answers(model, ids))
    with pytest.raises(FileExistsError, match="new or empty"):
        saved(model, tmp_path)


def test_modernbert_without_biases_of_norms(tmp_path):
    """Its checkpoints have none, and other libraries than transformers."""
    loaded(saved(made(MODERN_BERT), tmp_path))  # no tensor is left over
    assert "norm_bias" not in (tmp_path / "config.json").read_text()


LLAMA = {
    "vocabulary_size": 12,
    "d_model": 8,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_dim": 6,
    "input_position": None,
    "attention": kp.Attention(kp.RotaryEmbedding(layout="halves")),
    "activation": "silu",
    "use_gate": True,
    "use_bias": False,
    "norm": kp.Norm("rms", at="before"),
    "scale_inputs": False,
}


def attending(**options):
    rotary = kp.RotaryEmbedding(layout="halves", max_wavelength=500.0)
    return {"attention": kp.Attention(rotary, **options)}


@pytest.mark.parametrize(
    ("options", "architecture"),
    [
        ({}, "LlamaForCausalLM"),
        ({"embeddings": "separate"}, "LlamaForCausalLM"),
        (attending(window=3, num_key_value_heads=1), "MistralForCausalLM"),
        (attending(use_bias=True), "Qwen2ForCausalLM"),
        (attending(query_key_norm=True), "Qwen3ForCausalLM"),
        (
            {
                **attending(query_key_norm="all"),
                "norm": kp.Norm("rms", at="output"),
            },
            "Olmo2ForCausalLM",
        ),
        (
            {
                "attention": None,
                "input_position": kp.PositionEmbedding(9, skip_masked=True),
                "norm": "before",
                "use_gate": False,
                "use_bias": True,
                "activation": "gelu_tanh",
            },
            "GPT2LMHeadModel",
        ),
    ],
)
def test_a_decoder_of_ones_own(options, architecture, tmp_path):
    model = kp.TransformerDecoderModel(**{**LLAMA, **options})
    for seed, weight in enumerate(model.weights):
        weight.assign(keras.random.normal(weight.shape, seed=seed))
    saved(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [architecture]
    again = kp.load_hugging_face(tmp_path, from_ids=True, verbose=False)
    ids = np.array([[4, 5, 6, 7, 1, 2]])
    expected = answers(model, ids)
    near = {"rtol": 0, "atol": TOLERANCE * np.abs(expected).max()}
    np.testing.assert_allclose(answers(again.model, ids), expected, **near)


def test_says_why_a_decoder_is_none(tmp_path):
    model = kp.TransformerDecoderModel(**{**LLAMA, "scale_inputs": True})
    with pytest.raises(ValueError, match="`scale_inputs` of the decoder must"):
        saved(model, tmp_path / "new")


@pytest.mark.parametrize(
    ("activation", "of_tokens"),
    [("softmax", True), ("sigmoid", False), (None, False)],
)
def test_classifiers(activation, of_tokens, tmp_path):
    layers = (
        []
        if of_tokens
        else [
            kp.Pooling1D("first"),
            keras.layers.Dense(8, activation="tanh"),
        ]
    )
    layers.append(keras.layers.Dense(3))
    if activation is not None:
        layers.append(keras.layers.Activation(activation))
    model = classifier(*layers, labels=["a", "é", "c"])
    folder = saved(model, tmp_path)
    again = kp.load_hugging_face(folder, from_ids=True, verbose=False)
    ids = np.array([[4, 5, 6]])
    assert np.array_equal(answers(again, ids), answers(model, ids))
    assert again.labels == model.labels


def test_a_tokenizer_and_lora(tmp_path):
    tokenizer = kp.WordpieceTokenizer(
        VOCABULARY, normalization="bert", max_length=7, strip_accents=False
    )
    encoder = made(BERT, name="encoder")
    projection = encoder.encoder.blocks[1].feed_forward.intermediate
    projection.enable_lora(2)
    projection.lora_kernel_b.assign(keras.ops.ones((2, 6)))
    model = kp.PretrainedModel(
        [keras.Input((), dtype="string"), tokenizer, encoder]
    )
    folder = saved(model, tmp_path)
    again = kp.load_hugging_face(folder, verbose=False)
    texts = keras.ops.convert_to_tensor(["TO be, or nots É [SEP]", "é"])
    # A sum of two products, for one of sums: each of 8 terms about 1.
    np.testing.assert_allclose(
        answers(again, texts), answers(model, texts), atol=8 * 2**-20
    )


def positions_of_tokens():
    position = kp.PositionEmbedding(10, skip_masked=True)
    return kp.TransformerEncoderModel(**BERT | {"input_position": position})


def of_two_widths():
    return made(BERT, intermediate_dim=[6, 8])


def two_rotations():
    specs = [
        kp.Attention(
            kp.RotaryEmbedding(layout="halves", max_wavelength=base), window=3
        )
        for base in (10.0, 20.0)
    ]
    return made(MODERN_BERT, attention=specs)


def offset_output():
    options = {**LLAMA, **attending(use_bias=False), "use_bias": True}
    model = kp.TransformerDecoderModel(**options)
    attention = model.decoder.blocks[1].attention
    attention.output_projection.bias.assign([0.5] * 8)
    return model


def quantized():
    model = made(BERT)
    model.encoder.blocks[1].feed_forward.intermediate.quantize("int8")
    return model


def with_tokenizer(**options):
    tokenizer = kp.WordpieceTokenizer(VOCABULARY, **options)
    return kp.PretrainedModel(
        [keras.Input((), dtype="string"), tokenizer, made(BERT, pad_id=1)]
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(BERT, embedding_norm=False), "`embedding_norm` of the"),
        (lambda: made(BERT, use_gate=True), "`use_gate` of the encoder must"),
        (lambda: made(BERT, activation="elu"), "`activation` of the encoder"),
        (
            lambda: made(MODERN_BERT, norm="before"),
            "`norm` of the encoder must be",
        ),
        (of_two_widths, r"must be one number.*intermediate_dim=\[6, 8\]"),
        (positions_of_tokens, "`input_position` of the encoder must be"),
        (two_rotations, "`attention` of the encoder must be"),
        (offset_output, "offsets of layer .* must be 0"),
        (quantized, "is quantized"),
        (lambda: keras.Sequential([]), "`model` must be a PretrainedModel"),
        (
            lambda: classifier(kp.Pooling1D("mean")),
            r"save its encoder: save_hugging_face\(model.encoder, folder\)",
        ),
        (
            lambda: classifier(
                kp.Pooling1D("mean"),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.Dense(3),
            ),
            "After the encoder there must be Bert's classifier",
        ),
        (with_tokenizer, "normalization='tf_text', which Hugging"),
        (lambda: with_tokenizer(normalization="bert"), "`pad_id`"),
    ],
)
def test_refuses_what_cannot_be_said(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        saved(make(), tmp_path / "new")
    assert not list(tmp_path.iterdir())


def contents(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.mark.parametrize("name", ["llama", "phi3"])
class TestAdapters:
    """LoRA of PEFT, on projections that are one of ours, and the reverse."""

    def test_of_peft(self, name, tmp_path):
        folder = FIXTURES / "lora" / name
        with np.load(folder / "expected.npz") as arrays:
            ids, logits = arrays["ids"], arrays["logits"]
        model = loaded(at(name))
        kp.training.load_lora(model, folder)
        near = {"rtol": 0, "atol": TOLERANCE * np.abs(logits).max()}
        np.testing.assert_allclose(answers(model.model, ids), logits, **near)
        assert all("lora" in x.path for x in model.model.trainable_weights)
        # Its ranks differ: queries and values are of one projection here.
        kp.training.save_lora(model, tmp_path / "again")
        again = loaded(at(name))
        kp.training.load_lora(again, tmp_path / "again")
        np.testing.assert_allclose(answers(again.model, ids), logits, **near)

    def test_of_ours(self, name, tmp_path):
        model = loaded(at(name))
        kp.training.enable_lora(model.model, rank=2, alpha=5)
        rng = np.random.default_rng(0)
        for weight in model.model.trainable_weights:
            weight.assign(rng.normal(0, 0.1, weight.shape))
        kp.training.save_lora(model, tmp_path / "adapter")
        again = loaded(at(name))
        kp.training.load_lora(again, tmp_path / "adapter")
        ids = np.array([[3, 4, 5, 6]])
        expected = answers(model.model, ids)
        near = {"rtol": 0, "atol": TOLERANCE * np.abs(expected).max()}
        np.testing.assert_allclose(answers(again.model, ids), expected, **near)


def test_an_adapter_scaled_by_the_root_of_its_rank(tmp_path):
    """alpha / sqrt(r) of https://arxiv.org/abs/2312.03732, by module."""
    folder = tmp_path / "adapter"
    shutil.copytree(FIXTURES / "lora" / "llama", folder)
    file = folder / "adapter_config.json"
    root = 5 / 2**0.5
    keys = {"use_rslora": True, "lora_alpha": 1.0}
    keys["alpha_pattern"] = {"q_proj": root, "self_attn.v_proj": root}
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))
    with np.load(folder / "expected.npz") as arrays:
        ids, logits = arrays["ids"], arrays["logits"]
    model = loaded(at("llama"))
    kp.training.load_lora(model, folder)
    atol = TOLERANCE * np.abs(logits).max()
    found = answers(model.model, ids)
    np.testing.assert_allclose(found, logits, rtol=0, atol=atol)


def test_an_adapter_of_one_projection(tmp_path):
    model = loaded(at("llama"))
    layer = model.model.decoder.blocks[0].feed_forward.output_projection
    kp.training.enable_lora(layer, rank=2)
    kp.training.save_lora(model, tmp_path / "adapter")
    said = json.loads(
        (tmp_path / "adapter" / "adapter_config.json").read_text()
    )
    assert (said["r"], said["target_modules"]) == (2, ["down_proj"])


def test_refuses_adapters_of_other_kinds(tmp_path):
    folder = tmp_path / "adapter"
    shutil.copytree(FIXTURES / "lora" / "llama", folder)
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text())
    model = loaded(at("llama"))
    for keys, message in (
        ({"peft_type": "IA3"}, "LORA"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"r": 4}, "must have shape"),
        ({"kasa_config": {}}, "kasa_config"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"rank_pattern": {"^model": 2}}, "is a regular expression"),
        ({"alpha_pattern": {"q_proj": 0}}, "alpha_pattern"),
    ):
        file.write_text(json.dumps({**config, **keys}))
        with pytest.raises(ValueError, match=message):
            kp.training.load_lora(model, folder)
    with pytest.raises(ValueError, match="must have LoRA"):
        kp.training.save_lora(model, tmp_path / "new")
    with pytest.raises(ValueError, match="made, which knows"):
        kp.training.save_lora(made(BERT), tmp_path / "new")
    model = loaded(at("bert_classifier"))
    kp.training.enable_lora(model, rank=2)
    with pytest.raises(ValueError, match="has LoRA, and is no projection"):
        kp.training.save_lora(model, tmp_path / "new")


def test_refuses_what_the_checkpoint_cannot_hold(tmp_path):
    model = kp.load_hugging_face(at("dinov2"), verbose=False, image_size=28)
    with pytest.raises(ValueError, match="loaded with image_size=28"):
        saved(model, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_a_table_of_distances_that_is_too_narrow(tmp_path):
    folder = folder_of("deberta_narrow", tmp_path)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("bfloat16")
    try:
        saved(loaded(folder), tmp_path / "bfloat16")
    finally:
        keras.config.set_dtype_policy(before)
    model = loaded(folder)
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    position = model.encoder.encoder.blocks[1].attention.attention_position
    assert not position.trainable_weights
    position.trainable = True
    trained(model)
    with pytest.raises(ValueError, match="distances were trained, and no"):
        saved(model, tmp_path / "new")
    model = loaded(at("deberta_v2"))
    kp.training.enable_lora(model, rank=2)
    with pytest.raises(ValueError, match="'distances' is a factor"):
        kp.training.save_lora(model, tmp_path / "new")
