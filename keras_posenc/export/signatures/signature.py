"""A signature is a Keras model with a name, and names for what it takes."""

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
    """One entry point of an artifact.

    Attributes:
        name: Name of the signature.
        model: The model that answers.
        specs: Shape and dtype of each input by name, batch dimension first.
        call: The function from a dict of tensors to a dict of tensors.
        origin: What it was made of, if it does more than call the model.
        cut_at: The tensor of its model that is its input, where it is not the
            model's own.
        whole: The model of strings that it stands for, if it does.
        add: What it adds to the model's outputs, of what they carry.
        own_names: The model's names of outputs that are called otherwise, by
            what they are called.
        arguments: How Keras's own function `serve` takes the inputs: for each
            argument the name of an input, or a list or dict of such.
        pack: From a dict of its outputs to what `serve` returns.
        asked: Batch sizes, with lengths, for which it is made in another way,
            and so has to be verified.
    """

    name: str
    model: keras.Model
    specs: Mapping[str, keras.InputSpec]
    call: Callable[[Mapping[str, Any]], dict[str, Any]]
    origin: "Origin | None" = None
    cut_at: keras.KerasTensor | None = None
    whole: "Whole | None" = None
    add: Callable[[dict[str, Any]], dict[str, Any]] = dict
    own_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    arguments: Sequence[Any] = ()
    pack: Callable[[dict[str, Any]], Any] = dict
    asked: Sequence[tuple[int, int]] = ()

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
class Whole:
    """A model of strings for which its part behind them stands.

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
class Origin:
    """What a signature was made of that does more than call its model.

    Verification asks the model through the older signature, and does what the
    newer one adds in NumPy: an oracle in other code than what it judges.

    Attributes:
        signature: The older signature.
        ask: Inputs of the newer as inputs of the older.
        tell: Answers of the older as answers of the newer.
        widen: Inputs of the older as inputs of the newer, to verify with.
    """

    signature: Signature
    ask: Callable[[Arrays], Arrays] = _same
    tell: Callable[[Arrays], Arrays] = _same
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
