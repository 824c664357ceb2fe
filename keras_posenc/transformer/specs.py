"""How blocks attend and normalize: specs that layers and models take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import keras

from keras_posenc.checks import (
    check_bool,
    check_choice,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.named import NamedOptions, or_none
from keras_posenc.positional.attention_kinds import (
    ATTENTION_KINDS,
    check_attention_position,
)
from keras_posenc.positional.attention_position import AttentionPosition

KINDS = ("layer", "rms")
PLACES = (
    *("after", "before", "between", "output"),
    *("before output", "after output"),
)


def _check_position(name: str, value: Any) -> Any:
    """Returns a position or the name of a kind, of which a layer makes one."""
    if isinstance(value, str) and value in ATTENTION_KINDS:
        return value
    return check_attention_position(value, None, name)


def _check_bool_or_all(name: str, value: Any) -> Any:
    if isinstance(value, bool) or value == "all":
        return value
    raise ValueError(
        f"`{name}` must be True, False or 'all'. Received: {name}={value!r}"
    )


class _Spec(NamedOptions):
    """Base of the specs: each field is checked, and saved by Keras."""

    checks: ClassVar[Mapping[str, Callable[[str, Any], Any]]]

    def __post_init__(self) -> None:
        for name, check in self.checks.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    def get_config(self) -> dict[str, Any]:
        return {
            name: keras.saving.serialize_keras_object(getattr(self, name))
            for name in self.checks
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_posenc")
@dataclass(frozen=True)
class Attention(_Spec):
    """How the tokens of a block attend to one another.

    For the argument `attention` of layers and models, where a position alone
    can be given in its place: `"rotary"` is `Attention("rotary")`, and None is
    `Attention()`. A stack takes a list too, with one for each block.

    Args:
        position: An `AttentionPosition`, whose weights are shared by all blocks
            that have this spec; the name of a kind, such as `"rotary"`,
            `"alibi"` or `"t5"`; or None.
        window: How many tokens a token sees on either side of itself, counted
            in the sequence; under a causal mask before itself. None for all.
        num_key_value_heads: Heads of keys and values, each shared by a group
            of query heads; divides `num_heads`, which is the default.
        head_dim: Width of a head; by default the width of the inputs, divided
            by `num_heads`.
        use_bias: Whether the projections to queries, keys and values have
            biases; by default the `use_bias` of the layer.
        query_key_norm: Whether each head's queries and keys are normalized, by
            RMS, before they are rotated. All heads share the weights. `"all"`
            normalizes all heads together, as in OLMo 2.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import keras_posenc as kp
    >>> encoder = kp.TransformerEncoder(
    ...     num_layers=2,
    ...     num_heads=4,
    ...     attention=[
    ...         kp.Attention("rotary", window=64, num_key_value_heads=2),
    ...         kp.Attention("rotary", num_key_value_heads=2),
    ...     ],
    ... )

    References:
        - [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245) (grouped
          heads)
        - [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150) (windows)
        - [Henry et al., 2020](https://arxiv.org/abs/2010.04245) (norms of
          queries and keys)
    """

    position: AttentionPosition | str | None = None
    _: KW_ONLY
    window: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    use_bias: bool | None = None
    query_key_norm: bool | str = False

    checks: ClassVar = {
        "position": _check_position,
        "window": or_none(check_positive_int),
        "num_key_value_heads": or_none(check_positive_int),
        "head_dim": or_none(check_positive_int),
        "use_bias": or_none(check_bool),
        "query_key_norm": _check_bool_or_all,
    }


@keras.saving.register_keras_serializable(package="keras_posenc")
@dataclass(frozen=True)
class Norm(_Spec):
    """Which norms a block has, and where.

    For the argument `norm` of blocks, stacks and models, where a kind or a
    place alone can be given in its place: `"rms"` is `Norm("rms")`, and
    `"before"` is `Norm(at="before")`.

    Args:
        kind: `"layer"` or `"rms"`.
        at: Where norms are: `"after"` each residual (post-norm, the
            paper); `"before"` each sublayer (pre-norm); `"between"`, as
            before without the very first, for inputs that are normalized
            already, as in ModernBERT; at the `"output"` of each sublayer, as
            in OLMo 2; `"before output"`, both, as in Gemma 3; or
            `"after output"`. Except after residuals, a stack ends with a norm.
        epsilon: Added to the variance, above 0.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import keras_posenc as kp
    >>> norm = kp.Norm("rms", at="before", epsilon=1e-6)
    >>> encoder = kp.TransformerEncoder(2, num_heads=4, norm=norm)

    References:
        - [Xiong et al., 2020](https://arxiv.org/abs/2002.04745) (pre-norm)
        - [Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467) (RMS)
    """

    kind: str = "layer"
    _: KW_ONLY
    at: str = "after"
    epsilon: float = 1e-5

    checks: ClassVar = {
        "kind": lambda name, value: check_choice(name, value, KINDS),
        "at": lambda name, value: check_choice(name, value, PLACES),
        "epsilon": check_positive,
    }


#: What a call has in place of arguments that are a field of a spec.
WITHIN = {
    name: f"{spec.__name__.lower()}=keras_posenc.{spec.__name__}({name}=...)"
    for spec in (Attention, Norm)
    for name in spec.checks
}
Attentions = (
    Attention
    | AttentionPosition
    | str
    | Sequence[Attention | AttentionPosition | str | None]
    | None
)


def check_norm(name: str, value: Any) -> Norm:
    """Returns a spec, also by its config, its kind or its place."""
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if isinstance(value, Norm):
        return value
    if isinstance(value, str) and value in KINDS:
        return Norm(value)
    if isinstance(value, str) and value in PLACES:
        return Norm(at=value)
    raise ValueError(
        f"`{name}` must be a keras_posenc.Norm, or one of its kinds or places: "
        f"{', '.join(map(repr, KINDS + PLACES))}. Received: {name}={value!r}"
    )


def check_attention(name: str, value: Any, dtype: Any) -> Attention:
    """Returns a spec whose position is a layer or None.

    Args:
        name: The name of the argument.
        value: A spec, its config, or a position, also by name.
        dtype: Dtype of a position that is made here.
    """
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if not isinstance(value, Attention):
        return Attention(check_attention_position(value, dtype, name))
    position = check_attention_position(value.position, dtype, name)
    return replace(value, position=position)


def check_across(name: str, value: Any, dtype: Any) -> Attention:
    """Returns a spec, as `check_attention`, that makes sense across.

    Raises:
        ValueError: It has a window; or its position depends on the length of a
            sequence, on how many keys come before a query, or on which of two
            tokens comes first.
    """
    spec = check_attention(name, value, dtype)
    if spec.window is not None:
        raise ValueError(
            f"`{name}` must have no window: the tokens of a memory are not "
            f"next to those of the inputs. Received: window={spec.window}"
        )
    position = spec.position
    if not isinstance(position, AttentionPosition):
        return spec
    for is_wrong, why in (
        (
            position.uses_length,
            "depends on the length of a sequence, and cross-attention has two: "
            "queries and keys would rotate differently",
        ),
        (
            position.counts_keys,
            "takes the position of a query for the number of keys before it. "
            "In cross-attention that is the length of the memory: leave this "
            "position out there, or give another one",
        ),
        (
            position.causal_only
            or position.steps is not None
            or position.contextual_bias is not None,
            "depends on the order of the tokens between a query and a key, "
            "which cross-attention does not have: leave the position out "
            "there, or give another one",
        ),
        (
            getattr(position, "bidirectional", True) is False,
            "with bidirectional=False distinguishes earlier keys from later "
            "ones, and the tokens of a memory are neither",
        ),
    ):
        if is_wrong:
            raise ValueError(f"{name_of(position)} {why}")
    return spec


def is_same(value: Any) -> bool:
    """Returns whether a value is `"same"`."""
    return isinstance(value, str) and value == "same"


def across_like(attention: Any) -> Any:
    """Returns what `"same"` is as a cross-attention, for a spec or a list."""
    if isinstance(attention, list):
        return [across_like(each) for each in attention]
    return replace(attention, position=None, window=None)


def name_of(position: AttentionPosition) -> str:
    """Names the class of a position, and its `rope_type` if it has one."""
    kind = getattr(position, "rope_type", None)
    return type(position).__name__ + (f" with rope_type={kind!r}" * bool(kind))


def by_block(
    name: str, value: Any, num_layers: Any, check: Any, dtype: Any
) -> tuple[Any, list[Any]]:
    """Checks one spec for all blocks, or a list with one for each.

    Returns:
        What was given, checked, and a list with the spec of each block.
    """
    count = check_positive_int("num_layers", num_layers)
    if not isinstance(value, list | tuple):
        checked = check(name, value, dtype)
        return checked, [checked] * count
    if len(value) != count:
        raise ValueError(
            f"`{name}` as a list must have one entry for each of "
            f"the {count} blocks. Received: {len(value)} entries"
        )
    each = [check(name, x, dtype) for x in value]
    return each, each
