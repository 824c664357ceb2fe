"""Decoders against `transformers`, on random weights; and their configs."""

import json
from functools import partial

import numpy as np
import pytest
from keras import ops
from safetensors.numpy import load_file, save_file

import keras_posenc as kp
from tests.checkpoints.folders import GONE, copied
from tests.layers import by_steps
from tests.text.files import FIXTURES as ALL

FIXTURES = ALL / "language_models"
ENCODERS = ("embedding_gemma", "qwen3_embedding")
NAMES = sorted({folder.name for folder in FIXTURES.iterdir()} - {*ENCODERS})
TEXTS = [  # as in the script that wrote the fixtures
    "how tall is a tree, and how tall are the other trees of the forest?",
    "A tree of 12 metres,  caf\u00e9 and \u6728.\n",
    "",
    "The answer isn't here",
]
# Relative to the largest logit.
TOLERANCES = {"float32": 5e-6, "float64": 1e-10}


def load(folder, **options):
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


def expected_of(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        return arrays["ids"], arrays["logits"]


def check(compute, name, dtype):
    ids, expected = expected_of(name)
    found = compute(ids)
    found = ops.convert_to_numpy(found) * (ids != -1)[..., None]
    difference = np.abs(found - expected).max() / np.abs(expected).max()
    assert difference <= TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(name, dtype):
    """Texts are padded on the right and on the left; id 0 is a token."""
    ids, _ = expected_of(name)
    assert (ids == 0).any()
    loaded = load(FIXTURES / name, dtype=dtype)
    model = loaded.model
    assert model.pad_id == -1
    assert name.startswith(loaded.origin["model_type"])
    cache = model.build_cache(*ids.shape)
    is_whole = dtype == "float32"
    check(model if is_whole else partial(by_steps, model, cache), name, dtype)


@pytest.fixture
def changed(tmp_path):
    """Copies a fixture with other keys and other tensors."""

    def changed(name, tensors=None, **keys):
        return copied(FIXTURES / name, tmp_path, tensors, **keys)

    return changed


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("llama", {"pretraining_tp": 1}),
        ("gpt2", {"n_ctx": 16, "reorder_and_upcast_attn": True}),
        (
            "gemma3_text",
            {
                "rope_parameters": GONE,
                "rope_theta": 80.0,
                "rope_local_base_freq": 50.0,
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
                "_sliding_window_pattern": 6,
                "cache_implementation": "hybrid",
            },
        ),
        (  # as the hub has it
            "gemma4_text",
            {
                "per_layer_config": GONE,
                "global_head_dim": 8,
                "num_global_key_value_heads": 1,
                "expert_intermediate_size": None,
                "use_bidirectional_attention": "vision",
            },
        ),
        ("qwen2", {"layer_types": GONE}),
        (
            "olmo3",
            {
                "rope_parameters": GONE,
                "rope_theta": 500000,
                "rope_scaling": {
                    "attention_factor": 1.2,
                    "beta_fast": 4.0,
                    "beta_slow": 1.0,
                    "factor": 8.0,
                    "original_max_position_embeddings": 4,
                    "rope_type": "yarn",
                },
            },
        ),
        (
            "phi3",
            {
                "rope_parameters": GONE,
                "rope_theta": 50.0,
                "rope_scaling": None,
                "partial_rotary_factor": 0.75,
                "attention_bias": False,
            },
        ),
        (  # not longer than the original: the other list
            "phi3_longrope",
            {
                "original_max_position_embeddings": 16,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 50.0,
                    "attention_factor": 2.5**0.5,  # 1 + log(8) / log(4)
                    "long_factor": [1.0, 1.1, 1.3],
                    "short_factor": [1.5, 2.0, 4.0],
                },
            },
        ),
    ],
)
def test_older_keys(changed, name, keys):
    model = load(changed(name, **keys)).model
    check(model, name, "float32")


