"""Rotary positions in configs, of before and after transformers 5."""

from collections.abc import Mapping
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checks import check_max_wavelength
from keras_posenc.ops.rotary_scaling import LENGTH, OPTIONAL, REQUIRED
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.text.files import shown


def rotary_of(
    config: Config,
    theta: Any,
    head_dim: int | None = None,
    scaling: Mapping[str, Any] | None = None,
) -> RotaryEmbedding:
    """Returns the rotary positions of a model whose blocks all have the same.

    Args:
        config: The config.
        theta: The base where the config has none.
        head_dim: How many features are rotated, for a model that may have the
            `"ntk"` scaling of older configs.
        scaling: As `RotaryEmbedding` takes it, by keys of other code; a config
            with `rope_parameters`, which transformers reads alone, has none.
    """
    # There is no table that ends: this is only the length in training.
    config.take("max_position_embeddings", None)
    given = config.take("rope_parameters", None)
    if given is not None:
        rotary = _rotary(config.part("rope_parameters", given), theta)
        config.expect("rope_theta", rotary.max_wavelength)  # repeated
        return rotary
    older = config.take("rope_scaling", None)
    rotary = _of_base(config, "rope_theta", theta, scaling)
    if older is None:
        return rotary
    if head_dim is None:
        raise config.wrong("rope_scaling", f"{shown(older)} is not supported")
    return _ntk(config.part("rope_scaling", older), rotary, head_dim)


def _ntk(
    scaling: Config, rotary: RotaryEmbedding, head_dim: int
) -> RotaryEmbedding:
    """Returns rotary positions with a larger base and all pairs slower.

    Pair `j` turns by `(base * factor) ** (-2 j / dim) / factor ** (2 / dim)`,
    at any length: [Su, 2023](https://kexue.fm/archives/9706).
    """
    scaling.require("type", "ntk")
    scaling.expect("mixed_b", None)
    factor = scaling.positive("factor")
    if factor < 1:
        raise scaling.wrong("factor", f"it must be at least 1, and is {factor}")
    scaling.finish()
    return RotaryEmbedding(
        max_wavelength=rotary.max_wavelength * factor,
        scaling={"rope_type": "linear", "factor": factor ** (2 / head_dim)},
        layout=rotary.layout,
        name=rotary.name,
    )


def scaled_rotary_of(config: Config, theta: float) -> RotaryEmbedding:
    """Returns the rotary positions of a decoder, scaled as its config says.

    Args:
        config: The config.
        theta: The base where the config has none.

    Raises:
        ValueError: The scaling is unknown, or depends on the length of a text.
    """
    length = config.take("max_position_embeddings", None)
    base = config.take("rope_theta", theta)
    older, given = (
        config.take(key, None, dict, type(None)) or {}
        for key in ("rope_scaling", "rope_parameters")
    )
    if older and given and older != given:
        raise config.wrong(
            "rope_scaling",
            f"{shown(older)} differs from 'rope_parameters', {shown(given)}",
        )
    key = "rope_scaling" if older else "rope_parameters"
    parameters = Config(older or given, f"{config.path}', '{key}")
    rotary = scaled_rotary(parameters, base, length)
    if "rope_theta" in config.values and base != rotary.max_wavelength:
        raise config.wrong(
            "rope_theta",
            f"{shown(base)} differs from that of '{key}', "
            f"{rotary.max_wavelength}",
        )
    return rotary


def scaled_rotary(
    parameters: Config, theta: Any, length: Any
) -> RotaryEmbedding:
    """Returns rotary positions from the keys of `rope_parameters`.

    Args:
        parameters: These keys.
        theta: The base where they have none.
        length: The length in training, where they have none.

    Raises:
        ValueError: The scaling is unknown, or depends on the length of a text.
    """
    parameters.rename("type", "rope_type")
    kind = parameters.expect("rope_type", "default", "linear", "llama3", "yarn")
    rotary = _of_base(parameters, "rope_theta", theta)
    parameters.expect("partial_rotary_factor", 1.0, None)
    scaling = {
        key: parameters.take(key, None)
        for key in (*REQUIRED[kind], *OPTIONAL.get(kind, ()))
    }
    if LENGTH in scaling and scaling[LENGTH] is None:
        scaling[LENGTH] = length
    parameters.finish()
    if kind == "default":
        return rotary
    try:
        return RotaryEmbedding(
            max_wavelength=rotary.max_wavelength,
            scaling={"rope_type": kind, **scaling},
            layout=rotary.layout,
            name=rotary.name,
        )
    except ValueError as error:
        raise parameters.wrong("rope_type", str(error)) from None


def rotary_by_kind(
    config: Config, kinds: Mapping[str, tuple[str, float]]
) -> dict[str, RotaryEmbedding]:
    """Returns rotary positions by kind of block.

    Args:
        config: The config.
        kinds: For each kind, the key of its base in older configs, and the
            base where the config has none.
    """
    parameters = config.part("rope_parameters", {})
    found = {}
    for kind, (key, theta) in kinds.items():
        older = _of_base(config, key, theta)
        given = parameters.take(kind, None)
        found[kind] = (
            older
            if given is None
            else _rotary(parameters.part(kind, given), theta)
        )
    parameters.finish()
    return found


def _rotary(parameters: Config, theta: float) -> RotaryEmbedding:
    parameters.expect("rope_type", "default")
    rotary = _of_base(parameters, "rope_theta", theta)
    parameters.finish()
    return rotary


def _of_base(
    config: Config,
    key: str,
    theta: float,
    scaling: Mapping[str, Any] | None = None,
) -> RotaryEmbedding:
    base = config.checked(
        key, lambda _, value: check_max_wavelength(value), theta
    )
    return RotaryEmbedding(
        max_wavelength=base,
        scaling=scaling,
        layout="halves",
        name="rotary_embedding",
    )
