"""Specs of attention and norms, which layers and models take."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from typing import Any, Self

import keras

from keras_posenc.checks import (
    check_bool,
    check_choice,
    check_count,
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
    *("before output", "after output", "parallel"),
)


def _check_position(name: str, value: Any) -> Any:
    """Returns a position or the name of a kind, of which a layer makes one."""
    if isinstance(value, str) and value in ATTENTION_KINDS:
        return value
    return check_attention_position(value, None, name)


_check_size = or_none(check_positive_int)


def _check_bool_or_all(name: str, value: Any) -> Any:
    if isinstance(value, bool) or value == "all":
        return value
    raise ValueError(
        f"`{name}` must be True, False or 'all'. Received: {name}={value!r}"
    )


def _checked(default: Any, check: Callable[[str, Any], Any]) -> Any:
    """Returns a field of a spec, with the check of its values."""
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class _Spec(NamedOptions):
    """Base of the specs, which Keras saves."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            checked = each.metadata["check"](each.name, value)
            object.__setattr__(self, each.name, checked)

    def get_config(self) -> dict[str, Any]:
        return {
            name: keras.saving.serialize_keras_object(value)
            for name, value in vars(self).items()
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_posenc")
@dataclass(frozen=True)
class Attention(_Spec):
    """How the tokens of a block attend to one another.

    >>> import keras_posenc as kp
    >>> encoder = kp.TransformerEncoder(
    ...     num_layers=2,
    ...     num_heads=4,
    ...     attention=[
    ...         kp.Attention("rotary", window=64, num_key_value_heads=2),
    ...         kp.Attention("rotary", num_key_value_heads=2),
    ...     ],
    ... )

    For the argument `attention` of layers and models, where a position alone
    can be given in its place: `"rotary"` is `Attention("rotary")`, and None is
    `Attention()`. A stack takes a list too, with one for each block.

    Args:
        position: An `AttentionPosition`, whose weights all blocks with it
            share; the name of a kind, such as `"rotary"`, `"alibi"` or `"t5"`,
            of which a stack makes one, or one for each entry of a list; or
            None.
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
        value_norm: Whether each head's values are normalized too, by RMS
            without weights, as in Gemma 4.
        keys_as_values: Whether values are the keys, as they are before norm
            and rotation.
        keys_of: The number of an earlier block of the stack, from 0 on, whose
            keys and values are attended to; by default the block has its own.
            They come as they are there, rotated by the position there, so
            `value_norm` and `keys_as_values` are given to that block alone.

    Raises:
        ValueError: An invalid argument.

    References:
        - [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245) (grouped
          heads)
        - [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150) (windows)
        - [Henry et al., 2020](https://arxiv.org/abs/2010.04245) (norms of
          queries and keys)
    """

    position: AttentionPosition | str | None = field(
        default=None, metadata={"check": _check_position}
    )
    _: KW_ONLY
    window: int | None = _checked(None, _check_size)
    num_key_value_heads: int | None = _checked(None, _check_size)
    head_dim: int | None = _checked(None, _check_size)
    use_bias: bool | None = _checked(None, or_none(check_bool))
    query_key_norm: bool | str = _checked(False, _check_bool_or_all)
    value_norm: bool = _checked(False, check_bool)
    keys_as_values: bool = _checked(False, check_bool)
    keys_of: int | None = _checked(None, or_none(check_count))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("value_norm", "keys_as_values"):
            if self.keys_of is not None and getattr(self, name):
                raise ValueError(
                    f"`{name}` must be False with keys_of={self.keys_of}, "
                    f"whose values come as they are there. Received: {name}="
                    "True"
                )


@keras.saving.register_keras_serializable(package="keras_posenc")
@dataclass(frozen=True)
class Norm(_Spec):
    """Which norms a block has, and where.

    >>> import keras_posenc as kp
    >>> norm = kp.Norm("rms", at="before", epsilon=1e-6)
    >>> encoder = kp.TransformerEncoder(2, num_heads=4, norm=norm)

    For the argument `norm` of blocks, stacks and models, where a kind or a
    place alone can be given in its place: `"rms"` is `Norm("rms")`, and
    `"before"` is `Norm(at="before")`.

    Args:
        kind: `"layer"` or `"rms"`.
        at: Where norms are: `"after"` each residual (post-norm, the
            paper); `"before"` each sublayer (pre-norm); `"between"`, as
            before without the very first, for inputs that are normalized
            already, as in ModernBERT; at the `"output"` of each sublayer, as
            in OLMo 2; `"before output"`, both, as in Gemma 3;
            `"after output"`; or `"parallel"`, one before all sublayers of a
            block, which are computed from it and added together, as in
            Cohere's Command R. Except after residuals, a stack ends with a
            norm.
        epsilon: Added to the variance, above 0.

    Raises:
        ValueError: An invalid argument.

    References:
        - [Xiong et al., 2020](https://arxiv.org/abs/2002.04745) (pre-norm)
        - [Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467) (RMS)
    """

    kind: str = _checked("layer", partial(check_choice, choices=KINDS))
    _: KW_ONLY
    at: str = _checked("after", partial(check_choice, choices=PLACES))
    epsilon: float = _checked(1e-5, check_positive)


# What cross-attention does not have.
_OF_OWN_KEYS = ("value_norm", "keys_as_values", "keys_of")
#: What a call has in place of arguments that are a field of a spec.
WITHIN = {
    each.name: f"{argument}=keras_posenc.{spec.__name__}({each.name}=...)"
    for argument, spec in (("attention", Attention), ("norm", Norm))
    for each in fields(spec)
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
    """Returns a spec, also by its config or position, with a layer or None."""
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if not isinstance(value, Attention):
        return Attention(check_attention_position(value, dtype, name))
    position = check_attention_position(value.position, dtype, name)
    return replace(value, position=position)


def check_across(name: str, value: Any, dtype: Any) -> Attention:
    """Returns a spec, as `check_attention`, that makes sense across."""
    spec = check_attention(name, value, dtype)
    if spec.window is not None:
        raise ValueError(
            f"`{name}` must have no window: the tokens of a memory are not "
            f"next to those of the inputs. Received: window={spec.window}"
        )
    for own in _OF_OWN_KEYS:
        if getattr(spec, own) != getattr(Attention, own):
            raise ValueError(
                f"`{name}` must have no `{own}`, which is for self-attention. "
                f"Received: {own}={getattr(spec, own)!r}"
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
    usual = {name: getattr(Attention, name) for name in _OF_OWN_KEYS}
    return replace(attention, position=None, window=None, **usual)


def name_of(position: AttentionPosition) -> str:
    """Names the class of a position, and its `rope_type` if it has one."""
    kind = getattr(position, "rope_type", None)
    return type(position).__name__ + (f" with rope_type={kind!r}" * bool(kind))


def by_block(
    name: str, value: Any, num_layers: Any, check: Any, dtype: Any
) -> tuple[Any, list[Any]]:
    """Returns one spec for all blocks or a list, checked, and that of each."""
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
