"""Models and artifacts that the tests of the exports share."""

import itertools
import types

import keras
import pytest
from keras import layers

import keras_posenc as kp

VOCABULARY = 50
MAX_LENGTH = 9


def ids(name="ids"):
    """An input of token ids, of any batch and any length."""
    return keras.Input((None,), dtype="int32", name=name)


def classifier(policy=None):
    """Ids to the probabilities of three classes; id 0 is padding."""
    return keras.Sequential(
        [
            ids(),
            layers.Embedding(VOCABULARY, 8, mask_zero=True, dtype=policy),
            kp.PositionalEncoding(dropout=0.1, dtype=policy),
            kp.TransformerEncoder(
                1, num_heads=2, intermediate_dim=16, dtype=policy
            ),
            kp.Pooling1D("mean", dtype=policy),
            layers.Dense(3, activation="softmax", name="scores", dtype=policy),
        ]
    )


def embedder(name="vectors"):
    """The smallest model of ids; nothing is masked."""
    return keras.Sequential(
        [ids(), layers.Embedding(VOCABULARY, 4, name=name)],
        name="embedder",
    )


def restless(name="restless"):
    """A model that no exported file can equal: each graph is another one."""
    traces = itertools.count()

    def add(x):
        return x + float(next(traces))

    inputs = ids()
    vectors = layers.Embedding(VOCABULARY, 4)(inputs)
    return keras.Model(inputs, layers.Lambda(add, name=name)(vectors))


def contents(folder):
    """Every path below a folder."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*")
    )


@pytest.fixture(scope="session")
def make():
    """Makers of models, for test files cannot import one another."""
    return types.SimpleNamespace(
        ids=ids,
        classifier=classifier,
        embedder=embedder,
        restless=restless,
    )


@pytest.fixture(scope="session", name="contents")
def contents_fixture():
    return contents


@pytest.fixture(scope="session")
def model():
    keras.utils.set_random_seed(0)
    return classifier()


def two(model):
    signatures = {"serving_default": model, "short": (model, {"ids": (1, 4)})}
    return {"signatures": signatures, **SHORT}


SHORT = {"max_length": MAX_LENGTH, "verbose": False}


@pytest.fixture(scope="session")
def saved_model(model, tmp_path_factory):
    """The verified SavedModel of `model`, with a static signature beside."""
    path = tmp_path_factory.mktemp("export") / "not" / "yet" / "there"
    return kp.export_saved_model(model, path, **two(model))


@pytest.fixture(scope="session")
def litert(model, tmp_path_factory):
    """The verified LiteRT file of `model`, likewise."""
    path = tmp_path_factory.mktemp("export") / "not" / "there" / "model.tflite"
    return kp.export_litert(model, path, **two(model))


@pytest.fixture(scope="session")
def onnx(model, tmp_path_factory):
    """The verified ONNX file of `model`, which has one signature."""
    path = tmp_path_factory.mktemp("export") / "there" / "model.onnx"
    return kp.export_onnx(model, path, **SHORT)


WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
LABELS = ["yes", "no", "vielleicht, später"]


@pytest.fixture(scope="session")
def text_model():
    """Strings to the probabilities of three classes."""
    keras.utils.set_random_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            kp.WordpieceTokenizer(vocabulary),
            layers.Embedding(len(vocabulary), 8, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(
                1, num_heads=2, intermediate_dim=16, name="encoder"
            ),
            kp.Pooling1D("mean", name="pooling"),
            layers.Dense(3, activation="softmax", name="scores"),
        ]
    )
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([10 * kernel, bias])  # else hardly a choice
    return model


@pytest.fixture(scope="session")
def served(text_model, tmp_path_factory):
    """A version of `text_model` with everything that a server reads."""
    return kp.export_saved_model(
        text_model,
        tmp_path_factory.mktemp("served") / "judge",
        labels=LABELS,
        warmup=[{"text": ["one two", "x"]}, {"ids": [[2, 5, 3]]}],
        batching=True,
        max_length=MAX_LENGTH,
        verbose=False,
    )
