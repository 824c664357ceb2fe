"""Signatures: the entry points of an exported model."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

DEFAULT = "serving_default"
_MANY = 2**27  # weights, half a GB of float32

Shape = tuple[int | None, ...]

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Signature:
    """One entry point of an exported model."""

    name: str
    model: keras.Model  # that it runs
    specs: Mapping[str, keras.InputSpec]  # of its inputs, batch first
    call: Callable[[Mapping[str, Any]], dict[str, Any]]  # of tensors
    # How its outputs follow from a simpler signature's, if it does more than
    # call the model.
    oracle: "Oracle | None" = None
    # The tensor of the model that is its input, if not the model's own input,
    # and the model of strings that it is cut from.
    cut_at: keras.KerasTensor | None = None
    strings: "StringModel | None" = None
    # The model's names of renamed outputs, by their new names.
    own_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # How Keras's function `serve` takes the inputs: for each argument the name
    # of an input, or a list or dict of names; and what it returns of a dict.
    arguments: Sequence[Any] = ()
    pack: Callable[[dict[str, Any]], Any] = dict
    # From outputs, such as a file's, to those that name the classes of scores.
    labels: Callable[[Arrays], Arrays] | None = None

    @functools.cached_property
    def is_large(self) -> bool:
        """Whether tracing the model, and each run, takes seconds."""
        return sum(math.prod(x.shape) for x in self.model.weights) > _MANY

    @property
    def innermost(self) -> "Signature":
        """The signature at the bottom of its oracles: the model alone."""
        return self if self.oracle is None else self.oracle.base.innermost

    def with_batch(self, size: int) -> "Signature":
        """Returns the signature for batches of one size alone."""
        specs = {
            name: keras.InputSpec(shape=(size, *x.shape[1:]), dtype=x.dtype)
            for name, x in self.specs.items()
        }
        return dataclasses.replace(self, specs=specs)

    @property
    def has_serve(self) -> bool:
        """Whether Python finds it as `serve`, as in Keras's own exports."""
        names = keras.tree.flatten(list(self.arguments))
        return self.name == DEFAULT and sorted(names) == sorted(self.specs)

    @property
    def grid_axes(self) -> int:
        """The most dynamic axes of an input, as of images; 0 of sequences."""
        axes = [each.shape[1:].count(None) for each in self.specs.values()]
        return 0 if 1 in axes else max(axes, default=0)

    def shapes(
        self, batch: int, length: int, long: int | None = None, others: int = 0
    ) -> dict[str, tuple[int, ...]]:
        """Returns the inputs' shapes, with sizes for dynamic axes.

        If `long` is given, only that axis has the length, and others `others`.
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
    """A model of strings or lookups that a signature is cut from."""

    signature: Signature  # of the whole model
    names: Sequence[str]  # of the cut signature's inputs
    made: Mapping[str, keras.KerasTensor]  # those that the whole computes

    @functools.cached_property
    def _preprocessing(self) -> keras.Model:
        return keras.Model(self.signature.model.inputs, dict(self.made))

    def cut(self, arrays: Arrays) -> Arrays:
        """Returns the inputs of the cut signature, as arrays."""
        import tensorflow as tf

        given = [tf.constant(arrays[name]) for name in self.signature.specs]
        found = {**arrays, **self._preprocessing(given)}
        return {
            name: keras.ops.convert_to_numpy(found[name]) for name in self.names
        }


def _same(arrays: Arrays) -> Arrays:
    return arrays


@dataclasses.dataclass(frozen=True)
class Oracle:
    """How outputs follow, in NumPy, from those of a simpler signature."""

    base: Signature
    to_base: Callable[[Arrays], Arrays] = _same  # inputs
    from_base: Callable[[Arrays], Arrays] = _same  # outputs
    widen: Callable[[Arrays], Arrays] = _same  # inputs of the base, of samples
