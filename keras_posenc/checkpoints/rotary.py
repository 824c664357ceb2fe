"""Rotary positions, as configs say them, of before and after transformers 5."""

from collections.abc import Mapping

from keras_posenc.checkpoints.config import Config
from keras_posenc.ops.arguments import check_max_wavelength
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
        return _of_base(config, "rope_theta", theta)
    return _rotary(config.part("rope_parameters", given), theta)


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
