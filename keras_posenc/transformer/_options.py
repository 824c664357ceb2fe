"""The options that attention, blocks, stacks and models share.

A new option is a line in one of the typed dictionaries, its text in their
docstring, its default in `OPTIONS` and its check in `ops.named.CHECKS`; every
class that takes the dictionary then has it in its signature, its documentation
and its config.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

import keras

from keras_posenc.ops.initializers import initializer_of, is_seeded
from keras_posenc.ops.named import checked_arguments, refuse_unknown
from keras_posenc.transformer._sublayers import make_activation
from keras_posenc.transformer.specs import Attentions, Norm, check_norm


class WeightOptions(TypedDict, total=False):
    """Options of every layer with projections, and of what contains some.

    Args:
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of the projections' biases.
        kernel_regularizer: Regularizer of the projections' kernels.
        bias_regularizer: Regularizer of the projections' biases.
        dtype: Dtype or dtype policy; Keras's default if None.
        name: Name in Keras.
        trainable: Whether the weights train.
    """

    kernel_initializer: Any
    bias_initializer: Any
    kernel_regularizer: Any
    bias_regularizer: Any
    dtype: Any
    name: str | None
    trainable: bool


class ProjectionOptions(WeightOptions, total=False):
    """Options of attention, and of the feed-forward part.

    Args:
        dropout: Rate of the dropouts, in [0, 1).
        use_bias: Whether the projections have biases.
    """

    dropout: float
    use_bias: bool


class FeedForwardOptions(ProjectionOptions, total=False):
    """Options of `FeedForward`.

    Args:
        activation: Activation of the feed-forward part: the name of a Keras
            activation, `"gelu_tanh"`, or a callable.
        use_gate: Whether the activation is applied to a projection of its own,
            the gate, which multiplies the other one. With `activation="silu"`
            this is SwiGLU.
    """

    activation: Any
    use_gate: bool


class BlockOptions(FeedForwardOptions, total=False):
    """Options of a block.

    Args:
        intermediate_dim: Width of the feed-forward part; of a stack also a list
            with that of each block.
        norm: A `Norm`, or its kind or place, such as `"rms"` or `"before"`.
    """

    intermediate_dim: int | Sequence[int]
    norm: Norm | str


class StackOptions(BlockOptions, total=False):
    """Options of a stack of blocks.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            the `head_dim` of `attention` is given.
        attention: The self-attention of all blocks: an `Attention`, or a
            position alone, such as `"rotary"`; or a list with one for each
            block.
    """

    num_heads: int
    attention: Attentions


class ModelOptions(StackOptions, total=False):
    """Options of a model.

    Args:
        d_model: Width of the embeddings and of the blocks.
        num_layers: Number of blocks.
        embeddings_initializer: Initializer of the tables of embeddings.
        embeddings_regularizer: Regularizer of the tables of embeddings.
    """

    d_model: int
    num_layers: int
    embeddings_initializer: Any
    embeddings_regularizer: Any


#: The defaults, where a class names no other, in the order in which they are
#: shown.
OPTIONS = {
    "d_model": 512,
    "num_layers": 6,
    "num_heads": 8,
    "attention": None,
    "intermediate_dim": 2048,
    "dropout": 0.1,
    "activation": "relu",
    "use_gate": False,
    "norm": Norm(),
    "use_bias": True,
    "kernel_initializer": "glorot_uniform",
    "bias_initializer": "zeros",
    "kernel_regularizer": None,
    "bias_regularizer": None,
    "embeddings_initializer": "uniform",
    "embeddings_regularizer": None,
}
#: Arguments that Keras checks and saves itself.
KERAS_OPTIONS = {"dtype": None, "name": None, "trainable": True}
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "activation": lambda _, value: make_activation(value),
    "norm": check_norm,
}


def names_in(kind: Any) -> list[str]:
    """Lists the options in a typed dictionary, without those of Keras."""
    return [name for name in OPTIONS if name in kind.__annotations__]


def check_options(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those options of a kind that have a check, checked."""
    given = select(kind, options)
    own = {x: _CHECKS[x](x, given[x]) for x in given if x in _CHECKS}
    return {**checked_arguments(given), **own}


