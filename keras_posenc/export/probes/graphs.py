"""The graphs of a model, as `model.predict` runs them."""

import dataclasses
import functools
import hashlib
import math
import pickle
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import keras

from keras_posenc.export.errors import ExportError, in_words
from keras_posenc.export.probes.samples import Inputs, describe
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.keras_internals import in_function

Call = Callable[[Inputs], dict[str, Any]]

# Operators of windows, which may be larger than their input.
_WINDOWS = (
    "AvgPool",
    "Conv",
    "DepthwiseConv",
    "Dilation2D",
    "Extract",
    "FractionalMaxPool",
    "MaxPool",
)
# Operators whose memory does not depend on the values of their operands, or of
# the first one.
_ANY_OPERAND = frozenset(
    "Abs Add AddV2 Cast ClipByValue ConcatV2 Equal ExpandDims FloorDiv "
    "FloorMod Greater GreaterEqual Identity Less LessEqual Maximum Minimum "
    "Mul Neg NotEqual Pack RealDiv SelectV2 Shape Sign Square Squeeze "
    "StopGradient Sub ZerosLike".split()
)
_FIRST_OPERAND = frozenset(
    "BroadcastTo GatherV2 LookupTableFindV2 Max Mean Min Pad PadV2 Prod "
    "Reshape Slice StridedSlice Sum Tile Transpose Unpack".split()
)