def test_the_text_model_of_one_of_texts_and_images(changed, tmp_path):
    """It has keys that are not needed, of blocks that use those of others."""
    name, key = "gemma4_text", "layers.3.self_attn.k_norm.weight"

    def within(tensors):
        tensors = {x.removeprefix("model."): tensors[x] for x in tensors}
        tensors[key] = np.ones(8, "float32")
        found = {f"model.language_model.{x}": tensors[x] for x in tensors}
        other = "model.vision_tower.patch_embedder.input_proj.weight"
        return {**found, other: np.ones((2, 2), "float32")}

    folder = changed(name, within)
    file = folder / "config.json"
    text = json.loads(file.read_text())
    kind = ["Gemma4ForConditionalGeneration"]
    whole = {"model_type": "gemma4", "architectures": kind, "text_config": text}
    file.write_text(json.dumps({**whole, "vision_config": {"depth": 1}}))
    loaded = load(folder)
    check(loaded.model, name, "float32")
    prompt = np.array([[-1, 3, 0, 7, 9, 11]])
    found = loaded.generate(prompt, max_new_tokens=2)
    for _ in range(2):  # greedy, and whole each time
        logits = ops.convert_to_numpy(loaded.model(prompt))
        prompt = np.append(prompt, [[logits[0, -1].argmax()]], axis=1)
    np.testing.assert_array_equal(found, prompt[:, 6:])
    saved = kp.save_hugging_face(
        loaded, tmp_path / "saved", verify=False, verbose=False
    )
    check(load(saved).model, name, "float32")
    config = json.loads((saved / "config.json").read_text())
    assert config.items() >= {**text, "model_type": name}.items()
    tensors = {*load_file(saved / "model.safetensors")}
    assert tensors == {*load_file(FIXTURES / name / "model.safetensors")}
    with pytest.raises(ValueError, match="text alone"):
        load(folder, encoder_only=True)
    file.write_text(json.dumps({**whole, "quantization_config": {"bits": 4}}))
    with pytest.raises(ValueError, match="quantized weights"):
        load(folder)


def test_a_decoder_without_a_causal_mask(changed):
    """... as gte-Qwen2-instruct, is a sentence encoder."""
    full = {"use_sliding_window": False, "layer_types": GONE}
    folder = changed("qwen2", is_causal=False, **full)
    model = kp.load_hugging_face(
        folder, from_ids=True, encoder_only=True, verbose=False
    )
    ids, _ = expected_of("qwen2")
    found = ops.convert_to_numpy(model(ids)) * (ids != -1)[..., None]
    with np.load(FIXTURES / "qwen2" / "not_causal.npz") as arrays:
        expected = arrays["vectors"]
    difference = np.abs(found - expected).max() / np.abs(expected).max()
    assert difference <= TOLERANCES["float32"]
    with pytest.raises(ValueError, match=r"'is_causal'.* modules\.json"):
        load(folder)


def test_a_head_that_is_stored_though_it_is_tied(changed):
    def stored(tensors, factor=1):
        return tensors | {"lm_head.weight": factor * tensors["wte.weight"]}

    def unprefixed(tensors):
        return {k.removeprefix("transformer."): x for k, x in tensors.items()}

    folder = changed("gpt2", lambda tensors: stored(unprefixed(tensors)))
    check(load(folder).model, "gpt2", "float32")
    file = folder / "model.safetensors"
    save_file(stored(load_file(file), 2), file)
    with pytest.raises(ValueError, match=r"'lm_head\.weight' differs"):
        load(folder)


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_are_those_of_sentence_transformers(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        arrays = dict(arrays)
    model = kp.load_hugging_face(FIXTURES / name, from_ids=True, verbose=False)
    found = ops.convert_to_numpy(model(arrays["ids"]))
    np.testing.assert_allclose(found, arrays["embedding"], rtol=0, atol=2e-6)
    again = type(model).from_config(model.get_config())
    again.set_weights(model.get_weights())
    again = ops.convert_to_numpy(again(arrays["ids"]))
    np.testing.assert_array_equal(again, found)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_of_texts(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        arrays = dict(arrays)
    model = kp.load_hugging_face(FIXTURES / name, verbose=False)
    vectors = model.predict(ops.convert_to_tensor(TEXTS), verbose=0)
    with pytest.warns(UserWarning, match="Cut to"):
        of_queries = model.encode_query(TEXTS)
    for prompt, found in ("embedding", vectors), ("query", of_queries):
        np.testing.assert_allclose(found, arrays[prompt], rtol=0, atol=2e-6)


def test_hidden_states_of_a_decoder():
    """Ids may be padded with one of them."""
    folder = FIXTURES / "llama"
    options = {"from_ids": True, "encoder_only": True, "verbose": False}
    ids = np.array([[3, 0, 7, 39]])
    model = kp.load_hugging_face(folder, **options)
    expected = ops.convert_to_numpy(model(ids))
    model = kp.load_hugging_face(folder, pad_id=5, **options)
    found = ops.convert_to_numpy(model(np.array([[3, 0, 7, 39, 5, 5]])))
    np.testing.assert_allclose(found[:, :4], expected, rtol=0, atol=1e-5)