def keep_options(
    owner: Any, kind: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Checks options, and keeps each as an attribute of a layer."""
    checked = check_options(kind, options)
    for name, value in checked.items():
        setattr(owner, name, value)
    return checked


def select(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the options in a typed dictionary, without those of Keras."""
    return {name: options[name] for name in names_in(kind) if name in options}


def for_keras(options: Mapping[str, Any]) -> dict[str, Any]:
    """Selects what the base class of Keras takes."""
    return {name: x for name, x in options.items() if name not in OPTIONS}


def for_sublayer(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Gives a sublayer seeds of its own, made from its name and those given.

    Without a seed each projection draws one.
    """
    return {
        key: initializer_of(value, name)
        if key.endswith("_initializer") and is_seeded(value)
        else value
        for key, value in options.items()
    }


T = TypeVar("T")


def with_options(kind: Any, **defaults: Any) -> Callable[[type[T]], type[T]]:
    """Completes a class whose constructor takes `**options: Unpack[kind]`.

    The constructor then receives all options, with defaults for those that
    are not given: those here, and else of `OPTIONS`. Its signature lists them,
    and so does the class's docstring in place of `**options`.
    """

    def complete(cls: Any) -> Any:
        init, is_layer = cls.__init__, not issubclass(cls, keras.Model)
        signature = _with_parameters(init, kind, defaults, is_layer)

        @functools.wraps(init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                given = signature.bind(self, *args, **kwargs)
            except TypeError:
                refuse_unknown(type(self), kwargs)
                init(self, *args, **kwargs)  # raises Python's error
                raise
            given.apply_defaults()
            init(*given.args, **given.kwargs)

        cls.__init__ = __init__
        cls.__init__.__signature__ = signature
        if cls.__doc__:  # not under `python -OO`
            cls.__doc__ = _with_texts(cls.__doc__, kind, is_layer)
        return cls

    return complete


def _shown(kind: Any) -> dict[str, Any]:
    known = {**OPTIONS, **KERAS_OPTIONS}
    return {name: known[name] for name in known if name in kind.__annotations__}


def _with_parameters(
    init: Any, kind: Any, defaults: Mapping[str, Any], is_layer: bool
) -> inspect.Signature:
    signature = inspect.signature(init)
    *own, _ = signature.parameters.values()
    parameters = own + [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name, default),
            annotation=kind.__annotations__[name],
        )
        for name, default in _shown(kind).items()
    ]
    if is_layer:  # Keras has further arguments of layers
        more = inspect.Parameter.VAR_KEYWORD
        parameters.append(inspect.Parameter("kwargs", more, annotation=Any))
    return signature.replace(parameters=parameters)


def _with_texts(doc: str, kind: Any, is_layer: bool) -> str:
    entries = [_TEXTS[name] for name in _shown(kind)]
    if is_layer:
        entries.append("**kwargs: Further arguments of `keras.Layer`.\n")
    return re.sub(
        r"(?m)^    \*\*options:.*\n(?: {5,}.*\n)*",
        "".join(f"    {entry}" for entry in entries),
        inspect.cleandoc(doc) + "\n",
    )


def _texts_in(kind: Any) -> dict[str, str]:
    """Splits the `Args` of a docstring into entries."""
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
    entries = re.split(r"(?m)^ {4}(?=\w+: )", section)[1:]
    return {x.partition(":")[0]: f"{x.rstrip()}\n" for x in entries}


_TEXTS = {
    name: text
    for kind in (
        WeightOptions,
        ProjectionOptions,
        FeedForwardOptions,
        BlockOptions,
        StackOptions,
        ModelOptions,
    )
    for name, text in _texts_in(kind).items()
}
