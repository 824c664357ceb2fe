"""Bases of public classes, which explain wrong arguments."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import keras

from keras_posenc.ops.recomputable import Recomputable
from keras_posenc.ops.suggestions import did_you_mean

_PACKAGE = __name__.partition(".")[0]
_SAVED_BY_KERAS = {"name", "dtype", "trainable"}
# Arguments of every layer, which Keras handles.
_OF_KERAS = {"input_shape", "input_dim"}


class NamedOptions:
    """Base of classes, before Keras's: explains unknown arguments.

    `hidden_arguments` of a subclass are arguments of its constructor or its
    call that only the package's own code uses.
    """

    hidden_arguments: ClassVar[frozenset[str]] = frozenset()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Here, since Functional models do not pass arguments to `__init__`. A
        # user's own constructor decides itself what it takes.
        if (args or kwargs) and not _is_users(_constructors(cls)[0]):
            _refuse_unnamed_options(cls, args)
            refuse_unknown(cls, kwargs)
        new = super().__new__
        return new(cls) if new is object.__new__ else new(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except (TypeError, ValueError):
            # A user's constructor passed on what Keras does not take.
            refuse_unknown(type(self), kwargs)
            raise


class NamedArguments(NamedOptions, Recomputable):
    """Base of layers and models, before Keras's own.

    Explains unknown arguments of the constructor, and arguments of the call
    that were given without their names.
    """

    takes_ragged: ClassVar[bool] = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1:
            _refuse_unnamed(self, args)
        if not self.takes_ragged:
            _refuse_ragged(self, args, kwargs)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]


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
    return [
        each
        for each in kind.__mro__[:-1]
        if "__init__" in vars(each) and each is not NamedOptions
    ]


def _is_of(package: str, kind: type) -> bool:
    return f"{kind.__module__}.".startswith(f"{package}.")


def _is_users(kind: type) -> bool:
    return not _is_of(_PACKAGE, kind) and not _is_of("keras", kind)


def _parameters(kind: type) -> list[inspect.Parameter]:
    """Returns the parameters of a class's own constructor."""
    _, *rest = inspect.signature(vars(kind)["__init__"]).parameters.values()
    return rest


def _refuse_unnamed_options(kind: type[NamedOptions], args: Any) -> None:
    """Raises `TypeError` for constructor arguments without their names."""
    parameters = _parameters(_constructors(kind)[0])
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return
    places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) <= len(places):
        return
    known = _arguments(kind)
    taken = ", ".join(f"`{each}`" for each in places) or "none"
    raise TypeError(
        f"{kind.__name__} takes these arguments without a name: {taken}. "
        f"Received: {len(args)}. "
        f"Give others by name: {', '.join(sorted(known - {*places}))}"
    )


def _arguments(kind: type[NamedOptions]) -> set[str]:
    """Returns what a class's constructors take."""
    known: set[str] = set()
    hidden: frozenset[str] = frozenset()
    for each in _constructors(kind):
        parameters = _parameters(each)
        named = [
            p
            for p in parameters
            if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
            and p.name not in hidden
        ]
        known |= {p.name for p in named}
        if _is_users(each):
            continue
        hidden = kind.hidden_arguments
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
        if not _is_of(_PACKAGE, each):
            break  # Keras's other bases get their arguments from it
    return known


def refuse_unknown(kind: type[NamedOptions], given: dict[str, Any]) -> None:
    """Raises `ValueError` for a name that no constructor of a class takes."""
    known = _arguments(kind)
    takes_more = _OF_KERAS if issubclass(kind, keras.Layer) else set()
    unknown = next((x for x in given if x not in known | takes_more), None)
    if unknown is None:
        return
    if unknown in {*_call_names(kind)[0]} - kind.hidden_arguments:
        advice = f" (the call takes it: layer(x, {unknown}=...))"
    else:
        advice = did_you_mean(unknown, known)
    raise ValueError(
        f"{kind.__name__} has no argument `{unknown}`{advice}"
        f"{'' if advice.endswith('?') else '.'} "
        f"It has: {', '.join(sorted(known))}"
    ) from None


