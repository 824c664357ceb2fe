"""Faults of the peers, measured live, beside the same input given to us.

Each test first holds the peer to its fault: where a new release has mended it,
the test fails and says so, since the README then claims too much.
"""

import contextlib

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
def still_raises(error):
    """Likewise, where the fault is an error."""
    try:
        yield
    except error:
        return
    still(False)


def sinusoids(positions, dim):
    """The paper's encoding in float64."""
    columns = np.arange(dim)
    rates = 10000.0 ** (-2 * (columns // 2) / dim)
    angles = np.asarray(positions, "float64")[..., np.newaxis] * rates
    return np.where(columns % 2, np.cos(angles), np.sin(angles))


def as_float64(x):
    x = keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))
    return x.astype("float64")


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
    def test_litert_of_dynamic_length(self, tmp_path):
        """What Keras's own export would let through is not published."""
        inputs = keras.Input((None, 8), name="x")
        peer = inputs + keras_hub.layers.SinePositionEncoding()(inputs)
        with pytest.raises(kp.ExportVerificationError):
            kp.export_litert(
                keras.Model(inputs, peer),
                tmp_path / "peer.tflite",
                max_length=6,
                verbose=False,
            )

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
