"""Bases of what users construct and call, for words on wrong arguments."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import keras

from keras_posenc.ops.foreign_names import argument_advice
from keras_posenc.ops.recomputable import Recomputable

_PACKAGE = __name__.partition(".")[0]
# What Keras takes out of the keywords of any layer.
_OF_KERAS = {"input_shape", "input_dim"}


class NamedOptions:
    """Base of classes, before Keras's: says what an unknown argument is.

    A subclass names in `hidden_arguments` what its constructor or its call
    takes from the package's own code alone.
    """

    hidden_arguments: ClassVar[frozenset[str]] = frozenset()
    # Whether it is called on vectors, whose width needs no argument.
    takes_vectors: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Here, where the arguments of Functional models are seen as well.
        _refuse_unknown(cls, kwargs)
        new = super().__new__
        return new(cls) if new is object.__new__ else new(cls, *args, **kwargs)


class NamedArguments(NamedOptions, Recomputable):
    """Base of layers and models, before Keras's own.

    Says what an unknown argument of the constructor is, and what an argument
    of the call that came without its name is called.
    """

    takes_vectors = True
    takes_ragged: ClassVar[bool] = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1:
            _refuse_unnamed(self, args)
        if not self.takes_ragged:
            _refuse_ragged(self, args, kwargs)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]


def _refuse_unknown(kind: type[NamedOptions], given: dict[str, Any]) -> None:
    """Raises `ValueError` for a name that no constructor of a class takes."""
    known: set[str] = set()
    first = True
    for each in kind.__mro__[:-1]:
        if "__init__" not in vars(each):
            continue
        own = each.__module__.startswith(_PACKAGE)
        if first and not own and not each.__module__.startswith("keras."):
            return  # a user's own constructor says itself what it takes
        parameters = inspect.signature(vars(each)["__init__"]).parameters
        hidden = frozenset() if first else kind.hidden_arguments
        known |= {
            name
            for name, parameter in parameters.items()
            if parameter.kind
            in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        } - hidden
        first = False
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            break
        if not own:
            break  # Keras's further bases take what it hands them
    known.discard("self")
    takes_more = _OF_KERAS if issubclass(kind, keras.Layer) else set()
    unknown = next((x for x in given if x not in known | takes_more), None)
    if unknown is None:
        return
    if unknown in {*_call_names(kind)[0]} - kind.hidden_arguments:
        advice = f" (the call takes it: layer(x, {unknown}=...))"
    else:
        advice = argument_advice(
            unknown, known, takes_vectors=kind.takes_vectors
        )
    raise ValueError(
        f"{kind.__name__} has no argument `{unknown}`{advice}"
        f"{'' if advice.endswith('?') else '.'} "
        f"It has: {', '.join(sorted(known))}"
    )


def _call_names(kind: type) -> tuple[list[str], float]:
    """The arguments of a class's call, and how many may come unnamed."""
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
    """Raises `TypeError` for call arguments that came without their names."""
    names, most = _call_names(type(layer))
    if len(args) <= most:
        return
    names = [each for each in names if each not in layer.hidden_arguments]
    inputs = getattr(layer, "inputs", None) or []
    if isinstance(layer, keras.Model) and len(inputs) == len(args):
        pairs = ", ".join(f"{each.name!r}: {each.name}" for each in inputs)
        remedy = f"{layer.name}({{{pairs}}})"
    elif meant := _meant(args[1], names):
        remedy = f"{layer.name}(x, {meant}={meant})"
    else:
        remedy = f"{layer.name}(x, NAME=...), NAME one of {', '.join(names)}"
    raise TypeError(
        f"{type(layer).__name__} '{layer.name}' takes one argument without a "
        f"name, its inputs. Received: {len(args)}. Give the others by name: "
        f"{remedy}"
    )


def _meant(value: Any, names: list[str]) -> str | None:
    """Which argument a value can only be, if that is to be seen of it."""
    if isinstance(value, bool):
        name = "training"
    elif not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None
    else:
        dtype = keras.backend.standardize_dtype(value.dtype)
        kind = "float" if "float" in dtype else dtype
        name = {
            ("bool", 2): "mask",
            ("bool", 3): "attention_mask",
            ("float", 3): "memory",
        }.get((kind, len(value.shape)), "")
    return name if name in names else None


def _refuse_ragged(
    layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises `ValueError` for a RaggedTensor, which has no shape to go by."""
    named = [(None, each) for each in args[:1]] + [*kwargs.items()]
    for name, value in named:
        ragged = next(filter(_is_ragged, _flat(value)), None)
        if ragged is None:
            continue
        call, masks = layer.name, _call_names(type(layer))[0]
        if "int" in keras.backend.standardize_dtype(ragged.dtype):
            pad = getattr(layer, "pad_id", 0)
            remedy = f"x.to_tensor({pad or ''})"
            what = "padded ids"
        else:
            mask = "mask" if name in (None, "inputs") else f"{name}_mask"
            remedy, what = "x.to_tensor()", "a padded tensor"
            if mask in masks:
                what += " and its mask"
                remedy += f", {mask}=tf.sequence_mask(x.row_lengths())"
        given = f"x, {name}=" if name not in (None, "inputs") else ""
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}' takes no RaggedTensor. "
            f"Received: `{name or 'inputs'}` of shape {ragged.shape}. Give "
            f"{what}: {call}({given}{remedy})"
        )


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    yield from value if isinstance(value, list | tuple) else [value]


def _is_ragged(value: Any) -> bool:
    return hasattr(value, "nested_row_splits")
