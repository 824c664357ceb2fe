"""A signature is a Keras model with a name, and names for what it takes."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.signatures.resolve import (
    resolve_numeric_signatures,
    resolve_signatures,
)
from keras_posenc.export.signatures.tracing import trace

pytestmark = pytest.mark.tensorflow

TEXTS = ["one two three", "two", ""]


def text(name="text"):
    return keras.Input((), dtype="string", name=name)


def vectorization(**options):
    layer = layers.TextVectorization(
        output_sequence_length=4, name="vectorization", **options
    )
    layer.adapt(tf.constant(["one two", "two three four"]))
    return layer


def shapes(signatures):
    """Inputs as plain values, by signature and name."""
    return {
        signature.name: {
            name: (tuple(spec.shape), spec.dtype)
            for name, spec in signature.specs.items()
        }
        for signature in signatures
    }


def answer(signature, **inputs):
    outputs = signature.call(
        {name: tf.constant(value) for name, value in inputs.items()}
    )
    return {name: value.numpy() for name, value in outputs.items()}


class Subclass(keras.Model):
    """A model that does not know its inputs."""

    def __init__(self):
        super().__init__(name="subclass")
        self.embedding = layers.Embedding(10, 4)

    def call(self, inputs):
        return self.embedding(inputs)


def subclass():
    model = Subclass()
    model(np.ones((2, 3), "int32"))
    return model


IDS = keras.InputSpec(shape=(None, None), dtype="int32")

# ---- What a model gives by default


def outputs_of_layers(pack):
    """A model of ids with two outputs, of 4 numbers and of 2."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    vectors = layers.Embedding(10, 4, name="vectors")(ids)
    scores = layers.Dense(2, name="scores")(vectors)
    return keras.Model(ids, pack(scores, vectors))


def halves():
    inputs = keras.Input((6,), dtype="int32", name="ids")
    return keras.Model(inputs, ops.split(inputs, [2], axis=-1))


@pytest.mark.parametrize(
    ("make_model", "sizes"),
    [
        (
            lambda: outputs_of_layers(lambda x, y: {"b": y, "a": x}),
            {"a": 2, "b": 4},
        ),
        (
            lambda: outputs_of_layers(lambda *x: [*x]),
            {"scores": 2, "vectors": 4},
        ),
        (
            lambda: keras.Sequential(
                [
                    keras.Input((None,), dtype="int32", name="ids"),
                    layers.Embedding(10, 4, name="vectors"),
                ]
            ),
            {"vectors": 4},
        ),
        (halves, {"output_0": 2, "output_1": 4}),
    ],
    ids=["dict", "list", "chain", "of one layer"],
)
def test_outputs_are_named_by_keys_or_layers_or_numbers(make_model, sizes):
    (signature,) = resolve_signatures(make_model())
    found = answer(signature, ids=[[1, 2, 3, 4, 5, 6]])
    assert {name: value.shape[-1] for name, value in found.items()} == sizes


@pytest.mark.parametrize("structure", ["dict", "tuple", "nested"])
def test_inputs_of_any_structure_are_flat_by_their_names(structure):
    # Not in alphabetical order, and not symmetric: a swap would show.
    words = keras.Input((None,), dtype="int32", name="words")
    factor = keras.Input((), name="factor")
    vectors = layers.Embedding(10, 4)(words)
    outputs = ops.mean(vectors, axis=1) * ops.expand_dims(factor, -1)
    inputs = {
        "dict": {"words": words, "factor": factor},
        "tuple": (factor, words),
        "nested": [[words], {"factor": factor}],
    }[structure]
    (signature,) = resolve_signatures(keras.Model(inputs, {"y": outputs}))
    assert shapes([signature])["serving_default"] == {
        "words": ((None, None), "int32"),
        "factor": ((None,), "float32"),
    }
    once = answer(signature, words=[[1, 2]], factor=[1.0])["y"]
    twice = answer(signature, factor=[2.0], words=[[1, 2]])["y"]
    np.testing.assert_allclose(twice, 2 * once)


@pytest.mark.parametrize(
    ("shape", "loaded"), [((4, 6), True), ((None, None), False)]
)
def test_sequential_that_guessed_that_ids_are_floats(shape, loaded, tmp_path):
    # Keras makes float32 the dtype of its input, of ids too.
    model = keras.Sequential([layers.Embedding(9, 2)])
    model.build(shape)
    if loaded:
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras")
    message = f"takes only float32 of shape {shape}, because it was"
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_signatures(model)


