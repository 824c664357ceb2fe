"""Models as SavedModel version folders."""

import hashlib
import os
import subprocess
import sys
import tempfile
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.versions import versions
from tests.export import kinds
from tests.export.files import run_file

pytestmark = pytest.mark.tensorflow


def export(model, base, **options):
    """A SavedModel that nobody has verified."""
    return kp.export_saved_model(
        model, base, verify=False, verbose=False, **options
    ).path


def stored_shapes(path):
    """Shapes of all variables in a SavedModel."""
    variables = tf.train.list_variables(str(path / "variables" / "variables"))
    return [shape for _, shape in variables if shape]


def hashes(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


# ---- The folder


def test_version_folder(saved_model, contents):
    assert saved_model.path.name == "1"
    assert contents(saved_model.path.parent)[0] == "1"
    assert set(contents(saved_model.path)) >= {
        "saved_model.pb",
        "variables",
        "variables/variables.data-00000-of-00001",
        "variables/variables.index",
    }
    # Nothing but the version: what it was staged as is gone.
    assert {p.name for p in saved_model.path.parent.iterdir()} == {"1"}


def test_each_weight_is_stored_once(tmp_path, make):
    inputs = make.ids()
    vectors = layers.Embedding(3000, 64, name="vectors")(inputs)
    scores = layers.Dense(64, name="scores")(vectors)
    model = keras.Model(inputs, scores)
    model.compile("adam", "mse")
    model.fit(np.ones((2, 3)), np.ones((2, 3, 64)), verbose=0)
    path = export(
        model,
        tmp_path,
        signatures={
            "serving_default": model,
            "short": (model, {"ids": (1, 8)}),
            "vectors": keras.Model(inputs, vectors),
        },
    )
    size = 4 * model.count_params()
    stored = kp.inspect_export(path).weight_bytes
    assert size <= stored <= 1.1 * size
    # Nothing that only training needs, such as Adam's moments.
    assert sorted(stored_shapes(path)) == [[64], [64, 64], [3000, 64]]


class Around(layers.Layer):
    """A layer in a layer: the mask goes in and out on the tensors alone."""

    def __init__(self, inner, **options):
        super().__init__(**options)
        self.inner = inner
        self.supports_masking = not isinstance(inner, layers.Embedding)

    def call(self, x):
        return self.inner(x)


def test_layers_of_several_signatures_keep_their_masks(tmp_path, make):
    inputs = make.ids()
    vectors = Around(layers.Embedding(50, 4, mask_zero=True))(inputs)
    mean = Around(kp.Pooling1D("mean"))(vectors)
    model = keras.Model(inputs, layers.Dense(3, name="scores")(mean))
    path = export(model, tmp_path)
    padded = {"ids": [[3, 1, 9, 9], [7, 7, 7, 7]], "lengths": [2, 1]}
    expected = model(np.array([[3, 1], [7, 0]]))
    answer = run_file(path, padded, "from_ids")["scores"]
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6)


# ---- Versions


def test_versions_count_up_and_are_never_touched(tmp_path, make):
    model = make.embedder()
    assert export(model, tmp_path).name == "1"
    first = hashes(tmp_path / "1")
    assert export(model, tmp_path, version=12).name == "12"
    assert export(model, str(tmp_path)).name == "13"
    assert export(model, tmp_path, version=3).name == "3"
    for version in (1, 12):
        with pytest.raises(FileExistsError, match=r"is never changed\. Leave"):
            export(model, tmp_path, version=version)
    assert hashes(tmp_path / "1") == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "12", "13", "3"]


@pytest.mark.parametrize("version", [0, True, "1", 1.5])
def test_version_that_is_none(tmp_path, make, contents, version):
    message = (
        r"`version` must be an integer from 1 to 2\*\*63 - 1, or None\. Re"
    )
    with pytest.raises(ValueError, match=message):
        export(make.embedder(), tmp_path / "base", version=version)
    assert contents(tmp_path) == []


# ---- A full disk


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_full_disk(tmp_path, make, monkeypatch):
    """At any step: however many bytes fit, there is a whole version or none."""
    import resource

    scratch, base, written = tmp_path / "scratch", tmp_path / "base", 0
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    model, limit = make.embedder(), resource.RLIMIT_FSIZE
    before = resource.getrlimit(limit)
    for size in (10**7, 50_000, 10_000, 5000, 2000, 500, 100, 0):
        resource.setrlimit(limit, (size, before[1]))
        try:
            export(model, base, batching=True)
            written += 1
        except kp.ExportError as error:
            found = str(error)
            assert found.startswith("Cannot w"), found
            assert "File too large" in found
        finally:
            resource.setrlimit(limit, before)
    assert 0 < written < 6
    assert versions(base) == list(range(1, written + 1))
    assert len(list(base.iterdir())) == written
    for number in versions(base):
        assert run_file(base / str(number), {"ids": [[1, 2]]})
        text = (base / str(number) / "MODEL_CARD.md").read_text()
        assert text.endswith("by output name.\n")
    assert not [*scratch.glob("[!_]*")]  # but what TensorFlow generates


# ---- Models of any kind: each is a signature of one artifact


def recurrent(make):
    inputs = keras.Input((None, 4), name="frames")
    return keras.Model(inputs, layers.GRU(3)(layers.Masking()(inputs)))


