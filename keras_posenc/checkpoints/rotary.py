"""Rotary positions, as configs say them, of before and after transformers 5."""

from collections.abc import Mapping
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.positional.rotary_embedding import RotaryEmbedding


def rotary_of(config: Config, theta: float) -> RotaryEmbedding:
    """The positions of a model that has one kind of them.

    Args:
        config: What says so.
        theta: The base where nothing is said.
    """
    # No table ends: how long the model was trained on is all that it says.
    config.take("max_position_embeddings", None)
    given = config.take("rope_parameters", None)
    if given is None:
        config.expect("rope_scaling", None)
        given = {"rope_theta": config.number("rope_theta", theta)}
    return _rotary(config, given, theta)


def rotary_by_kind(
    config: Config, kinds: Mapping[str, tuple[str, float]]
) -> dict[str, RotaryEmbedding]:
    """Those of a model whose blocks differ in them.

    Args:
        config: What says so.
        kinds: By the name of each kind, the key that its base has in older
            configs, and the base where nothing is said.
    """
    given = config.take("rope_parameters", {})
    return {
        kind: _rotary(
            config,
            given.get(kind, {"rope_theta": config.number(key, theta)}),
            theta,
        )
        for kind, (key, theta) in kinds.items()
    }


def _rotary(
    config: Config, given: Mapping[str, Any], theta: float
) -> RotaryEmbedding:
    rest = Config(given, f"{config.path}, rope_parameters")
    rest.expect("rope_type", "default")
    base = rest.number("rope_theta", theta)
    rest.finish()
    return RotaryEmbedding(
        max_wavelength=base, layout="halves", name="rotary_embedding"
    )