def test_sequential_of_floats_takes_any_batch():
    model = keras.Sequential([layers.Dense(2, dtype="mixed_float16")])
    model(np.ones((4, 6)))
    (specs,) = shapes(resolve_signatures(model)).values()
    assert list(specs.values()) == [((None, 6), "float32")]


# ---- Models of strings


def test_model_of_strings_is_also_cut_at_its_first_numeric_tensor():
    """A trained model after its preprocessing; all layers are used before."""
    tokens, last = vectorization(), layers.Activation("sigmoid")
    trained = keras.Sequential(
        [keras.Input((None,), dtype="int64"), layers.Embedding(10, 4)]
    )
    first = text("first")
    keras.Model(first, trained(tokens(first)))
    keras.Sequential([keras.Input((None, 4)), last])
    model = keras.Sequential([text(), tokens, trained, last])
    default, from_ids = resolve_signatures(model)
    assert shapes([default, from_ids]) == {
        "serving_default": {"text": ((None,), "string")},
        "from_ids": {"ids": ((None, 4), "int64")},
    }
    expected = answer(default, text=TEXTS)
    actual = answer(from_ids, ids=tokens(tf.constant(TEXTS)))
    assert list(actual) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value)


class Vectors(layers.Layer):
    """Passes a mask on and makes none: the tokenizer's is the only one."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, tokens):
        return ops.one_hot(tokens, 8)


@pytest.mark.parametrize("pad_id", [0, 1])
def test_mask_of_a_tokenizer_is_made_again_behind_the_cut(pad_id):
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "one", "two", "three"]
    vocabulary.insert(pad_id, "[PAD]")
    tokenizer = kp.WordpieceTokenizer(vocabulary, sequence_length=6)
    attention = kp.SelfAttention(2)
    inputs = text()
    tokens = tokenizer(inputs)
    # Keras hands no mask to a layer of two tensors: it is the one that the
    # vectors carry.
    outputs = attention(Vectors()(tokens), segment_ids=ops.zeros_like(tokens))
    default, from_ids = resolve_signatures(keras.Model(inputs, outputs))
    ids = tokenizer(tf.constant(TEXTS)).numpy()
    (expected,) = answer(default, text=TEXTS).values()
    (actual,) = answer(from_ids, ids=ids).values()
    np.testing.assert_array_equal(actual, expected)
    unmasked = attention(Vectors()(tf.constant(ids))).numpy()
    assert np.max(np.abs(unmasked - expected)) > 0.01  # the mask matters


def test_numbers_that_are_no_ids_are_features():
    inputs = text()
    layer = layers.TextVectorization(output_mode="count")
    layer.adapt(tf.constant(["one two", "two three four"]))
    counts = layer(inputs)
    model = keras.Model(inputs, layers.Dense(2)(counts))
    _, from_ids = resolve_signatures(model)
    assert shapes([from_ids])["from_ids"] == {
        "features": ((None, counts.shape[1]), "float32")
    }


def tokens_in_a_nested_model():
    """There are ids, but not where the model could be cut."""
    inner = keras.Sequential(
        [text(), vectorization(), layers.Embedding(10, 4)], name="inner"
    )
    return keras.Sequential([text(), inner, layers.Dense(2)], name="outer")


def two_branches():
    inputs = text()
    embeddings = [
        layers.Embedding(4, 4)(
            layers.StringLookup(vocabulary=words, name=words[0])(inputs)
        )
        for words in (["one", "two"], ["two", "three"])
    ]
    return keras.Model(inputs, layers.Concatenate()(embeddings))


NOT_CUT = {
    "an output is a string": lambda: keras.Sequential(
        [text(), layers.Identity()]
    ),
    "an output is the first numeric tensor itself": lambda: keras.Sequential(
        [text(), layers.StringLookup(vocabulary=["a"])]
    ),
    "they become numbers inside model 'inner', which is a layer of "
    "'outer': make the numbers in 'outer' itself": tokens_in_a_nested_model,
}


def test_model_that_no_one_tensor_cuts_has_one_signature():
    for reason, make_model in {**NOT_CUT, None: two_branches}.items():
        model = make_model()
        (signature,) = resolve_signatures(model)
        assert signature.name == "serving_default"
        assert signature.model is model
        if reason is not None:
            message = f"signature 'serving_default' cannot be cut.*: {reason}"
            with pytest.raises(ValueError, match=message):
                resolve_numeric_signatures(model)


# ---- Signatures without strings


def columns():
    """A table's columns, a text among them; age is a number."""
    names = ("kind", "age", "text", "city", "street")
    inputs = {
        name: keras.Input(
            () if name == "text" else (1,),
            dtype="float32" if name == "age" else "string",
            name=name,
        )
        for name in names
    }
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "one", "two"]
    tokens = kp.WordpieceTokenizer(vocabulary)(inputs["text"])
    vectors = layers.Embedding(6, 4, mask_zero=True)(tokens)
    one_hot = {"vocabulary": ["a", "b"], "output_mode": "one_hot"}
    crossed = layers.HashedCrossing(9)((inputs["street"], inputs["city"]))
    found = [
        layers.StringLookup(**one_hot)(inputs["kind"]),
        layers.Normalization(mean=[40.0], variance=[9.0])(inputs["age"]),
        kp.Pooling1D("mean")(vectors),
        layers.Flatten()(layers.Embedding(9, 2)(crossed)),
    ]
    return keras.Model(
        inputs, layers.Dense(2, name="y")(layers.Concatenate()(found))
    )


