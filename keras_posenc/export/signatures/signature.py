"""Signatures: the entry points of an exported model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.frozen import take_over

DEFAULT = "serving_default"

Shape = tuple[int | None, ...]

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Signature:
    """One entry point of an exported model.

    Attributes:
        name: Name of the signature.
        model: The model that it runs.
        specs: Shape and dtype of each input by name, batch dimension first.
        call: The function from a dict of tensors to a dict of tensors.
        oracle: How its outputs follow from those of another signature, if it
            does more than call the model.
        cut_at: The tensor of its model that is its input, where it is not the
            model's own.
        strings: The model of strings whose part after the strings it is, if it
            is one.
        add: What it adds to the model's outputs, of what they carry.
        own_names: The model's names of outputs that are called otherwise, by
            what they are called.
        arguments: How Keras's own function `serve` takes the inputs: for each
            argument the name of an input, or a list or dict of such.
        pack: From a dict of its outputs to what `serve` returns.
        programs: Batch sizes, with lengths, for which XLA compiles it, and for
            which it has to be verified.
    """

    name: str
    model: keras.Model
    specs: Mapping[str, keras.InputSpec]
    call: Callable[[Mapping[str, Any]], dict[str, Any]]
    oracle: "Oracle | None" = None
    cut_at: keras.KerasTensor | None = None
    strings: "StringModel | None" = None
    add: Callable[[dict[str, Any]], dict[str, Any]] = dict
    own_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    arguments: Sequence[Any] = ()
    pack: Callable[[dict[str, Any]], Any] = dict
    programs: Sequence[tuple[int, int]] = ()

    @property
    def has_serve(self) -> bool:
        """Whether Python finds it as `serve`, as in Keras's own exports."""
        names = keras.tree.flatten(list(self.arguments))
        return self.name == DEFAULT and sorted(names) == sorted(self.specs)

    def shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        """Each input's shape by name, with these for its dynamic axes."""
        return {
            name: tuple(
                (batch if axis == 0 else length) if size is None else size
                for axis, size in enumerate(spec.shape)
            )
            for name, spec in self.specs.items()
        }


@dataclasses.dataclass(frozen=True)
class StringModel:
    """A model of strings, of which a signature is the part after the strings.

    Attributes:
        signature: That of the strings.
        to_numbers: From its inputs to those of the part, as tensors.
    """

    signature: Signature
    to_numbers: Callable[[Mapping[str, Any]], dict[str, Any]]

    def cut(self, arrays: Arrays) -> Arrays:
        """From its inputs to those of the part."""
        import tensorflow as tf

        found = self.to_numbers(
            {name: tf.constant(array) for name, array in arrays.items()}
        )
        return {
            name: keras.ops.convert_to_numpy(tensor)
            for name, tensor in found.items()
        }


def _same(arrays: Arrays) -> Arrays:
    return arrays


@dataclasses.dataclass(frozen=True)
class Oracle:
    """How outputs of a signature follow from those of a simpler one.

    Of a signature that does more than call its model. The reference outputs
    come from the simpler signature, and what is added is computed in NumPy:
    not by the code that is exported.

    Attributes:
        base: The simpler signature.
        to_base: From inputs of this signature to inputs of the base.
        from_base: From outputs of the base to outputs of this signature.
        widen: From inputs of the base to inputs of this signature, for samples.
    """

    base: Signature
    to_base: Callable[[Arrays], Arrays] = _same
    from_base: Callable[[Arrays], Arrays] = _same
    widen: Callable[[Arrays], Arrays] = _same


def trace(signature: Signature) -> Any:
    """The signature as a TensorFlow graph function of dynamic shapes.

    Raises:
        ExportError: The model runs on numbers alone.
    """
    import tensorflow as tf

    def call(**inputs: Any) -> dict[str, Any]:
        for name, spec in signature.specs.items():
            # Servers feed what clients send, and TF-Text's operators end the
            # whole process where that is of another rank.
            if spec.dtype == "string":
                inputs[name] = tf.ensure_shape(inputs[name], spec.shape)
        return signature.call(inputs)

    try:
        function = tf.function(call, autograph=False).get_concrete_function(
            **{
                name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                for name, spec in signature.specs.items()
            }
        )
    except ExportError:
        raise
    except Exception as error:  # of the model's code, which may be anyone's
        raise ExportError(
            f"Model '{signature.model.name}' cannot be traced as a graph of "
            f"signature '{signature.name}': {error}"
        ) from error
    take_over(function)
    return function
