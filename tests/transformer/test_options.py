"""Options are declared once, and shown, checked and saved by every class."""

import inspect
import re

import pytest

import keras_posenc as kp

SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
CLASSES = [
    kp.SelfAttention,
    kp.CrossAttention,
    kp.FeedForward,
    kp.PatchEmbedding,
    kp.TransformerEncoderBlock,
    kp.TransformerDecoderBlock,
    kp.TransformerEncoder,
    kp.TransformerDecoder,
    kp.Transformer,
    kp.TransformerEncoderModel,
    kp.TransformerDecoderModel,
    kp.VisionTransformerModel,
]


def parameters(kind):
    return inspect.signature(kind).parameters


def documented(kind):
    """The entries of `Args`, without their indentation."""
    args = inspect.getdoc(kind).partition("Args:\n")[2].partition("\n\n")[0]
    return re.findall(r"(?m)^    (\*{0,2}\w+): \S", args)


@pytest.mark.parametrize("kind", CLASSES)
def test_signature_and_docstring_list_the_same(kind):
    names = [f"{'**' * (x == 'kwargs')}{x}" for x in parameters(kind)]
    assert sorted(documented(kind)) == sorted(names)
    assert "**options" not in kind.__doc__
    assert "kernel_initializer" in names


def test_defaults_of_a_class():
    paper = {"d_model": 512, "num_heads": 8, "intermediate_dim": 2048}
    paper |= {"activation": "relu", "input_position": "sinusoidal"}
    paper |= {"norm_at": "after", "dropout": 0.1, "num_layers": 6}
    for kind in (kp.Transformer, kp.TransformerEncoderModel):
        arguments = parameters(kind)
        assert {name: arguments[name].default for name in paper} == paper
    encoder, vision = map(
        parameters, (kp.TransformerEncoder, kp.VisionTransformerModel)
    )
    assert encoder["num_layers"].default == 6
    assert encoder["norm_epsilon"].default == 1e-5
    assert encoder["norm_epsilon"].annotation is float
    assert vision["norm_epsilon"].default == 1e-6
    assert vision["norm_at"].default == "before"
    assert parameters(kp.SelfAttention)["dropout"].default == 0.0
    assert parameters(kp.TransformerEncoderBlock)["dropout"].default == 0.1
    assert kp.SelfAttention(2).dropout == 0.0
    assert kp.TransformerEncoderBlock(2).dropout == 0.1


class Mine(kp.TransformerEncoderModel):
    """A model of a user's, with a constructor and a config of its own."""

    def __init__(self, vocabulary_size, *, depth=1, **kwargs):
        super().__init__(vocabulary_size, **{"num_layers": depth, **kwargs})
        self.depth = depth

    def get_config(self):
        return {**super().get_config(), "depth": self.depth}


def test_a_subclass_with_a_constructor_of_its_own():
    sizes = {**SMALL, "num_layers": 2}
    model = Mine(9, depth=2, **sizes, name="mine", trainable=False)
    assert {*parameters(Mine)} == {"vocabulary_size", "depth", "kwargs"}
    twin = Mine.from_config(model.get_config())
    assert twin.get_config() == model.get_config()
    assert (twin.name, twin.depth, twin.num_layers) == ("mine", 2, 2)
    assert not twin.trainable
    message = "Mine has no argument `n_heads`. Did you mean `num_heads`?"
    with pytest.raises(ValueError, match=re.escape(message)):
        Mine(9, n_heads=2)


def test_a_missing_argument_is_named():
    message = (
        "TransformerEncoderModel.__init__() missing 1 required positional "
        "argument: 'vocabulary_size'"
    )
    with pytest.raises(TypeError, match=re.escape(message)):
        kp.TransformerEncoderModel()
    with pytest.raises(TypeError, match="'num_heads'"):
        kp.SelfAttention()
