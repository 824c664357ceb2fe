"""Faults of the peers, measured live, beside the same input given to us.

Each test first holds the peer to its fault: where a new release has mended it,
the test fails and says so, since the README then claims too much.
"""

import contextlib
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_posenc as kp

keras_hub = pytest.importorskip("keras_hub")

pytestmark = pytest.mark.tensorflow


def still(is_there, peer="keras-hub"):
    """The peer has its fault still."""
    assert is_there, f"{peer} has mended this: update the README"


@contextlib.contextmanager
def still_raises(error, peer="keras-hub"):
    """Likewise, where the fault is an error."""
    try:
        yield
    except error:
        return
    still(False, peer)


def sinusoids(positions, dim):
    """The paper's encoding in float64."""
    columns = np.arange(dim)
    rates = 10000.0 ** (-2 * (columns // 2) / dim)
    angles = np.asarray(positions, "float64")[..., np.newaxis] * rates
    return np.where(columns % 2, np.cos(angles), np.sin(angles))


def as_float64(x):
    x = keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))
    return x.astype("float64")


def runtime(path):
    """The plain LiteRT runtime."""
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(str(path))


def keras_export(model, path, export_format):
    """Keras's own export."""
    try:
        model.export(str(path), format=export_format, verbose=False)
    except ValueError as error:
        if "Unrecognized format" not in str(error):
            raise
        pytest.skip(f"Keras {keras.__version__} has no {export_format} export")


class TestSinePositionEncoding:
    @pytest.mark.parametrize(
        ("policy", "length", "fault", "readme"),
        [
            ("mixed_bfloat16", 50, 0.15, 0.004),
            ("mixed_bfloat16", 5000, 1.99, 0.004),
            ("mixed_float16", 5000, 1.99, 0.0005),
            ("float32", 5000, 3.5e-4, 2.5e-7),
            pytest.param(
                *("float32", 20000, 1.4e-3, 3.9e-7), marks=pytest.mark.slow
            ),
        ],
    )
    def test_precision(self, encoding_bound, policy, length, fault, readme):
        inputs = np.zeros((1, length, 512), "float32")
        positions = np.arange(length)
        wanted = sinusoids(positions, 512)
        peer = keras_hub.layers.SinePositionEncoding(dtype=policy)(inputs)
        still(np.abs(as_float64(peer)[0] - wanted).max() > fault)

        ours = kp.PositionalEncoding(dtype=policy)(inputs)
        dtype = policy.removeprefix("mixed_")
        error = np.abs(as_float64(ours)[0] - wanted)
        assert np.all(error <= encoding_bound(positions, wanted, dtype))
        assert error.max() < readme

    def test_in_sequential(self):
        def difference(layer):
            """Between the answers to two texts."""
            embedding = keras.layers.Embedding(50, 16)
            model = keras.Sequential([embedding, layer])
            one, other = (
                model.predict(np.array([ids]), verbose=0)
                for ids in ([1, 2, 3, 4], [9, 8, 7, 6])
            )
            return np.abs(one - other).max()

        still(difference(keras_hub.layers.SinePositionEncoding()) == 0)
        assert difference(kp.PositionalEncoding()) > 0.01

    @pytest.mark.slow
    def test_litert_of_dynamic_length(self, encoding_bound, tmp_path):
        def answer(outputs, length):
            """That of Keras's own export, from zeros."""
            path = tmp_path / "model.tflite"
            keras_export(keras.Model(inputs, outputs), path, "litert")
            interpreter = runtime(path)
            (given,) = interpreter.get_input_details()
            (taken,) = interpreter.get_output_details()
            interpreter.resize_tensor_input(given["index"], (1, length, 8))
            interpreter.allocate_tensors()
            zeros = np.zeros((1, length, 8), "float32")
            interpreter.set_tensor(given["index"], zeros)
            interpreter.invoke()
            return interpreter.get_tensor(taken["index"])[0]

        inputs = keras.Input((None, 8), name="x")
        peer = inputs + keras_hub.layers.SinePositionEncoding()(inputs)
        assert answer(peer, 1).shape == (1, 8)
        with still_raises(RuntimeError):
            answer(peer, 6)
        # Nor would we have published it.
        with pytest.raises(kp.ExportVerificationError):
            kp.export_litert(
                keras.Model(inputs, peer),
                tmp_path / "peer.tflite",
                max_length=6,
                verbose=False,
            )

        ours = kp.PositionalEncoding()(inputs)
        for length in (1, 6, 300):
            wanted = sinusoids(np.arange(length), 8)
            error = np.abs(answer(ours, length) - wanted)
            assert np.all(error <= encoding_bound(np.arange(length), wanted))

    def test_a_start_for_each_row(self, near, encoding_bound):
        peer = keras_hub.layers.SinePositionEncoding()
        ours = kp.PositionalEncoding()
        starts = np.array([0, 100], "int32")
        with still_raises(tf.errors.InvalidArgumentError):
            peer(np.zeros((2, 5, 8), "float32"), start_index=starts)
        # A batch as long as its rows: taken, and laid along the wrong axis.
        inputs = np.zeros((2, 2, 8), "float32")
        two = sinusoids(starts[:, np.newaxis] + np.arange(2), 8)
        answer = as_float64(peer(inputs, start_index=starts))
        still(np.abs(answer - two).max() > 1)

        for length in (5, 2):
            positions = starts[:, np.newaxis] + np.arange(length)
            wanted = sinusoids(positions, 8)
            inputs = np.zeros((2, length, 8), "float32")
            bound = encoding_bound(positions, wanted)
            near(ours(inputs, start_index=starts), wanted, bound)

    @pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
    def test_real_positions(self, near, encoding_bound, policy):
        peer = keras_hub.layers.SinePositionEncoding(dtype=policy)
        if "positions" not in inspect.signature(peer.call).parameters:
            pytest.skip("this keras-hub takes no positions at all")
        inputs = np.zeros((1, 4, 64), "float32")
        positions = np.array([1000.5, 1001.0, 1002.0, 1003.0], "float32")
        wanted = sinusoids(positions, 64)[np.newaxis]
        answer = as_float64(peer(inputs, positions=positions))
        still(np.abs(answer - wanted).max() > 0.2)

        dtype = policy.removeprefix("mixed_")
        bound = encoding_bound(positions[np.newaxis], wanted, dtype)
        ours = kp.PositionalEncoding(dtype=policy)
        near(ours(inputs, positions=positions), wanted, bound)


