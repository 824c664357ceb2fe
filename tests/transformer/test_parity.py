"""Encoders and decoders against other libraries', from stored numbers."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests.layers import FIXTURES, by_steps

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
WIDE = pytest.param("float64", marks=pytest.mark.tensorflow)
DTYPES = ["float32", WIDE]


@pytest.fixture(scope="module")
def arrays():
    found = {}
    for name in ("layers", "models"):
        with np.load(FIXTURES / f"decoder_parity_{name}.npz") as file:
            found |= dict(file)
    return found


def part(arrays, key):
    """The arrays under one key, by the rest of their names."""
    return {
        name.removeprefix(f"{key}/"): array
        for name, array in arrays.items()
        if name.startswith(f"{key}/")
    }


def near(outputs, expected, dtype):
    np.testing.assert_allclose(
        ops.convert_to_numpy(outputs),
        expected,
        rtol=0,
        atol=TOLERANCE[dtype] * max(1, np.abs(expected).max()),
    )


def load_dense(dense, case, *names):
    for kind in ("kernel", "bias")[: 1 + dense.use_bias]:
        values = [case[f"{name}/{kind}"] for name in names]
        getattr(dense, kind).assign(np.concatenate(values, axis=-1))


def load_norm(norm, case, name):
    if isinstance(norm, keras.layers.RMSNormalization):
        norm.scale.assign(case[f"{name}/gamma"])
        return
    norm.gamma.assign(case[f"{name}/gamma"])
    norm.beta.assign(case[f"{name}/beta"])


def load_block(block, case):
    cross = getattr(block, "cross_attention", None)
    kinds = ("query", "key", "value")
    load_dense(
        block.attention.query_key_value,
        case,
        *(f"attention/{kind}" for kind in kinds),
    )
    load_dense(block.attention.output_projection, case, "attention/output")
    load_norm(block.attention_norm, case, "attention_norm")
    if cross is not None:
        query, key, value = (f"cross_attention/{kind}" for kind in kinds)
        load_dense(cross.query, case, query)
        load_dense(cross.key_value, case, key, value)
        load_dense(cross.output_projection, case, "cross_attention/output")
        load_norm(block.cross_attention_norm, case, "cross_attention_norm")
    load_dense(block.feed_forward.intermediate, case, "feed_forward/in")
    if block.feed_forward.gate is not None:
        load_dense(block.feed_forward.gate, case, "feed_forward/gate")
    load_dense(block.feed_forward.output_projection, case, "feed_forward/out")
    load_norm(block.feed_forward_norm, case, "feed_forward_norm")


def load_stack(stack, case, name):
    for index, block in enumerate(stack.blocks):
        load_block(block, part(case, f"{name}/{index}"))
    if stack.final_norm is not None:
        load_norm(stack.final_norm, case, f"{name}_norm")


def options(case, at="after", **more):
    norm = kp.Norm(at=at, epsilon=float(case["norm_epsilon"]))
    blocks = {"num_heads": 2, "intermediate_dim": 12, "dropout": 0.0}
    return {**blocks, "norm": norm, **more}


def compare_on_tokens(arrays, case, outputs, dtype):
    real = arrays["target_mask"]
    near(outputs[real], case["outputs"][real], dtype)


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"{peer}/{norm}/{activation}"
            for peer in ("torch", "keras_hub")
            for norm in ("post", "pre")
            for activation in ("relu", "gelu")
        ),
        *("torch_stack/post/relu", "torch_stack/pre/gelu"),
    ],
)
def test_encoder(name):
    with np.load(FIXTURES / "encoder_parity.npz") as file:
        case = part(dict(file), name)
    given = {
        **options(case, "before" if case["normalize_first"] else "after"),
        "num_heads": int(case["num_heads"]),
        "intermediate_dim": 32,
        "activation": str(case["activation"]),
    }
    if "num_layers" in case:
        layer = kp.TransformerEncoder(int(case["num_layers"]), **given)
        layer.build(case["inputs"].shape)
        load_stack(layer, case, "encoder")
    else:
        layer = kp.TransformerEncoderBlock(**given)
        layer.build(case["inputs"].shape)
        load_block(layer, case)
    inputs, mask = case["inputs"], case["padding_mask"]
    near(layer(inputs), case["outputs_unpadded"], "float32")
    expected = case["outputs_padded"][mask]
    assert np.abs(expected - case["outputs_unpadded"][mask]).max() > 0.01
    square = np.broadcast_to(mask[:, np.newaxis], (4, 7, 7))
    for call in (
        {"mask": mask},
        {"padding_mask": mask},
        {"attention_mask": square},
    ):
        near(layer(inputs, **call)[mask], expected, "float32")


# KerasHub's attends in float32, whatever its dtype.
@pytest.mark.parametrize(
    ("peer", "dtype"),
    [
        ("keras_hub", "float32"),
        ("torch", "float32"),
        pytest.param("torch", "float64", marks=pytest.mark.tensorflow),
    ],
)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_block(arrays, peer, norm, dtype):
    case = part(arrays, f"{peer}/{norm}")
    block = kp.TransformerDecoderBlock(
        **options(case, "before" if norm == "pre" else "after"),
        dtype=dtype,
    )
    block.build(case["target"].shape)
    load_block(block, case)
    outputs = block(
        case["target"],
        memory=case["memory"],
        mask=arrays["target_mask"],
        memory_mask=arrays["source_mask"],
    )
    compare_on_tokens(arrays, case, outputs, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_transformer(arrays, dtype):
    case = part(arrays, "torch_transformer/pre")
    encoder, decoder = (
        stack(2, **options(case, "before"), dtype=dtype)
        for stack in (kp.TransformerEncoder, kp.TransformerDecoder)
    )
    for name, stack in (("encoder", encoder), ("decoder", decoder)):
        stack.build((None, None, 8))
        load_stack(stack, case, name)
    sources = {"mask": arrays["source_mask"]}
    outputs = decoder(
        case["target"],
        memory=encoder(case["memory"], **sources),
        mask=arrays["target_mask"],
        memory_mask=arrays["source_mask"],
    )
    compare_on_tokens(arrays, case, outputs, dtype)


def gelu(x):
    """Keras's on TensorFlow rounds a constant to float32."""
    return 0.5 * x * (1 + ops.erf(x / ops.cast(np.sqrt(2), x.dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bart(arrays, dtype):
    case = part(arrays, "bart")
    length = case["encoder_positions"].shape[0]
    model = kp.Transformer(
        case["embeddings"].shape[0],
        d_model=8,
        num_layers=2,
        **options(case, activation=gelu, scale_inputs=False),
        input_position=kp.PositionEmbedding(length, dtype=dtype),
        embedding_norm=True,
        dtype=dtype,
    )
    model.embedding.embeddings.assign(case["embeddings"])
    for name, side, position in (
        ("encoder", "source", model.input_position),
        ("decoder", "target", model.target_input_position),
    ):
        position.embeddings.assign(case[f"{name}_positions"])
        norm = getattr(model, f"{side}_embedding_norm")
        load_norm(norm, case, f"{name}_embedding_norm")
        load_stack(getattr(model, name), case, name)
    source, target = case["source_ids"], case["target_ids"]
    outputs = model({"source": source, "target": target})
    compare_on_tokens(arrays, case, outputs, dtype)
    # ... and token by token, after a prompt.
    outputs = by_steps(model, model.build_cache(source, 6), target, 4)
    compare_on_tokens(arrays, case, outputs, dtype)


def test_llama(arrays):
    case = part(arrays, "llama")
    model = kp.TransformerDecoderModel(
        case["embeddings"].shape[0],
        d_model=16,
        num_layers=2,
        num_heads=4,
        attention=kp.Attention(
            kp.RotaryEmbedding(max_wavelength=500), num_key_value_heads=2
        ),
        intermediate_dim=20,
        dropout=0.0,
        activation="silu",
        use_gate=True,
        use_bias=False,
        norm=kp.Norm("rms", at="before", epsilon=float(case["norm_epsilon"])),
        input_position=None,
        embeddings="separate",
        scale_inputs=False,
    )
    model.embedding.embeddings.assign(case["embeddings"])
    load_dense(model.head, case, "logits")
    load_stack(model.decoder, case, "decoder")
    target = case["target_ids"]
    compare_on_tokens(arrays, case, model(target), "float32")
    cache = model.build_cache(len(target), 9)
    outputs, _ = model.call_with_cache(target, cache)
    compare_on_tokens(arrays, case, outputs, "float32")
