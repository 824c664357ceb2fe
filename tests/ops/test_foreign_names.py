"""Names of other libraries: what is said of them is right when followed."""

import _thread
import inspect
import pickle
import re
import sys
import threading

import keras
import pytest

import keras_posenc as kp
from keras_posenc import training
from keras_posenc.ops.foreign_names import ARGUMENTS, NAMES
from keras_posenc.ops.named import NamedOptions

CLASSES = {
    name: value
    for module in (kp, training)
    for name in module.__all__
    if isinstance(value := getattr(module, name), type)
    and issubclass(value, NamedOptions)
}
SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]


# What a class cannot be made without.
NEEDED = {
    "CharacterTokenizer": {"vocabulary": "ab"},
    "CrossAttention": {"num_heads": 2},
    "FeedForward": {"intermediate_dim": 6},
    "FourierEmbedding": {"training_length": 64},
    "MatryoshkaLoss": {"loss": training.ContrastiveLoss(), "dims": [4]},
    "NoamSchedule": {"d_model": 8},
    "CombinedPosition": {"attention_positions": ["rotary", "alibi"]},
    "PatchEmbedding": {"patch_size": 2, "d_model": 8},
    "PositionEmbedding": {"sequence_length": 5},
    "RandomizedPositions": {"max_position": 9},
    "RelativePositionEmbedding": {"max_distance": 3},
    "RetrievalEvaluator": {
        "encoder": len,
        "queries": ["a"],
        "documents": ["b"],
        "relevant": [{0}],
        "at": [1],
    },
    "SelfAttention": {"num_heads": 2},
    "Transformer": {"vocabulary_size": 9, **SMALL},
    "Prompt": {"prompt": "query: "},
    "TransformerDecoder": {"num_layers": 1},
    "TransformerDecoderModel": {"vocabulary_size": 9, **SMALL},
    "TransformerEncoder": {"num_layers": 1},
    "TransformerEncoderModel": {"vocabulary_size": 9, **SMALL},
    "Truncation": {"dim": 2},
    "VisionTransformerModel": {"image_size": 4, "patch_size": 2, **SMALL},
    "WordpieceTokenizer": {"vocabulary": WORDS},
}
# Sensible values of what is suggested, where the class's default is none.
VALUES = {
    "max_length": 7,
    "sequence_length": 7,
    "max_position": 7,
    "scaling": {"rope_type": "linear", "factor": 2.0},
    "num_key_value_heads": 2,
    "head_dim": 4,
    "query_key_value_bias": True,
    "target_vocabulary_size": 9,
    "memory_dim": 8,
    "d_model": 8,
}


# Files of pieces are made in tests of their own.
NOT_MADE = {"BytePairTokenizer", "SentencepieceTokenizer"}
OF_KERAS = {"activity_regularizer", "autocast", "dtype", "name", "trainable"}


def needed(kind):
    if kind in (kp.Generator, kp.PretrainedGenerator):
        model = kp.TransformerDecoderModel(9, **SMALL)
        return {"model": model, "start_id": 2, "end_ids": 3}
    if kind is kp.ConcatenatedPooling1D:
        return {"poolings": [kp.MaskedMaxPooling1D()]}
    return NEEDED.get(kind.__name__, {})


def parameters_of(kind):
    found = dict(inspect.signature(kind).parameters)
    if kind is kp.PretrainedGenerator:  # it hands on the others
        found = {**inspect.signature(kp.Generator).parameters, **found}
    return found


