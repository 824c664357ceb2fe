"""The options that attention, blocks, stacks and models share.

A new option is a line in one of the typed dictionaries, its text in their
docstring, and an entry of `OPTIONS`; every class that takes the dictionary
then has it in its signature, its documentation and its config.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar

import keras

from keras_posenc.checks import (
    check_bool,
    check_choice,
    check_positive,
    check_positive_int,
    check_rate,
)
from keras_posenc.ops.initializers import initializer_of, is_seeded
from keras_posenc.ops.named import refuse_unknown
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._sublayers import NORMS, make_activation

AttentionPositions = (
    AttentionPosition | str | Sequence[AttentionPosition | str | None] | None
)


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


class AttentionOptions(ProjectionOptions, total=False):
    """Options of attention.

    Args:
        num_key_value_heads: Heads of keys and values, each shared by a group
            of query heads; divides `num_heads`, which is the default.
        head_dim: Width of a head; by default the width of the inputs, divided
            by `num_heads`.
        query_key_value_bias: Whether the projections to queries, keys and
            values have biases; by default `use_bias`.
        query_key_norm: Whether each head's queries and keys are normalized, by
            RMS, before they are rotated. All heads share the weights. `"all"`
            normalizes all heads together, as in OLMo 2.
        norm_epsilon: Added to the variance in each norm, above 0.
    """

    num_key_value_heads: int | None
    head_dim: int | None
    query_key_value_bias: bool | None
    query_key_norm: bool | str
    norm_epsilon: float


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


class BlockOptions(FeedForwardOptions, AttentionOptions, total=False):
    """Options of a block.

    Args:
        intermediate_dim: Width of the feed-forward part.
        norm_at: Where norms are: `"after"` each residual (post-norm, the
            paper); `"before"` each sublayer (pre-norm); `"between"`, as
            before without the very first, for inputs that are normalized
            already, as in ModernBERT; at the `"output"` of each sublayer, as
            in OLMo 2; `"before output"`, both, as in Gemma 3; or
            `"after output"`. Except after residuals, a stack ends with a norm.
        norm: `"layer"` or `"rms"`.
    """

    intermediate_dim: int
    norm_at: str
    norm: str


class StackOptions(BlockOptions, total=False):
    """Options of a stack of blocks.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            `head_dim` is given.
        attention_position: Position in the self-attention: an
            `AttentionPosition`, whose weights all blocks share, or the name of
            a kind, such as `"rotary"`, `"alibi"` or `"t5"`; a list with one
            (or None) for each block; or None.
    """

    num_heads: int
    attention_position: AttentionPositions


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


class Option(NamedTuple):
    """The default of an option, and its check.

    Attributes:
        default: The default of classes that name no other.
        check: A function of name and value that returns the value to keep, or
            raises `ValueError`; None if the layer that uses it checks it.
    """

    default: Any
    check: Callable[[str, Any], Any] | None = None


def _check_positive_or_none(name: str, value: Any) -> int | None:
    return None if value is None else check_positive_int(name, value)


def _check_bool_or_none(name: str, value: Any) -> bool | None:
    return None if value is None else check_bool(name, value)


def _check_bool_or_all(name: str, value: Any) -> Any:
    if isinstance(value, bool) or value == "all":
        return value
    raise ValueError(
        f"`{name}` must be True, False or 'all'. Received: {name}={value!r}"
    )


#: Where the norms of a block are.
PLACES = (
    *("after", "before", "between", "output"),
    *("before output", "after output"),
)
_INITIALIZER, _REGULARIZER = (
    lambda _, value: keras.initializers.get(value),
    lambda _, value: keras.regularizers.get(value),
)
#: In the order in which they are shown.
OPTIONS = {
    "d_model": Option(512, check_positive_int),
    "num_layers": Option(6, check_positive_int),
    "num_heads": Option(8, check_positive_int),
    "num_key_value_heads": Option(None, _check_positive_or_none),
    "head_dim": Option(None, _check_positive_or_none),
    "intermediate_dim": Option(2048, check_positive_int),
    "dropout": Option(0.1, check_rate),
    "attention_position": Option(None),
    "activation": Option("relu", lambda _, value: make_activation(value)),
    "use_gate": Option(False, check_bool),
    "norm_at": Option("after", lambda name, x: check_choice(name, x, PLACES)),
    "norm": Option("layer", lambda name, x: check_choice(name, x, NORMS)),
    "norm_epsilon": Option(1e-5, check_positive),
    "query_key_norm": Option(False, _check_bool_or_all),
    "use_bias": Option(True, check_bool),
    "query_key_value_bias": Option(None, _check_bool_or_none),
    "kernel_initializer": Option("glorot_uniform", _INITIALIZER),
    "bias_initializer": Option("zeros", _INITIALIZER),
    "kernel_regularizer": Option(None, _REGULARIZER),
    "bias_regularizer": Option(None, _REGULARIZER),
    "embeddings_initializer": Option("uniform", _INITIALIZER),
    "embeddings_regularizer": Option(None, _REGULARIZER),
}
#: Arguments that Keras checks and saves itself.
KERAS_OPTIONS = {
    "dtype": Option(None),
    "name": Option(None),
    "trainable": Option(True),
}


def names_in(kind: Any) -> list[str]:
    """Lists the options in a typed dictionary, without those of Keras."""
    return [name for name in OPTIONS if name in kind.__annotations__]


def check_options(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Checks those options of a constructor that are in a typed dictionary.

    Returns:
        The checked options.

    Raises:
        ValueError: A value that an option cannot have.
    """
    return {
        name: check(name, options[name])
        for name in names_in(kind)
        if (check := OPTIONS[name].check)
    }


def keep_options(
    owner: Any, kind: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Checks options, and keep each as an attribute of a layer."""
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
    are not given. Its signature lists them, and so does the class's docstring
    in place of `**options`.

    Args:
        kind: The typed dictionary.
        **defaults: Defaults of the class that differ from `OPTIONS`.
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


def _shown(kind: Any) -> dict[str, Option]:
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
            default=defaults.get(name, option.default),
            annotation=kind.__annotations__[name],
        )
        for name, option in _shown(kind).items()
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
        AttentionOptions,
        FeedForwardOptions,
        BlockOptions,
        StackOptions,
        ModelOptions,
    )
    for name, text in _texts_in(kind).items()
}