def test_columns_of_strings_are_each_cut_at_their_first_numeric_tensor():
    (whole,) = resolve_signatures(columns())
    (cut,) = resolve_numeric_signatures(whole.model)
    assert shapes([cut]) == {
        "serving_default": {
            "kind": ((None, 3), "float32"),
            "age": ((None, 1), "float32"),
            "text": ((None, None), "int32"),
            "city_street": ((None, 1), "int64"),
        }
    }
    given = {
        "kind": [["a"], ["c"]],
        "age": [[43.0], [39.0]],
        "text": ["one two two one", "two"],
        "city": [["a"], ["b"]],
        "street": [["c"], ["d"]],
    }
    given = {
        name: np.array(x, "float32" if name == "age" else object)
        for name, x in given.items()
    }
    expected = answer(whole, **given)["y"]
    inputs = cut.strings.cut(given)
    np.testing.assert_array_equal(inputs["kind"], [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(inputs["age"], given["age"])
    near = np.testing.assert_allclose
    near(answer(cut, **inputs)["y"], expected, rtol=1e-5, atol=1e-6)
    # The shorter text is padded beside the longer, and its mask made again.
    alone = answer(cut, **{k: v[1:] for k, v in inputs.items()})["y"]
    near(alone, expected[1:], rtol=1e-5, atol=1e-6)


def test_tensors_of_one_string_are_told_apart_by_their_layers():
    (cut,) = resolve_numeric_signatures(two_branches())
    assert set(cut.specs) == {"text_one", "text_two"}


def test_lookups_of_integers_are_cut_off():
    kind, age = (keras.Input((1,), dtype="int32", name=n) for n in "ka")
    parts = [
        layers.IntegerLookup(vocabulary=[5], output_mode="one_hot")(kind),
        layers.HashedCrossing(6, output_mode="one_hot")([kind, age]),
        layers.Rescaling(0.1)(age),
        layers.Hashing(4, output_mode="one_hot", name="hash")(age),
    ]
    model = keras.Model([kind, age], layers.Concatenate()(parts))
    (found,) = shapes(resolve_numeric_signatures(model)).values()
    assert found == {
        "k": ((None, 2), "float32"),
        "k_a": ((None, 6), "float32"),
        "a": ((None, 1), "int32"),
        "a_hash": ((None, 4), "float32"),
    }
    best = ops.argmax(layers.Dense(3, name="before")(parts[0]))
    late = keras.Model(kind, 2 * layers.IntegerLookup(vocabulary=[5])(best))
    with pytest.raises(ValueError, match="layer 'before' before them has weig"):
        resolve_numeric_signatures(late)


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (
            layers.UpSampling2D(interpolation="bilinear", name="larger"),
            "in UpSampling2D 'larger': .*needs sizes that are known, give them",
        ),
        (
            layers.Conv2D(1, 1, name="Class Scores"),
            "in Conv2D 'Class Scores': .*Rename it$",
        ),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_layer_that_cannot_be_traced_is_named(layer, told):
    image = keras.Input((None, None, 1), name="image")
    # It is not the only one of its kind.
    model = keras.Model(image, layer(layers.UpSampling2D()(image)))
    (signature,) = resolve_signatures(model)
    with pytest.raises(kp.ExportError, match=f"(?s){told}"):
        trace(signature)
    # Nothing of it is in the names of what is made next.
    next_one = layers.Dense(1, name="next")
    next_one.build((None, 1))
    assert next_one.kernel.path == "next/kernel"


# ---- Given signatures


def test_given_signatures_replace_the_default(make):
    model, other = make.embedder(), make.classifier()
    resolved = resolve_signatures(
        model,
        {
            "embed": model,
            "classify": (other, {}),
            "short": (other, {"ids": (None, 16)}),
            "as_list": [other, {"ids": list(np.array([2, 3]))}],
            "as_spec": (other, {"ids": keras.InputSpec(shape=(1, 8))}),
        },
    )
    assert shapes(resolved) == {
        "embed": {"ids": ((None, None), "int32")},
        "classify": {"ids": ((None, None), "int32")},
        "short": {"ids": ((None, 16), "int32")},
        "as_list": {"ids": ((2, 3), "int32")},
        "as_spec": {"ids": ((1, 8), "int32")},
    }
    assert resolved[0].model is model
    assert resolved[1].model is other


# ---- What is refused


def test_model_that_does_not_know_its_inputs():
    message = "Model 'subclass' does not know its inputs: .*keras.Input, or "
    with pytest.raises(ValueError, match=message):
        resolve_signatures(subclass())


@pytest.mark.parametrize(
    "unbuilt", [Subclass, lambda: keras.Sequential([layers.Dense(2)])]
)
def test_model_that_is_not_built(unbuilt):
    model = unbuilt()
    message = f"Model '{model.name}' is not built, and so has no weights"
    for signatures in (None, {"a": (model, {"ids": IDS})}):
        with pytest.raises(ValueError, match=message):
            resolve_signatures(model, signatures)


@pytest.mark.parametrize(
    "nest", [lambda x: {"a": x, "b": {"c": x}}, lambda x: [x, [x, x]]]
)
def test_nested_outputs_are_refused_with_a_remedy(nest):
    inputs = keras.Input((4,), name="x")
    model = keras.Model(inputs, nest(layers.Dense(2)(inputs)), name="nested")
    message = "Model 'nested' has nested outputs, .*`(.*)`$"
    with pytest.raises(ValueError, match=message) as caught:
        resolve_signatures(model)
    code = re.search(message, str(caught.value))[1]
    resolve_signatures(eval(code, {"keras": keras, "model": model}))


def numbers():
    return keras.Sequential([keras.Input((4,), name="x"), layers.Dense(2)])


# Parts of messages, and signatures of a model that raise them.
REFUSED = {
    "^`signatures` must map names": lambda m: [
        *({}, "serving_default", {3: m}, {"a/b": m}),
        *({"a": x} for x in (None, (), layers.Dense(2), (None, {}), (m,))),
        *({"a": (m, x)} for x in (None, (None, 4))),
    ],
    "^Signature 'a': model 'embedder' has no input 'tokens'. Its inputs are: "
    "ids$": lambda m: [{"a": (m, {"tokens": (1, 4)})}],
    r"of which each None may stay, .* Received: shape \(None, 5\)$": lambda _: [
        {"a": (numbers(), {"x": (None, 5)})}
    ],
    "^Signature 'a': input 'ids' of the": lambda m: [
        {"a": (m, {"ids": x})}
        for x in (
            *((None,), (None, None, None), (0, 4), (None, 2.5)),
            *((True, 4), None, keras.InputSpec(ndim=2)),
        )
    ],
}


@pytest.mark.parametrize("message", REFUSED)
def test_signatures_that_are_refused(make, message):
    for signatures in REFUSED[message](make.embedder()):
        with pytest.raises(ValueError, match=message):
            resolve_signatures(None, signatures)


@pytest.mark.parametrize(
    "spec", [{"shape": (None, None)}, {"dtype": "int32", "ndim": 2}]
)
def test_half_an_input_of_a_subclassed_model(spec):
    given = {"a": (subclass(), {"ids": keras.InputSpec(**spec)})}
    with pytest.raises(ValueError, match=r"'ids'.*shape and dtype"):
        resolve_signatures(None, given)


@pytest.mark.parametrize(
    "name", ["my ids", "a.b", "2ids", "class", "self", "größe"]
)
def test_name_of_an_input_that_artifacts_cannot_have(make, name):
    inputs = make.ids(name)
    model = keras.Model(inputs, layers.Embedding(10, 4)(inputs))
    with pytest.raises(ValueError, match="the name of an input must") as caught:
        resolve_signatures(model)
    message = str(caught.value)
    assert message.startswith("Signature 'serving_default': ")
    assert message.endswith(f"Received: {name}")
    (code,) = re.findall("`(.*)`", message)
    renamed = eval(code, {"keras": keras, "model": model})
    (signature,) = resolve_signatures(renamed)
    _, specs = trace(signature).structured_input_signature
    assert list(specs) == list(signature.specs)