@pytest.mark.filterwarnings("ignore:.*does not support masking:UserWarning")
@pytest.mark.parametrize(
    "name",
    [
        "SinePositionEncoding",
        pytest.param("PositionEmbedding", marks=pytest.mark.slow),
    ],
)
def test_mask_behind_the_encoding(name):
    ids = keras.Input((8,), dtype="int32")
    embedding = keras.layers.Embedding(50, 16, mask_zero=True)
    encoder = keras_hub.layers.TransformerEncoder(32, 4)
    tokens = embedding(ids)
    mask = embedding.compute_mask(ids)
    batch = np.array([[5, 6, 7, 8, 0, 0, 0, 0]])

    def change(encoded):
        """Of the real tokens, if the encoder is told of the padding."""
        untold, told = (
            keras.Model(ids, outputs).predict(batch, verbose=0)
            for outputs in (
                encoder(encoded),
                encoder(encoded, padding_mask=mask),
            )
        )
        return np.abs(untold - told)[:, :4].max()

    # As its documentation says to use it. The layer gives no mask, and so the
    # sum has none.
    options = {"sequence_length": 8} if name == "PositionEmbedding" else {}
    peer = getattr(keras_hub.layers, name)(**options)
    still(change(tokens + peer(tokens)) > 0.1)
    assert change(kp.PositionalEncoding()(tokens)) == 0


class TestTransformerEncoder:
    INPUTS = np.ones((1, 4, 8), "float32")

    def test_heads_that_do_not_divide_the_width(self):
        peer = keras_hub.layers.TransformerEncoder(16, 3)
        try:
            assert peer(self.INPUTS).shape == (1, 4, 8)
        except ValueError:
            still(False)
        with pytest.raises(ValueError, match=r"heads") as error:
            kp.TransformerEncoder(1, num_heads=3, intermediate_dim=16)(
                self.INPUTS
            )
        assert {"8", "3"} <= set(
            "".join(c if c.isdigit() else " " for c in str(error.value)).split()
        )

    def test_attention_mask_of_rank_2(self):
        mask = np.ones((4, 4), bool)
        peer = keras_hub.layers.TransformerEncoder(16, 2)
        with still_raises(AttributeError):
            peer(self.INPUTS, attention_mask=mask)
        expected = r"`attention_mask` .*\(batch, query, key\).*\(4, 4\)"
        with pytest.raises(ValueError, match=expected):
            kp.TransformerEncoder(1, num_heads=2, intermediate_dim=16)(
                self.INPUTS, attention_mask=mask
            )


class TestExports:
    def test_saved_model_weights(self, tmp_path):
        model = keras.Sequential(
            [keras.Input((64,), name="x"), keras.layers.Dense(2048, name="y")]
        )
        weights = sum(weight.numpy().nbytes for weight in model.weights)

        def stored(folder):
            files = folder.rglob("variables.data*")
            return sum(file.stat().st_size for file in files) / weights

        model.export(tmp_path / "keras", format="tf_saved_model", verbose=False)
        still(stored(tmp_path / "keras") > 1.99, "Keras")
        artifact = kp.export_saved_model(
            model, tmp_path / "ours", verify=False, verbose=False
        )
        assert 1 <= stored(artifact.path) < 1.01

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
    def test_litert_of_mixed_precision(self, tmp_path, policy):
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(50, 16, mask_zero=True, dtype=policy)(ids)
        attention = keras.layers.MultiHeadAttention(
            2, 8, dtype=policy, name="attended"
        )
        model = keras.Model(ids, attention(x, x))

        keras_export(model, tmp_path / "keras.tflite", "litert")
        foreign = kp.inspect_export(tmp_path / "keras.tflite").foreign_operators
        still(any(name.startswith("Flex") for name in foreign), "Keras")
        with still_raises((RuntimeError, ValueError), "Keras"):
            runtime(tmp_path / "keras.tflite").allocate_tensors()

        artifact = kp.export_litert(
            model, tmp_path / "ours.tflite", verify=False, verbose=False
        )
        assert kp.inspect_export(artifact.path).foreign_operators == []
        batch = np.array([[5, 6, 7, 0]], "int32")
        runner = runtime(artifact.path).get_signature_runner()
        # What the model answers without the roundings of low precision.
        config = model.get_config()
        for layer in config["layers"]:
            layer["config"]["dtype"] = {"ids": "int32"}.get(
                layer["name"], "float32"
            )
        exact = keras.Model.from_config(config)
        exact.set_weights(model.get_weights())
        wanted = exact.predict(batch, verbose=0)
        answer = runner(ids=batch)["attended"]
        np.testing.assert_allclose(answer, wanted, rtol=0, atol=1e-6)