def _call_names(kind: type) -> tuple[list[str], float]:
    """Returns the arguments of a call, and how many may be unnamed."""
    call = getattr(kind, "call", None)
    return ([], float("inf")) if call is None else _names_of(call)


@functools.cache
def _names_of(call: Callable[..., Any]) -> tuple[list[str], float]:
    _, *parameters = inspect.signature(call).parameters.values()  # no `self`
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return names, float("inf")
    return names, sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


def _refuse_unnamed(layer: Any, args: tuple[Any, ...]) -> None:
    """Raises `TypeError` for call arguments without their names."""
    names, most = _call_names(type(layer))
    if len(args) <= most:
        return
    names = [each for each in names if each not in layer.hidden_arguments]
    inputs = getattr(layer, "inputs", None) or []
    given = [each for each in args[1:] if each is not None]
    if isinstance(layer, keras.Model) and len(inputs) > 1:
        pairs = ", ".join(f"{each.name!r}: {each.name}" for each in inputs)
        remedy = f"all inputs in one dict: {layer.name}({{{pairs}}})"
    elif not given:
        remedy = f"it alone, without None: {layer.name}(x)"
    elif meant := _meant(given[0], names):
        remedy = f"the others by name: {layer.name}(x, {meant})"
    elif all(each is args[0] for each in given):
        # As in `attention(query, value)`, for self-attention.
        remedy = f"it once: {layer.name}(x)"
    else:
        remedy = "the others by name: "
        remedy += f"{layer.name}(x, NAME=...), NAME one of {', '.join(names)}"
    raise TypeError(
        f"{type(layer).__name__} '{layer.name}' takes one argument without a "
        f"name, its inputs. Received: {len(args)}. Give {remedy}"
    )


def _meant(value: Any, names: list[str]) -> str | None:
    """Returns the only argument that a value can be, or None."""
    if isinstance(value, bool):
        return f"training={value}"  # an argument of every layer
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None
    dtype = keras.backend.standardize_dtype(value.dtype)
    kind = "float" if "float" in dtype else dtype
    name = {
        ("bool", 2): "mask",
        ("bool", 3): "attention_mask",
        ("float", 3): "memory",
    }.get((kind, len(value.shape)), "")
    return f"{name}={name}" if name in names else None


def _refuse_ragged(
    layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises `ValueError` for a RaggedTensor, which has no usable shape."""
    named = [(None, each) for each in args[:1]] + [*kwargs.items()]
    for name, value in named:
        ragged = next(filter(_is_ragged, _flat(value)), None)
        if ragged is None:
            continue
        masks = _call_names(type(layer))[0]
        is_inputs = name in (None, "inputs")
        x = "x" if is_inputs else str(name)
        mask = "mask" if is_inputs else f"{name}_mask"
        is_integer = "int" in keras.backend.standardize_dtype(ragged.dtype)
        what = "a padded tensor"
        pad: Any = ""
        if is_inputs and is_integer:
            what, pad = "padded ids", getattr(layer, "pad_id", 0) or ""
        if isinstance(value, dict):
            pairs = ", ".join(
                f"{key!r}: {key}" + f".to_tensor({pad})" * _is_ragged(each)
                for key, each in value.items()
            )
            remedy = f"{{{pairs}}}"
        else:
            remedy = f"{x}.to_tensor({pad})"
        if not is_integer and mask in masks:
            what += " and its mask"
            remedy += f", {mask}=tf.sequence_mask({x}.row_lengths())"
        given = "" if is_inputs else f"x, {name}="
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}' takes no RaggedTensor. "
            f"Received: `{name or 'inputs'}` of shape {ragged.shape}. Give "
            f"{what}: {layer.name}({given}{remedy})"
        )


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    yield from value if isinstance(value, list | tuple) else [value]


def _is_ragged(value: Any) -> bool:
    return hasattr(value, "nested_row_splits")
