"""Bases of public classes: arguments by name, checked, kept and explained."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras

from keras_posenc.checks import (
    check_bool,
    check_choice,
    check_count,
    check_max_wavelength,
    check_positive,
    check_positive_int,
    check_rate,
)
from keras_posenc.ops.positional_encoding import LAYOUTS
from keras_posenc.ops.suggestions import did_you_mean

_PACKAGE = __name__.partition(".")[0]
_SAVED_BY_KERAS = {"name", "dtype", "trainable"}
# Arguments of every layer, which Keras handles.
_OF_KERAS = {"input_shape", "input_dim"}
_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Check = Callable[[str, Any], Any]


def or_none(check: Check) -> Check:
    """Returns a check that None passes."""
    return lambda name, value: None if value is None else check(name, value)


_NAMES = {
    check_bool: "bidirectional embedding_norm last_axis_first normalize "
    "scale_inputs skip_masked skip_padding use_bias use_causal_mask "
    "use_gate use_logits_bias use_output_scale use_positions",
    check_positive_int: "d_model hidden_dim max_distance "
    "max_position num_buckets num_channels num_heads num_layers patch_size "
    "scale_base sequence_length start training_length vocabulary_size",
    or_none(check_positive): "logits_cap",
    check_positive: "alibi_bias_max attn_scale floor_scale initial_scale "
    "initial_threshold max_period min_period norm_epsilon",
    or_none(check_positive_int): "embedding_dim encoding_dim layer_input_dim "
    "memory_dim "
    "num_decoder_layers num_key_value_heads target_vocabulary_size",
    check_count: "num_class_tokens",
    check_rate: "dropout",
}


def _sizes(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [check_positive_int(name, each) for each in value]
    return check_positive_int(name, value)


#: The check of each constructor argument that means the same in every class.
CHECKS: dict[str, Check] = {
    **{
        name: check for check, names in _NAMES.items() for name in names.split()
    },
    "intermediate_dim": _sizes,
    "layout": lambda name, value: check_choice(name, value, LAYOUTS),
    "merge_mode": lambda name, value: check_choice(
        name, value, ("add", "concat", None)
    ),
    "max_wavelength": lambda _, value: check_max_wavelength(value),
    # By what a name ends with.
    "_initializer": lambda _, value: keras.initializers.get(value),
    "_regularizer": lambda _, value: keras.regularizers.get(value),
}


def checked_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those arguments that `CHECKS` knows, checked."""
    return {
        name: check(name, value)
        for name, value in given.items()
        if (check := CHECKS.get(name) or CHECKS.get(_ending(name)))
    }


def keep_arguments(layer: Any, given: Mapping[str, Any]) -> None:
    """Checks constructor arguments, such as `locals()`, and keeps them.

    What `CHECKS` does not know is left to the constructor.
    """
    for name, value in checked_arguments(given).items():
        setattr(layer, name, value)


def _ending(name: str) -> str:
    return f"_{name.rpartition('_')[2]}" if "_" in name else ""


class NamedOptions:
    """Base of classes, before Keras's: explains unknown arguments.

    `arguments_within` says, by name, of which argument something else is a
    part.
    """

    arguments_within: ClassVar[Mapping[str, str]] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Here, since Functional models do not pass arguments to `__init__`. A
        # user's own constructor decides itself what it takes.
        if kwargs and not _is_users(_constructors(cls)[0]):
            refuse_unknown(cls, kwargs)
        new = super().__new__
        return new(cls) if new is object.__new__ else new(cls, *args, **kwargs)


class NamedArguments(NamedOptions):
    """Base of layers and models, before Keras's own."""

    def rematerialized_call(self, *args: Any, **kwargs: Any) -> Any:
        # Keras's own way fails in graphs of TensorFlow, and draws other random
        # numbers in the second run.
        raise ValueError(
            f"{type(self).__name__} '{self.name}' does not work in a "  # type: ignore[attr-defined]
            "keras.RematScope: make it outside of the scope"
        )


class ConfiguredLayer(NamedArguments):
    """Base of layers that keep each constructor argument as an attribute."""

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()  # type: ignore[misc]
        return {**config, **config_of(self)}


def config_of(layer: Any) -> dict[str, Any]:
    """Serializes the constructor arguments of a layer, which are attributes.

    Of the package's own class: a user's subclass adds its arguments in its own
    `get_config`. Keras adds the arguments that it handles.
    """
    kind = next(x for x in _constructors(type(layer)) if _is_of(_PACKAGE, x))
    return {
        p.name: _serialized(p.name, getattr(layer, p.name))
        for p in _parameters(kind)
        if p.kind is not p.VAR_KEYWORD and p.name not in _SAVED_BY_KERAS
    }


def _serialized(name: str, value: Any) -> Any:
    if name == "activation":
        return keras.activations.serialize(value)
    if isinstance(value, dict):
        return {key: _serialized(key, each) for key, each in value.items()}
    value = list(value) if isinstance(value, tuple) else value  # as in JSON
    return keras.saving.serialize_keras_object(value)


def _constructors(kind: type) -> list[type]:
    """Returns the classes whose constructors run, the class's own first."""
    return [each for each in kind.__mro__[:-1] if "__init__" in vars(each)]


def _is_of(package: str, kind: type) -> bool:
    return f"{kind.__module__}.".startswith(f"{package}.")


def _is_users(kind: type) -> bool:
    return not _is_of(_PACKAGE, kind) and not _is_of("keras", kind)


def _parameters(kind: type) -> list[inspect.Parameter]:
    _, *rest = inspect.signature(vars(kind)["__init__"]).parameters.values()
    return rest


def refuse_unknown(kind: Any, given: dict[str, Any]) -> None:
    """Raises `ValueError` for a name that no constructor of a class takes."""
    known: set[str] = set()
    is_complete = False
    for each in _constructors(kind):
        if is_complete and _is_of(_PACKAGE, each):
            continue  # a base, whose other arguments are not for users
        parameters = _parameters(each)
        known |= {p.name for p in parameters if p.kind not in _SEVERAL}
        if _is_users(each):
            continue
        takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters)
        if not takes_more or not _is_of(_PACKAGE, each):
            break  # Keras's other bases get their arguments from it
        # `with_options` lists all arguments of a class.
        is_complete = hasattr(vars(each)["__init__"], "__signature__")
    of_keras = _OF_KERAS if issubclass(kind, keras.Layer) else set()
    unknown = next((x for x in given if x not in known | of_keras), None)
    if unknown is None:
        return
    call = getattr(kind, "call", None)
    of_call: Any = call and inspect.signature(call).parameters
    # Blocks alone get a context.
    if of_call and unknown != "context" and unknown in of_call:
        advice = f" (the call takes it: layer(x, {unknown}=...))"
    elif unknown in kind.arguments_within:
        advice = f": give {kind.arguments_within[unknown]}"
    else:
        advice = did_you_mean(unknown, known)
    raise ValueError(
        f"{kind.__name__} has no argument `{unknown}`{advice}"
        f"{'' if advice.endswith('?') else '.'} "
        f"It has: {', '.join(sorted(known))}"
    ) from None
