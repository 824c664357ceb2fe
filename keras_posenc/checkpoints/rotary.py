"""Rotary positions, as configs say them, of before and after transformers 5."""

from collections.abc import Mapping
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checks import check_max_wavelength
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.text.files import shown


def rotary_of(
    config: Config, theta: Any, head_dim: int | None = None
) -> RotaryEmbedding:
    """The positions of a model that has one kind of them.

    Args:
        config: What says so.
        theta: The base where nothing is said.
        head_dim: How many features turn, for a model that may have the `"ntk"`
            scaling of older configs.
    """
    # No table ends: how long the model was trained on is all that it says.
    config.take("max_position_embeddings", None)
    given = config.take("rope_parameters", None)
    if given is not None:
        rotary = _rotary(config.part("rope_parameters", given), theta)
        config.expect("rope_theta", rotary.max_wavelength)  # said once more
        return rotary
    scaling = config.take("rope_scaling", None)
    rotary = _of_base(config, "rope_theta", theta)
    if scaling is None:
        return rotary
    if head_dim is None:
        raise config.wrong("rope_scaling", f"{shown(scaling)} is not supported")
    return _ntk(config.part("rope_scaling", scaling), rotary, head_dim)


def _ntk(
    scaling: Config, rotary: RotaryEmbedding, head_dim: int
) -> RotaryEmbedding:
    """A larger base, and no pair left as it was.

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


def rotary_by_kind(
    config: Config, kinds: Mapping[str, tuple[str, float]]
) -> dict[str, RotaryEmbedding]:
    """Those of a model whose blocks differ in them.

    Args:
        config: What says so.
        kinds: By the name of each kind, the key that its base has in older
            configs, and the base where nothing is said.
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


def _of_base(config: Config, key: str, theta: float) -> RotaryEmbedding:
    base = config.checked(
        key, lambda _, value: check_max_wavelength(value), theta
    )
    return RotaryEmbedding(
        max_wavelength=base, layout="halves", name="rotary_embedding"
    )
