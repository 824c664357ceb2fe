"""Signatures: the entry points of an exported model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

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
        oracle: How its outputs follow from those of a simpler signature, if it
            does more than call the model.
        cut_at: The tensor of the model that is its input, if not the model's
            own input.
        strings: The model of strings that it is cut from, if any.
        own_names: The model's names of renamed outputs, by their new names.
        arguments: How Keras's function `serve` takes the inputs: for each
            argument the name of an input, or a list or dict of names.
        pack: From a dict of its outputs to what `serve` returns.
        labels: From its outputs, such as a file's, to those of them that name
            the classes of scores.
    """

    name: str
    model: keras.Model
    specs: Mapping[str, keras.InputSpec]
    call: Callable[[Mapping[str, Any]], dict[str, Any]]
    oracle: "Oracle | None" = None
    cut_at: keras.KerasTensor | None = None
    strings: "StringModel | None" = None
    own_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    arguments: Sequence[Any] = ()
    pack: Callable[[dict[str, Any]], Any] = dict
    labels: Callable[[Arrays], Arrays] | None = None

    @property
    def innermost(self) -> "Signature":
        """The signature at the bottom of its oracles: the model alone."""
        return self if self.oracle is None else self.oracle.base.innermost

    def with_batch(self, size: int) -> "Signature":
        """Returns the signature for batches of one size alone."""
        specs = {
            name: keras.InputSpec(
                shape=(size, *spec.shape[1:]), dtype=spec.dtype
            )
            for name, spec in self.specs.items()
        }
        return dataclasses.replace(self, specs=specs)

    @property
    def has_serve(self) -> bool:
        """Whether Python finds it as `serve`, as in Keras's own exports."""
        names = keras.tree.flatten(list(self.arguments))
        return self.name == DEFAULT and sorted(names) == sorted(self.specs)

    @property
    def grid_axes(self) -> int:
        """The most dynamic axes of a grid besides the batch; 0 without a grid.

        A grid is an input with several such axes, as images and volumes have,
        in a signature without a sequence.
        """
        axes = [each.shape[1:].count(None) for each in self.specs.values()]
        return 0 if 1 in axes else max(axes, default=0)

    def shapes(
        self, batch: int, length: int, long: int | None = None, others: int = 0
    ) -> dict[str, tuple[int, ...]]:
        """Returns the inputs' shapes by name, with sizes for dynamic axes.

        These are `length`, but if `long` is given, only of that dynamic axis,
        counted from 0; then the others are `others`.
        """
        shapes = {}
        for name, spec in self.specs.items():
            sizes = [*spec.shape]
            if sizes and sizes[0] is None:
                sizes[0] = batch
            dynamic = [axis for axis, size in enumerate(sizes) if size is None]
            for index, axis in enumerate(dynamic):
                sizes[axis] = length if long in (None, index) else others
            shapes[name] = tuple(sizes)
        return shapes


@dataclasses.dataclass(frozen=True)
class StringModel:
    """A model of strings or lookups that a signature is cut from.

    Attributes:
        signature: The signature of the whole model.
        to_numbers: From its inputs to those of the cut signature, as tensors.
        layers: For each input of the cut signature that is no input of the
            whole: the name of the layer that makes it from one of these, or
            None if several operations are needed.
    """

    signature: Signature
    to_numbers: Callable[[Mapping[str, Any]], dict[str, Any]]
    layers: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    def cut(self, arrays: Arrays) -> Arrays:
        """Returns the inputs of the cut signature, as arrays."""
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
    """How a signature's outputs follow from those of a simpler one.

    For a signature that does more than call its model. The simpler signature is
    run, and the rest computed in NumPy: not by the code that is exported.

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