def with_argument(kind, base, name):
    """Options with one more, of a value that suits its name."""
    parameters = parameters_of(kind)
    value = {"trainable": True}.get(name)
    if name in parameters:
        value = parameters[name].default
    value = VALUES.get(name, base.get(name, value))
    return {**base, name: value}


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_advice_on_an_argument_is_right_when_followed(kind):
    """... and the arguments that are listed are those that the class takes."""
    base = needed(kind)
    taken = {*parameters_of(kind)} - {"kwargs", "options"}

    def make(options):
        if kind.__name__ not in NOT_MADE:
            kind(**options)

    make(base)
    followed = set()
    for foreign in {*ARGUMENTS, "no_such_thing"} - taken:
        with pytest.raises(ValueError, match="has no argument") as caught:
            kind(**base, **{foreign: 8})
        message = str(caught.value)
        start = f"{kind.__name__} has no argument `{foreign}`"
        assert message.startswith(start)
        advice, _, listed = message.partition(" It has: ")
        listed = listed.split(", ")
        question = advice.partition("Did you mean")[2]
        followed |= {*re.findall(r"`(\w+)`", question)}
    # Those of a base that a class leaves to it, too.
    assert {*listed} - taken <= OF_KERAS | {"layers", "num_separators"}
    assert followed <= {*listed}
    # That each of its own is taken is in `test_conventions.py`.
    for name in followed | {*listed} - taken:
        make(with_argument(kind, base, name))


def advice_on(kind, name):
    with pytest.raises(ValueError, match="has no argument") as caught:
        kind(**{name: 8})
    return str(caught.value).partition(name)[2].partition(" It has: ")[0]


NO_LENGTH = "` (no maximum length is needed: leave it out)."
OF_INPUTS = "` (the width is taken from the inputs: leave it out)."
DROPOUT = "`. Did you mean `dropout`?"


@pytest.mark.parametrize(
    ("kind", "names", "advice"),
    [
        (kp.PositionalEncoding, "max_len max_length maxlen", NO_LENGTH),
        (kp.TransformerEncoder, "max_len max_seq_len", NO_LENGTH),
        (kp.PositionalEncoding, "d_model dim embed_dim", OF_INPUTS),
        (
            kp.TransformerEncoderBlock,
            "embed_dim d_model hidden_size",
            OF_INPUTS,
        ),
        (
            kp.TransformerEncoderBlock,
            "ff_dim dff hidden_dim intermediate_size dim_feedforward",
            "`. Did you mean `intermediate_dim`?",
        ),
        (
            kp.TransformerEncoderModel,
            "hidden_dim",
            "`. Did you mean `d_model` or `intermediate_dim`?",
        ),
        (
            kp.TransformerEncoderBlock,
            "rate dropout_rate",
            "`. Did you mean `dropout`?",
        ),
        (
            kp.TransformerDecoder,
            "n_heads nhead heads num_head",
            "`. Did you mean `num_heads`?",
        ),
        (kp.PositionEmbedding, "max_len", "`. Did you mean `sequence_length`?"),
        (
            kp.RotaryEmbedding,
            "factor rope_type scaling_factor rope_scaling",
            "`. Did you mean `scaling`?",
        ),
        (kp.PositionalEncoding, "layot", "`. Did you mean `layout`?"),
        (
            kp.TransformerEncoder,
            "causal across within has_attention_norm block sliding_window",
            "`.",
        ),
        (
            kp.SelfAttention,
            "use_causal_mask",
            "` (the call takes it: layer(x, use_causal_mask=...)).",
        ),
        (kp.FeedForward, "context max_wave dim_head_out", "`."),
        # It cannot do without a longest distance.
        (kp.RelativePositionEmbedding, "max_len seq_len", "`."),
        (kp.RelativePositionBias, "max_len", NO_LENGTH),
    ],
)
def test_advice(kind, names, advice):
    for name in names.split():
        assert advice_on(kind, name) == advice


def test_every_class_says_what_it_has():
    bases = keras.Layer, keras.Loss, keras.Metric
    for module in (kp, training):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, bases):
                assert issubclass(value, NamedOptions), value


class Mine(kp.AttentionPosition):
    def __init__(self, **options):
        self.max_len = options.pop("max_len")
        super().__init__(**options)


def test_a_subclass_takes_what_it_says():
    assert Mine(max_len=3, name="mine").max_len == 3
    with pytest.raises(ValueError, match="sharpness"):
        Mine(max_len=3, sharpness=2)


class HandsOn(kp.PositionalEncoding):
    def __init__(self, alpha=1, **options):
        self.beta = options.pop("beta", None)
        super().__init__(**options)


class InOtherPackage(Mine):
    def __init__(self, **options):
        super().__init__(max_len=options.pop("max_len") + 1, **options)


