"""The encoder against PyTorch's and KerasHub's, from stored numbers."""

from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
TOLERANCE = 1e-5  # what both peers' float32 outputs are good to
CASES = [
    (peer, position, activation)
    for peer in ("torch", "keras_hub")
    for position in ("post", "pre")
    for activation in ("relu", "gelu")
]
STACKS = [("torch_stack", "post", "relu"), ("torch_stack", "pre", "gelu")]


@pytest.fixture(scope="module")
def arrays():
    with np.load(FIXTURES / "encoder_parity.npz") as file:
        return dict(file)


def part(arrays, *keys):
    """The arrays under one key, by the rest of their names."""
    prefix = "/".join(keys) + "/"
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def options(case):
    return {
        "num_heads": int(case["num_heads"]),
        "intermediate_dim": case.get(
            "ffn_in_bias", case.get("layer_0/ffn_in_bias")
        ).size,
        "dropout": 0.0,
        "activation": str(case["activation"]),
        "norm": kp.Norm(
            at="before" if case["normalize_first"] else "after",
            epsilon=float(case["norm_epsilon"]),
        ),
    }


def load(block, case):
    attention, feed_forward = block.attention, block.feed_forward
    for layer, kernels, biases in (
        (
            attention.query_key_value,
            ("query_kernel", "key_kernel", "value_kernel"),
            ("query_bias", "key_bias", "value_bias"),
        ),
        (attention.output_projection, ("output_kernel",), ("output_bias",)),
        (feed_forward.intermediate, ("ffn_in_kernel",), ("ffn_in_bias",)),
        (
            feed_forward.output_projection,
            ("ffn_out_kernel",),
            ("ffn_out_bias",),
        ),
    ):
        layer.kernel.assign(np.concatenate([case[k] for k in kernels], -1))
        layer.bias.assign(np.concatenate([case[b] for b in biases]))
    for norm, name in (
        (block.attention_norm, "attention_norm"),
        (block.feed_forward_norm, "ffn_norm"),
    ):
        norm.gamma.assign(case[f"{name}_gamma"])
        norm.beta.assign(case[f"{name}_beta"])


def same_outputs(layer, case):
    inputs, mask = case["inputs"], case["padding_mask"]

    def near(outputs, expected):
        outputs = ops.convert_to_numpy(outputs)
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=TOLERANCE)

    near(layer(inputs), case["outputs_unpadded"])
    expected = case["outputs_padded"][mask]
    assert np.abs(expected - case["outputs_unpadded"][mask]).max() > 0.01
    for given in ({"mask": mask}, {"padding_mask": mask}):
        near(layer(inputs, **given)[mask], expected)
    attention_mask = np.broadcast_to(mask[:, np.newaxis], (4, 7, 7))
    near(layer(inputs, attention_mask=attention_mask)[mask], expected)


@pytest.mark.parametrize(("peer", "position", "activation"), CASES)
def test_block_computes_the_same(arrays, peer, position, activation):
    case = part(arrays, peer, position, activation)
    block = kp.TransformerEncoderBlock(**options(case))
    block.build(case["inputs"].shape)
    load(block, case)
    same_outputs(block, case)


@pytest.mark.parametrize(("peer", "position", "activation"), STACKS)
def test_stack_computes_the_same(arrays, peer, position, activation):
    case = part(arrays, peer, position, activation)
    encoder = kp.TransformerEncoder(int(case["num_layers"]), **options(case))
    encoder.build(case["inputs"].shape)
    for index, block in enumerate(encoder.blocks):
        load(block, part(case, f"layer_{index}"))
    # PyTorch's stack has a final norm if asked; ours has it in pre-norm.
    assert (encoder.final_norm is not None) == ("final_norm_gamma" in case)
    if encoder.final_norm is not None:
        encoder.final_norm.gamma.assign(case["final_norm_gamma"])
        encoder.final_norm.beta.assign(case["final_norm_beta"])
    same_outputs(encoder, case)
