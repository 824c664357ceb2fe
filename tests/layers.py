"""What tests of several subpackages do with layers."""

from pathlib import Path

import keras
import numpy as np
from keras import ops

import keras_posenc as kp

FIXTURES = Path(__file__).parent / "fixtures"
#: Positions in attention with few rows and buckets: for any attention, and for
#: what can be causal.
POSITIONS = {
    "rotary": kp.RotaryEmbedding,
    "alibi": kp.AlibiBias,
    "t5": kp.RelativePositionBias,
    "shaw": lambda: kp.positions.RelativePositionEmbedding(3),
    "xl": kp.positions.TransformerXLBias,
    "kerple": kp.positions.KerpleBias,
    "fire": kp.positions.FireBias,
    "deberta": lambda: kp.positions.DisentangledBias(4, max_distance=6),
    "polar": kp.positions.PolarEmbedding,
}
CAUSAL_POSITIONS = {
    "xpos": kp.positions.XPosEmbedding,
    "contextual": lambda: kp.positions.ContextualBias(3),
    "forgetting": kp.positions.ForgettingBias,
}


def cases_of(name):
    """The cases of `tests/fixtures/NAME.npz`: their arrays by their names."""
    cases = {}
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        for key, array in arrays.items():
            case, _, part = key.rpartition("/")
            cases.setdefault(case, {})[part] = array
    return cases


def numpy(x):
    """What a tensor of any dtype holds, in float64."""
    return np.asarray(ops.convert_to_numpy(x)).astype("float64")


def draw(*shape, seed=0):
    """Normal numbers, in float32."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomised(layer, seed=5):
    """The layer with weights none of which is 0 or 1.

    Args:
        layer: A layer or a model that is built.
        seed: Of the weights, or a generator of NumPy's.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        noise = rng.normal(size=weight.shape)
        if len(weight.shape) == 2:
            weight.assign(noise / np.sqrt(weight.shape[0]))
        elif weight.name in ("gamma", "scale"):
            weight.assign(1 + 0.1 * noise)
        else:
            weight.assign(0.1 * noise)
    return layer


def by_steps(model, cache, target, prompt=7):
    """Logits of a prompt at once, and of the rest one by one."""
    logits, cache = model.call_with_cache(target[:, :prompt], cache)
    parts = [logits]
    for step in range(prompt, target.shape[1]):
        logits, cache = model.call_with_cache(target[:, step : step + 1], cache)
        parts.append(logits)
    return ops.concatenate(parts, axis=1)


def rotary_rates(scaling, dim, max_wavelength=10000.0, length=0):
    """Radians per position of each pair, in rows of a length.

    For angles far out: that these rates are those of Hugging Face, and of the
    papers, is tested too.
    """
    from keras_posenc.ops.rotary import scaled_rates

    options = {"max_wavelength": max_wavelength, "scaling": scaling}
    original = scaling.get("original_max_position_embeddings", length)
    if scaling["rope_type"] == "dynamic" and length > original:
        # Peng et al., YaRN (2023), appendix B.1 (NTK-aware).
        grown = 1 + scaling["factor"] * (length - original) / original
        options["max_wavelength"] *= grown ** (dim / (dim - 2))
    rates = scaled_rates(dim, **options)
    if scaling["rope_type"] == "longrope":
        # Ding et al., LongRoPE (2024), section 3.2.
        which = "long_factor" if length > original else "short_factor"
        rates = rates / np.array(scaling[which])
    return rates


@keras.saving.register_keras_serializable(package="tests")
class MaskSeen(keras.layers.Layer):
    """Answers with the mask that Keras handed to it, as integers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        assert mask is not None, "Keras looks for masks somewhere else"
        return ops.cast(mask, "int32")


def text_classifier(corpus, vocabulary_size=60, classes=2):
    """From texts to `scores`, with a tokenizer that was learned from texts."""
    tokenizer = kp.WordpieceTokenizer.learn(corpus, vocabulary_size)
    embedding = keras.layers.Embedding(
        tokenizer.vocabulary_size(), 16, mask_zero=True
    )
    return keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            embedding,
            kp.PositionalEncoding(),
            kp.TransformerEncoder(1, num_heads=2, intermediate_dim=32),
            kp.Pooling1D("mean"),
            keras.layers.Dense(classes, activation="softmax", name="scores"),
        ]
    )


def check_sizes_before_a_run(path, inputs):
    """LiteRT knows all sizes before a run, and so CompiledModel is right.

    Args:
        path: A LiteRT file with the signature `serving_default`.
        inputs: Inputs by name, of several sizes, which one session runs.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    from keras_posenc.export.worker_client import Limits, run_model

    # A delegate's operators have outputs without memory.
    interpreter = Interpreter(
        str(path),
        experimental_op_resolver_type=(
            OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        ),
    )
    details = interpreter.get_signature_runner(
        "serving_default"
    ).get_input_details()  # the runner itself would block the interpreter
    unknown = set()
    for each in inputs:
        for name, found in details.items():
            interpreter.resize_tensor_input(found["index"], each[name].shape)
        interpreter.allocate_tensors()
        for operator in interpreter._get_ops_details():
            for index in operator["outputs"]:
                try:
                    interpreter.get_tensor(index)
                except ValueError:  # it has no memory
                    unknown.add((operator["op_name"], index))
    assert unknown == set()
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    cases = [("serving_default", each) for each in inputs]
    compiled = run_model(
        "litert_compiled", Path(path), cases, Limits(), times=1
    )
    for each, found in zip(inputs, compiled["cases"], strict=True):
        for name, wanted in runner(**each).items():
            # Beyond a table there is NaN.
            scale = np.nanmax(np.abs(wanted.astype("float64")))
            np.testing.assert_allclose(
                found["outputs"][name], wanted, rtol=0, atol=1e-4 * scale
            )