# Only its dot tells it from a module of the package.
InOtherPackage.__module__ = "keras_posenc_extra"


def test_advice_on_what_a_subclass_hands_on():
    layer = HandsOn(alpha=2, beta=3, name="mine", dtype="float16")
    assert (layer.beta, layer.name) == (3, "mine")
    for name, advice in (("max_len", NO_LENGTH), ("rate", DROPOUT)):
        with pytest.raises(ValueError, match=r"has: .+ alpha, ") as e:
            HandsOn(beta=3, **{name: 5})
        start = f"HandsOn has no argument `{name}{advice}"
        assert str(e.value).startswith(start)
    with pytest.raises(ValueError, match="'nothing'"):
        HandsOn(dtype="nothing")
    assert InOtherPackage(max_len=3).max_len == 4


@pytest.mark.parametrize(
    ("kind", "given", "taken", "advice"),
    [
        (kp.PositionalEncoding, (512,), "none", ": PositionalEncoding()."),
        (kp.RotaryEmbedding, (32,), "none", ": RotaryEmbedding()."),
        (kp.L2Normalization, (1,), "none", ""),
        (kp.TransformerEncoder, (1, 4, 64), "`num_layers`", ""),
        (kp.PositionEmbedding, (5, 8), "`sequence_length`", ""),
    ],
)
def test_options_without_names(kind, given, taken, advice):
    with pytest.raises(TypeError, match="without a name") as error:
        kind(*given)
    message, _, listed = str(error.value).partition("Give others by name: ")
    assert message.startswith(
        f"{kind.__name__} takes these arguments without a name: {taken}. "
        f"Received: {len(given)}. "
    )
    assert message.rstrip().endswith(advice or f"{len(given)}.")
    assert ("no maximum length is needed" in message) == bool(advice)
    for name in listed.split(", "):
        kind(**with_argument(kind, needed(kind), name))


# ---- Names of the package


def test_names_of_others():
    known = {*kp.__all__, *(f"training.{name}" for name in training.__all__)}
    for name, ours in NAMES.items():
        assert name not in known
        assert {*ours} <= known
        with pytest.raises(AttributeError, match="Did you mean") as caught:
            # Not `getattr`, which finds subpackages that others have imported.
            vars(kp)["__getattr__"](name)
        assert re.findall("`(.+?)`", str(caught.value)) == ours


@pytest.mark.parametrize(
    ("module", "name", "ours"),
    [
        ("keras_posenc", "export_tflite", "export_litert"),
        ("keras_posenc", "load_huggingface", "load_hugging_face"),
        ("keras_posenc", "SinePositionEncoding", "PositionalEncoding"),
        ("keras_posenc", "TransformerEncoderLayer", "TransformerEncoderBlock"),
        ("keras_posenc", "WordPieceTokenizer", "WordpieceTokenizer"),
        ("keras_posenc", "NoamSchedule", "training.NoamSchedule"),
        ("keras_posenc.training", "NoamShedule", "NoamSchedule"),
    ],
)
def test_import_of_a_name_of_others(module, name, ours):
    message = f"cannot import name '{name}' from '{module}'. Did you mean "
    with pytest.raises(ImportError, match=re.escape(f"{message}`{ours}`?")):
        exec(f"from {module} import {name}")


def test_a_thread_that_begins_with_a_name(monkeypatch):
    unraisable, done = [], threading.Event()

    def take(unraised):
        unraisable.append(unraised.exc_type)
        done.set()

    monkeypatch.setattr(sys, "unraisablehook", take)
    _thread.start_new_thread(getattr, (kp, "no_such_name"))
    assert done.wait(10)
    assert unraisable == [AttributeError]


def test_names_that_are_there_and_that_are_nowhere():
    for module in (kp, training):
        assert not hasattr(module, "__wrapped__")
        with pytest.raises(AttributeError) as caught:
            vars(module)["__getattr__"]("quite_another_thing")
        assert "mean" not in str(caught.value)
        assert {*module.__all__} <= {*dir(module)}
    assert pickle.loads(pickle.dumps(kp.inspect)) is kp.inspect