def of_texts(tokens, shape=()):
    inputs = keras.Input(shape, dtype="string", name="text")
    vectors = layers.Embedding(10, 4, mask_zero=True)(tokens(inputs))
    return keras.Model(inputs, vectors)


def vectorization(make):
    tokens = layers.TextVectorization(output_sequence_length=4)
    tokens.adapt(tf.constant(["one two", "two three four"]))
    return of_texts(tokens, (1,))


def wordpiece(make):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    return of_texts(kp.WordpieceTokenizer([*special, "one", "two"]))


def lookup(make):
    words = keras.Input((None,), dtype="string", name="words")
    table = layers.StringLookup(vocabulary=["one", "two"], mask_token="")
    return keras.Model(words, layers.Embedding(10, 4)(table(words)))


def lookup_back(make):
    inputs = make.ids()
    vectors = layers.Embedding(3, 4)(inputs)
    best = ops.argmax(vectors, axis=-1)
    labels = layers.StringLookup(vocabulary=["one", "zwei"], invert=True)
    return keras.Model(inputs, {"labels": labels(best)})


def pooled(make, policy):
    inputs = make.ids()
    x = layers.Embedding(50, 4, mask_zero=True, dtype=policy)(inputs)
    x = kp.Pooling1D("mean", dtype=policy)(x)
    scores = layers.Dense(3, dtype=policy, name="scores")(x)
    return keras.Model(inputs, scores)


def quantized(make):
    model = make.classifier()
    with warnings.catch_warnings():  # Keras's, of layers without kernels
        warnings.simplefilter("ignore")
        model.quantize("int8")
    return model


KINDS = ("attention", "dicts", "subclass", "static", "integers", "images")
MODELS = {
    **{name: kinds.MODELS[name] for name in KINDS},
    "recurrent": recurrent,
    "vectorization": vectorization,
    "lookup": lookup,
    "lookup_back": lookup_back,
    "wordpiece": wordpiece,
    "quantized": quantized,
    "mixed_float16": lambda make: pooled(make, "mixed_float16"),
    "bfloat16": lambda make: pooled(make, "bfloat16"),
    "float64": lambda make: pooled(make, "float64"),
}


def test_models_of_any_kind(make, tmp_path):
    """Some need operators that the plain runtime lacks."""
    signatures = {name: build(make) for name, build in MODELS.items()}
    model = signatures["attention"]
    export(model, tmp_path, signatures=signatures)
    report = kp.verify_export(
        tmp_path, model, signatures=signatures, max_length=5
    )
    assert report.passed
    assert {case.signature for case in report.cases} == {*signatures}
    assert report.foreign_operators == [
        "FastBertNormalize",
        "FastWordpieceTokenizeWithOffsets",
    ]
    assert "needs operators that the plain runtime lacks: Fast" in str(report)
    found = kp.inspect_export(report.path).signatures
    assert set(found["dicts"]["inputs"]) == {"lengths", "words"}
    assert set(found["dicts"]["outputs"]) == {"sum", "mask"}
    assert str(found["subclass"]["outputs"]["real"]) == "bool (None, None)"
    assert str(found["static"]["inputs"]["ids"]) == "int64 (2, 5)"
    assert str(found["mixed_float16"]["outputs"]["scores"]) == (
        "float16 (None, 3)"
    )
    assert str(found["images"]["inputs"]["image"]) == (
        "float32 (None, None, None, 3)"
    )


# ---- Precision

MIXED = """
import sys, keras, keras_posenc as kp
from keras import layers
keras.utils.set_random_seed(1)
keras.config.set_dtype_policy("mixed_float16")
ids = keras.Input((None,), dtype="int32", name="ids")
x = layers.Embedding(1000, 128)(ids)
for _ in range(4):
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
x = layers.Dense(3)(layers.GlobalAveragePooling1D()(x))
kp.export_saved_model(keras.Model(ids, x), sys.argv[1])
"""


@pytest.mark.slow
def test_float16_is_added_up_in_the_order_of_the_model(tmp_path):
    """... which is another one for another number of threads."""
    variables = {**os.environ, "TF_NUM_INTRAOP_THREADS": "2"}
    command = [sys.executable, "-c", MIXED, tmp_path / "base"]
    subprocess.run(command, env=variables, check=True)


# ---- Strings


def test_vocabulary_file_goes_along(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("one\ntwo\n")
    words = keras.Input((None,), dtype="string", name="words")
    lookup = layers.StringLookup(vocabulary=str(file))
    model = keras.Model(words, layers.Embedding(4, 4, name="v")(lookup(words)))
    path = export(model, tmp_path / "base")
    reads = "InitializeTableFromTextFileV2"  # of a stranger's choice
    with pytest.raises(kp.ExportVerificationError, match=reads):
        kp.verify_export(path, model, verbose=False)
    assert kp.verify_export(
        path, model, allow_operators=[reads], verbose=False
    ).passed
    expected = model(tf.constant([["two", "no"]])).numpy()
    moved = path.rename(tmp_path / "moved")
    file.unlink()
    assert (moved / "assets" / "words.txt").read_text() == "one\ntwo\n"
    actual = run_file(moved, {"words": [["two", "no"]]})["v"]
    np.testing.assert_array_equal(actual, expected)


def test_no_tokens_are_as_good_as_padding(saved_model):
    expected, actual = (
        run_file(saved_model.path, {"ids": np.zeros((2, size), "int32")})
        for size in (3, 0)
    )
    np.testing.assert_array_equal(actual["scores"], expected["scores"])