class Graphs:
    """Calls a model's graph, which reads the current weights.

    One graph takes inputs of any size. For images and for models with windows
    there is one for each size too: then TensorFlow refuses inputs smaller than
    a window, which would divide by zero as it is run, and end the process.
    """

    def __init__(self, signature: Signature, step: Any = str) -> None:
        self.signature, self._step = signature, step
        self._of_sizes: dict[Any, Any] = {}
        self._known: dict[bytes, tuple[Inputs, dict[str, Any], float]] = {}
        self.seconds = 0.0

    @functools.cached_property
    def of_any_size(self) -> Any:
        """The graph function of dynamic sizes."""
        return trace(self.signature)

    @functools.cached_property
    def has_sizes(self) -> bool:
        """Whether inputs of each size have a graph of their own."""
        signature = self.signature
        if all(None not in spec.shape[1:] for spec in signature.specs.values()):
            return False
        return bool(
            signature.grid_axes
            or any(x.op.startswith(_WINDOWS) for x in _nodes(self.of_any_size))
        )

    def empty_tensors(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Returns how many tensors with positions have no numbers inside."""
        return sum(
            len(shape.dim) > 2 and any(dim.size == 0 for dim in shape.dim)
            for node in _nodes(self._at(shapes), add_shapes=True)
            for shape in node.attr["_output_shapes"].list.shape
        )

    def _uses(self, name: str) -> list[tuple[Any, bool]]:
        """Returns what reads an input, and whether it gives integers again."""
        # Tensors, and the calls of the functions that they are in.
        tensors: list[tuple[Any, tuple[Any, ...]]] = [
            (tensor, ())
            for tensor in self.of_any_size.graph.inputs
            if tensor.op.name.lower() == name.lower()
        ]
        found: dict[tuple[Any, bool], None] = {}
        seen = set()
        while tensors:
            tensor, calls = tensors.pop()
            if (id(tensor), calls) in seen:
                continue
            seen.add((id(tensor), calls))
            for call in calls[-1:]:
                pairs = zip(tensor.graph.outputs, call.outputs, strict=True)
                tensors += [(x, calls[:-1]) for y, x in pairs if y is tensor]
            for node in tensor.consumers():
                if node.type.endswith("PartitionedCall"):
                    within = in_function(node, tensor)
                    tensors += [(x, (*calls, node)) for x in within]
                    if within:
                        continue
                is_kept = node.type in _ANY_OPERAND or (
                    node.inputs[0] is tensor and node.type in _FIRST_OPERAND
                )
                if is_kept:
                    made = [*(() if node.type == "Shape" else node.outputs)]
                    if node.type == "Cast":  # to floats, maybe, and back
                        back = made[0].consumers()
                        made += [x.outputs[0] for x in back if x.type == "Cast"]
                    tensors += [(x, calls) for x in made if x.dtype.is_integer]
                found[node, is_kept] = None
        return [*found]

    def takes_any_integer(self, name: str) -> bool:
        """Returns whether an input is no id, length or number of repetitions.

        Large ones would reach no table, or need all memory.
        """
        uses = self._uses(name)
        return bool(uses) and all(is_kept for _, is_kept in uses)

    def ids_of(self, name: str, sizes: Collection[int]) -> int | None:
        """Returns how many ids an input takes; None if it goes to no table."""
        uses = [node for node, is_kept in self._uses(name) if not is_kept]
        read = [x.inputs[0].shape for x in uses if x.type == "GatherV2"]
        found = {shape[0] for shape in read if shape.rank} & {*sizes}
        kinds = "Call", "Case", "If", "While"
        is_called = any(x.type.endswith(kinds) for x in uses)
        return min(found or (sizes if is_called else ()), default=None)

    def __call__(self, inputs: Inputs) -> dict[str, Any]:
        """Returns the model's outputs; raises `ValueError` if it refuses."""
        shapes = {name: value.shape for name, value in inputs.items()}
        return self._run(lambda given: self._at(shapes)(**given), inputs)

    def directly(self, inputs: Inputs) -> dict[str, Any]:
        """Like a call, in eager code: returns what `model(x)` does."""
        return self._run(self.signature.call, inputs)

    def _run(
        self, function: Callable[[dict[str, Any]], Any], inputs: Inputs
    ) -> dict[str, Any]:
        import tensorflow as tf

        try:
            # On the CPU, as the worker: a GPU's products are rounded otherwise.
            with tf.device("CPU:0"):
                outputs = function(
                    {name: tf.constant(x) for name, x in inputs.items()}
                )
        except ExportError:  # of a weight that cannot be exported
            raise
        except Exception as error:
            raise ValueError(
                f"The model itself does not take {describe(inputs)} in "
                f"signature '{self.signature.name}': {in_words(error)}"
            ) from error
        return {name: value.numpy() for name, value in outputs.items()}

    def cached(self, inputs: Inputs) -> dict[str, Any]:
        """Returns the model's outputs; runs it once for the same inputs."""
        key = hashlib.sha256(pickle.dumps(inputs)).digest()
        if key not in self._known:
            if self.signature.is_large:
                what = f"{self.signature.name}, {describe(inputs)}"
                self._step(f"Running the model itself: {what}")
            began = time.process_time()
            outputs = self(inputs)
            self._known[key] = inputs, outputs, time.process_time() - began
        _, outputs, seconds = self._known[key]
        self.seconds += seconds  # of cached outputs too: the file computes them
        return outputs

    def smallest(self) -> list[tuple[Inputs, dict[str, Any]]]:
        """Returns the smallest inputs that the model took, and its outputs."""
        known = sorted(
            self._known.values(),
            key=lambda x: sum(each.size for each in x[0].values()) or math.inf,
        )
        return [found[:2] for found in known[:1]]

    def forget(self) -> None:
        """Forgets all outputs."""
        self._known.clear()

    def _at(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        if not self.has_sizes:
            return self.of_any_size
        own = self.signature.specs
        sizes = {
            name: (*spec.shape[:1], *shapes[name][1:])
            for name, spec in own.items()
        }
        key = tuple(sizes.values())
        if key not in self._of_sizes:
            specs = {
                name: keras.InputSpec(shape=sizes[name], dtype=spec.dtype)
                for name, spec in own.items()
            }
            fixed = dataclasses.replace(self.signature, specs=specs)
            try:
                self._of_sizes[key] = trace(fixed)
            except ExportError as error:
                if error.__cause__ is None:  # of a weight without a value
                    raise
                raise ValueError(in_words(error.__cause__)) from error
        return self._of_sizes[key]


def _nodes(function: Any, add_shapes: bool = False) -> Iterator[Any]:
    graph = function.graph.as_graph_def(add_shapes=add_shapes)
    yield from graph.node
    for each in graph.library.function:
        yield from each.node_def
