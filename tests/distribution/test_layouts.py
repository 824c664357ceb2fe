"""Layouts that are read off the layers, and files of whole models."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

SIZES = {"d_model": 8, "num_layers": 1, "num_heads": 4, "intermediate_dim": 12}


def mesh(model, batch=1):
    devices = [f"cpu:{index}" for index in range(batch * model)]
    return keras.distribution.DeviceMesh(
        (batch, model), ["batch", "model"], devices
    )


def sharded(model, size):
    """What is sharded over an axis, by its path from the block on."""
    layouts = kp.distribution.layout_map(model, mesh(size))
    assert list(layouts) == [variable.path for variable in model.variables]
    for variable in model.variables:
        axes = layouts[variable.path].axes
        assert len(axes) == len(variable.shape)
        for axis, length in zip(axes, variable.shape, strict=True):
            assert axis is None or length % size == 0
    return {
        path.partition("block_0/")[2] or path: layout.axes
        for path, layout in layouts.items()
        if any(layout.axes)
    }


COLUMNS, ROWS, FIRST = (None, "model"), ("model", None), ("model",)
ATTENTION = {
    "attention/query_key_value/kernel": COLUMNS,
    "attention/query_key_value/bias": FIRST,
    "attention/output_projection/kernel": ROWS,
}
FEED_FORWARD = {
    "feed_forward/intermediate/kernel": COLUMNS,
    "feed_forward/intermediate/bias": FIRST,
    "feed_forward/output_projection/kernel": ROWS,
}
QUERY = {
    "cross_attention/query/kernel": COLUMNS,
    "cross_attention/query/bias": FIRST,
    "cross_attention/output_projection/kernel": ROWS,
}
KEY_VALUE = {
    "cross_attention/key_value/kernel": COLUMNS,
    "cross_attention/key_value/bias": FIRST,
}


def test_encoder():
    model = kp.TransformerEncoderModel(
        50,
        **SIZES,
        use_gate=True,
        input_position=kp.PositionEmbedding(12),
        attention=kp.positions.TransformerXLBias(name="xl"),
    )
    assert sharded(model, 2) == {
        "embedding/embeddings": COLUMNS,
        **ATTENTION,
        "attention/xl/kernel": COLUMNS,
        "attention/xl/content_bias": ROWS,
        "attention/xl/position_bias": ROWS,
        **FEED_FORWARD,
        "feed_forward/gate/kernel": COLUMNS,
        "feed_forward/gate/bias": FIRST,
    }


def test_transformer():
    model = kp.Transformer(50, **SIZES, embeddings="separate")
    found = sharded(model, 2)
    assert found == {
        "source_embedding/embeddings": COLUMNS,
        "target_embedding/embeddings": COLUMNS,
        "logits/kernel": COLUMNS,
        **ATTENTION,
        **QUERY,
        **KEY_VALUE,
        **FEED_FORWARD,
    }


def test_what_an_axis_does_not_divide_is_replicated():
    """Of grouped heads the keys and values, and a whole model by 5."""
    model = kp.Transformer(
        50, **SIZES, attention=kp.Attention(num_key_value_heads=2)
    )
    found = sharded(model, 4)
    assert {path: found[path] for path in QUERY} == QUERY
    assert not KEY_VALUE.keys() & found.keys()
    assert sharded(model, 5) == {}


def test_layers_of_others_are_replicated_but_for_embeddings():
    layers = [
        keras.Input((None,), dtype="int32"),
        keras.layers.Embedding(50, 8, name="embedding"),
        kp.FeedForward(12, name="feed_forward"),
        keras.layers.Dense(4, name="head"),
    ]
    found = sharded(keras.Sequential(layers, name="judge"), 2)
    assert {path.removeprefix("judge/"): found[path] for path in found} == {
        "embedding/embeddings": COLUMNS,
        **FEED_FORWARD,
    }


def test_blocks_that_share_their_weights():
    encoder = kp.TransformerEncoder(
        2, num_heads=4, intermediate_dim=12, share_blocks=True
    )
    encoder.build((None, None, 8))
    assert sharded(encoder, 2) == {**ATTENTION, **FEED_FORWARD}


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_lora_and_int8():
    model = kp.TransformerEncoderModel(50, **SIZES)
    model.quantize("int8")
    attention = model.encoder.blocks[0].attention
    model.embedding.enable_lora(2)
    attention.query_key_value.enable_lora(2)
    attention.output_projection.enable_lora(2)
    low, scales = "lora_kernel", "kernel_scale"
    assert sharded(model, 2) == {
        "embedding/embeddings": COLUMNS,
        "embedding/lora_embeddings_b": COLUMNS,
        **ATTENTION,
        f"attention/query_key_value/{scales}": FIRST,
        f"attention/query_key_value/{low}_b": COLUMNS,
        f"attention/output_projection/{low}_a": ROWS,
        **FEED_FORWARD,
        f"feed_forward/intermediate/{scales}": FIRST,
    }


def test_needs_no_values():
    with keras.StatelessScope(initialize_variables=False):
        model = kp.TransformerEncoderModel(50, **SIZES)
        layouts = kp.distribution.layout_map(model, mesh(2))
    made = kp.TransformerEncoderModel(50, **SIZES)
    for weight in made.weights:
        assert len(layouts[weight.path].axes) == len(weight.shape)
    assert {path for path in layouts if "seed" not in path} == {
        weight.path for weight in made.weights
    }


def test_refusals():
    model = kp.TransformerEncoderModel(50, **SIZES)
    with pytest.raises(ValueError, match=r"`axis` must be one of.*axis='rows'"):
        kp.distribution.layout_map(model, mesh(2), axis="rows")
    with pytest.raises(ValueError, match=r"`mesh` must be .*mesh=\(1, 2\)"):
        kp.distribution.layout_map(model, (1, 2))
    with pytest.raises(ValueError, match="Sequential 'unbuilt' is not"):
        kp.distribution.layout_map(
            keras.Sequential([kp.FeedForward(4)], name="unbuilt"), mesh(2)
        )
    block = model.encoder.blocks[0]
    block.feed_forward.intermediate.quantize("float8")
    with pytest.raises(ValueError, match=r"intermediate/\w+'.*to float8"):
        kp.distribution.layout_map(model, mesh(2))


def test_two_variables_of_one_path():
    one, two = (kp.FeedForward(4, name="same") for _ in range(2))
    one.build((None, None, 4))
    two.build((None, None, 4))
    x = keras.Input((None, 4))
    inner = keras.Model(x, two(x), name="other")
    model = keras.Model(x, inner(one(x)))
    with pytest.raises(ValueError, match="same/intermediate/kernel"):
        kp.distribution.layout_map(model, mesh(2))


# ---- Files


def small():
    layers = [keras.Input((3,)), keras.layers.Dense(2)]
    return keras.Sequential(layers)


def test_saves_all_or_nothing(tmp_path, monkeypatch):
    model, path = small(), tmp_path / "model.keras"
    assert kp.distribution.save_gathered(model, str(path)) == path
    loaded = keras.saving.load_model(path)
    x = np.ones((1, 3), "float32")
    np.testing.assert_array_equal(
        *(ops.convert_to_numpy(each(x)) for each in (model, loaded))
    )
    before = path.read_bytes()

    def fails(path):
        Path(path).write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(model, "save", fails)
    with pytest.raises(kp.ExportError, match="the disk is full"):
        kp.distribution.save_gathered(model, path)
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == before


def test_saves_keras_files_alone(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.keras.*model\.h5"):
        kp.distribution.save_gathered(small(), tmp_path / "model.h5")


def test_a_file_where_checkpoints_should_be_is_named(tmp_path):
    """Orbax would wait there without an end."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    file = tmp_path / "run"
    file.touch()
    for folder in (file, file / "checkpoints"):
        with pytest.raises(
            ValueError, match=r"must be a folder.*run' is a file"
        ):
            kp.distribution.restore_checkpoint(model, folder)
