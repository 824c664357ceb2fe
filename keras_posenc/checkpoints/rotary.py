"""Rotary positions in configs, of before and after transformers 5."""

from collections.abc import Callable, Mapping
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checks import (
    check_max_wavelength,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.rotary import LENGTH, OPTIONAL, REQUIRED, SHARE
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.text.files import shown

_KEYS = ("rope_scaling", "rope_parameters")
# Scalings that do not depend on the length of a text.
KINDS = ("default", "linear", "llama3", "yarn")


def rotary_of(
    config: Config,
    theta: Any,
    *,
    kinds: tuple[str, ...] = KINDS,
    scaling: Mapping[str, Any] | None = None,
    head_dim: int = 0,
    share: float | None = None,
    layout: str = "halves",
) -> RotaryEmbedding:
    """Returns the rotary positions of a model whose blocks all have the same.

    `theta` is the base where the config has none, `scaling` that of other code.
    `share` of the features are rotated where the config does not say; None
    means always all.
    """
    older, given = (_taken(config, key) for key in _KEYS)
    if older and given and older != given:
        raise config.wrong(
            "rope_scaling",
            f"{shown(older)} differs from 'rope_parameters', {shown(given)}",
        )
    if scaling is not None and not (older or given):
        older, kinds = dict(scaling), (scaling["rope_type"],)
    key = "rope_scaling" if older else "rope_parameters"
    parameters = Config(older or given, f"{config.path}', '{key}")
    length = config.take("max_position_embeddings", None)
    original = config.take(LENGTH, None)
    base = _base(config, "rope_theta", parameters, theta)
    if share is not None:
        share = _said(config, SHARE, parameters, SHARE, check_positive, share)
    return _rotary(
        parameters, base, length, kinds, head_dim, share, layout, original
    )


def rotary_by_kind(
    config: Config,
    bases: Mapping[str, tuple[str, float]],
    kinds: tuple[str, ...] = KINDS,
) -> dict[str, RotaryEmbedding]:
    """Returns rotary positions by kind of block.

    `bases` are, for each kind, the key of its base in older configs, and the
    usual base. The first kind is the one that older configs may scale. `kinds`
    are those of scalings.
    """
    older, given = (_taken(config, key) for key in _KEYS)
    whole = Config(given, f"{config.path}', 'rope_parameters")
    length = config.take("max_position_embeddings", None)
    found = {}
    for kind, (key, theta) in bases.items():
        values = {**_taken(whole, kind), **older}
        older = {}
        parameters = Config(values, f"{whole.path}', '{kind}")
        base = _base(config, key, parameters, theta)
        found[kind] = _rotary(parameters, base, length, kinds)
    whole.finish()
    return found


def _taken(config: Config, key: str) -> dict[str, Any]:
    return config.take(key, None, dict, type(None)) or {}


def _base(config: Config, key: str, parameters: Config, theta: Any) -> float:
    def check(_: str, value: Any) -> float:
        return check_max_wavelength(value)

    return _said(config, key, parameters, "rope_theta", check, theta)


def _said(
    config: Config,
    key: str,
    parameters: Config,
    name: str,
    check: Callable[[str, Any], Any],
    usual: float,
) -> float:
    """Returns a number that the config or its scaling says, or both."""
    said = config.take(key, None)
    found = parameters.checked(name, check, usual if said is None else said)
    if said not in (None, found):
        raise config.wrong(
            key,
            f"{shown(said)} differs from that of the rotary positions, {found}",
        )
    return float(found)


def _rotary(
    parameters: Config,
    base: float,
    length: Any,
    kinds: tuple[str, ...] = KINDS,
    head_dim: int = 0,
    share: float | None = None,
    layout: str = "halves",
    original: Any = None,
) -> RotaryEmbedding:
    """Returns rotary positions from the keys of `rope_parameters`.

    The scaling `"ntk"` has a larger base and all pairs slower: pair `j` turns
    by `(base * factor) ** (-2 j / dim) / factor ** (2 / dim)`, at any length
    ([Su, 2023](https://kexue.fm/archives/9706)).
    """
    parameters.rename("type", "rope_type")
    kind = parameters.expect("rope_type", *kinds)
    if share is None and kind != "proportional":
        parameters.expect(SHARE, 1.0, None)
    if kind == "ntk":
        parameters.expect("mixed_b", None)
        factor = parameters.positive("factor")
        if factor < 1:
            raise parameters.wrong(
                "factor", f"it must be at least 1, and is {factor}"
            )
        base *= factor
        scaling = {"rope_type": "linear", "factor": factor ** (2 / head_dim)}
    else:
        names = (*REQUIRED[kind], *OPTIONAL.get(kind, ()))
        scaling = {name: parameters.take(name, None) for name in names}
        if LENGTH in scaling and original is not None:
            scaling[LENGTH] = original
        elif LENGTH in scaling and scaling[LENGTH] is None:
            scaling[LENGTH] = length
        scaling["rope_type"] = kind
    parameters.finish()
    try:
        if kind == "longrope" and scaling["factor"] is None:
            whole = check_positive_int("max_position_embeddings", length)
            part = check_positive_int(LENGTH, scaling[LENGTH])
            scaling["factor"] = whole / part
        return RotaryEmbedding(
            max_wavelength=base,
            scaling=scaling,
            layout=layout,
            partial_rotary_factor=1.0 if share is None else share,
            name="rotary_embedding",
        )
    except ValueError as error:
        raise parameters.wrong("rope_type", str(error)) from None
