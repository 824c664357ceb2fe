"""The tensors of a checkpoint, by the parts of a model that they fill."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np


class Column(NamedTuple):
    """What a projection of a model and one of a checkpoint have in common.

    Attributes:
        layer: The layer.
        part: The part of the model, as in `Family.names`.
        name: The projection of the checkpoint.
        ours: The columns of the layer's kernel.
        theirs: The rows of the checkpoint's tensor.
        rows: How many rows that tensor has.
        factor: What its outputs are multiplied by, or None.
    """

    layer: Any
    part: str
    name: str
    ours: slice
    theirs: slice
    rows: int
    factor: Any = None


class Parts:
    """The tensors of a checkpoint, by the parts of a model that they fill.

    A family calls it for every weight, in one way for both directions: it loads
    the tensors, or, where they are `WrittenTensors`, saves them.
    """

    def __init__(
        self, family: Any, reading: Any, tensors: Any, prefix: str
    ) -> None:
        self.family = family
        self.reading = reading
        self.tensors = tensors
        self.saves = isinstance(tensors, WrittenTensors)
        self._prefix = prefix

    def name(self, part: str, number: int | None = None) -> str:
        """Returns the name of a part, of the block of that number."""
        return self._prefix + self.reading.names[part].format(number)

    def tensor(self, part: str, number: int | None, of: str | None) -> str:
        """Returns the name of a tensor: by default the weight of a part."""
        name = self.name(part, number)
        return f"{name}.{of}" if of else name

    def side(self, name: str, reading: Any) -> Self:
        """Returns the parts of one of two stacks, of which `reading` is."""
        prefix = f"{self._prefix}{name}."
        return type(self)(self.family, reading, self.tensors, prefix)

    def take(
        self,
        part: str,
        shape: Sequence[int],
        number: int | None = None,
        *,
        of: str | None = "weight",
    ) -> np.ndarray:
        """Returns a tensor, unchanged."""
        return self.tensors.take(self.tensor(part, number, of), shape)

    def put(self, part: str, values: np.ndarray) -> None:
        """Saves a tensor that is made of several weights."""
        self.tensors.put(self.tensor(part, None, "weight"), values)

    def absorbed(
        self,
        part: str,
        shape: Sequence[int],
        neutral: float,
        number: int | None = None,
        *,
        of: str | None = "weight",
    ) -> np.ndarray:
        """Returns a tensor that becomes part of other weights.

        Those are saved with it, and then it has the number `neutral`.
        """
        if not self.saves:
            return self.take(part, shape, number, of=of)
        values = np.full(shape, neutral, "float32")
        self.tensors.put(self.tensor(part, number, of), values)
        return values

    def pair(
        self,
        weight: Any,
        name: str,
        shape: Sequence[int],
        ours: Callable[[np.ndarray], Any] = np.asarray,
        theirs: Callable[[np.ndarray], Any] = np.asarray,
    ) -> None:
        """Fills a weight from a tensor, or the tensor from the weight.

        `ours` makes the weight of the tensor, and `theirs` the tensor of the
        weight.
        """
        if not self.saves:
            values = ours(self.tensors.take(name, shape))
            weight.assign(values.reshape(weight.shape))
            return
        values = array_of(weight)
        if values.size != np.prod(shape):
            raise ValueError(
                f"'{weight.path}' must have the shape that the checkpoint has, "
                f"for it to be saved as '{name}', {tuple(shape)}. Received: "
                f"{tuple(weight.shape)}. Was it loaded for images of another "
                "size? Load it without `image_size`"
            )
        self.tensors.put(name, theirs(values).reshape(shape))

    def assign(
        self,
        weight: Any,
        part: str,
        shape: Sequence[int],
        *,
        axes: Sequence[int] | None = None,
        of: str | None = "weight",
        change: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ) -> None:
        """Matches one weight with one tensor, whose axes are moved.

        `change` makes the weight of the tensor where they differ in more.
        """
        order = [*range(len(shape))] if axes is None else [*axes]
        moved = [shape[axis] for axis in order]
        self.pair(
            weight,
            self.tensor(part, None, of),
            shape,
            lambda values: change(values.transpose(order)),
            lambda values: values.reshape(moved).transpose(np.argsort(order)),
        )

    def rows(
        self, weight: Any, parts: Sequence[tuple[str, Sequence[int]]]
    ) -> None:
        """Matches a table with tensors, each `(1, rows, width)`."""
        names = [self.tensor(part, None, None) for part, _ in parts]
        shapes = [shape for _, shape in parts]
        if not self.saves:
            taken = map(self.tensors.take, names, shapes)
            weight.assign(np.concatenate([each[0] for each in taken]))
            return
        ends = np.cumsum([shape[1] for shape in shapes])[:-1]
        split = np.split(array_of(weight), ends)
        for name, values in zip(names, split, strict=True):
            self.tensors.put(name, values[np.newaxis])

    def first_type(self, width: int, second: Any) -> Any:
        """Returns the embedding of token type 0; 0 where there are no types.

        Type 0 is saved as zeros: the positions, or ids, of a model include it.
        """
        types = self.reading.types
        if "token_type" not in self.reading.names or not types:
            return 0.0
        if self.saves:
            rows = np.zeros((types, width), "float32")
            if second is not None:
                rows[1] = array_of(second.embedding)
            self.tensors.put(self.tensor("token_type", None, "weight"), rows)
            return 0.0
        rows = self.take("token_type", (types, width))
        if second is not None:
            second.embedding.assign(rows[1] - rows[0])
        return rows[0]

    def table(
        self,
        layer: Any,
        part: str,
        *,
        skip: int = 0,
        scale: float = 1.0,
        offset: Any = 0.0,
        more: Mapping[int, Any] | None = None,
    ) -> Any:
        """Matches a table of embeddings, from the row `skip` on.

        `offset` is added after scaling, and `more` to single rows. The last row
        that is skipped is saved as the first one of tokens, so that no row of
        padding gets anything added when the table is loaded again.

        Returns:
            The last row that was skipped less the first one that was not; 0 if
            none was skipped.
        """
        length, width = layer.embeddings.shape
        if self.saves:
            values = _over(scale, array_of(layer.embeddings))
            if skip:
                before = np.zeros((skip, width), values.dtype)
                before[-1] = values[0]
                values = np.concatenate([before, values])
            self._put(layer, part, self.tensor(part, None, "weight"), values)
            return 0.0
        rows = self.take(part, (skip + length, width))
        apart = rows[skip - 1] - rows[skip] if skip else 0.0
        rows = rows[skip:]
        rows *= scale  # in place: this is the largest of all tensors
        rows += offset
        for row, added in (more or {}).items():
            rows[row] += added
        layer.embeddings.assign(rows)
        return apart

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: Sequence[int] | None = None,
        factors: Mapping[str, Any] | None = None,
    ) -> None:
        """Matches a projection with one tensor, or with several, concatenated.

        They are of one width, or have so many `heads`. `factors` are as in
        `Family.factors`.
        """
        units, count = layer.kernel.shape[1], len(parts)
        shares = heads if heads and len(heads) == count else [1] * count
        sizes = [units // sum(shares) * share for share in shares]
        ends = np.cumsum([0, *sizes]).tolist()
        self.columns(
            [
                Column(
                    layer,
                    part,
                    self.name(part, number),
                    slice(end - size, end),
                    slice(0, size),
                    size,
                    (factors or {}).get(part),
                )
                for part, size, end in zip(parts, sizes, ends[1:], strict=True)
            ]
        )

    def halves(self, layers: Sequence[Any], part: str, number: int) -> None:
        """Matches two projections of one width with the halves of a tensor."""
        units = layers[0].kernel.shape[1]
        name, rows = self.name(part, number), len(layers) * units
        self.columns(
            [
                Column(
                    layer,
                    part,
                    name,
                    slice(0, units),
                    slice(place * units, (place + 1) * units),
                    rows,
                )
                for place, layer in enumerate(layers)
            ]
        )

    def columns(self, columns: Sequence[Column]) -> None:
        """Matches projections with all tensors of theirs."""
        kinds = ["weight"]
        if columns[0].layer.bias is not None:
            kinds.append("bias")
        for kind in kinds:
            (self._save if self.saves else self._load)(columns, kind)

    def _load(self, columns: Sequence[Column], kind: str) -> None:
        taken: dict[str, np.ndarray] = {}
        found: dict[Any, list[np.ndarray]] = {}
        for layer, part, name, _, theirs, rows, factor in columns:
            if name not in taken:
                taken[name] = self._taken(
                    part, f"{name}.{kind}", rows, layer.kernel.shape[0]
                )
            values = taken[name][theirs]
            if factor is not None:
                values = (values.astype("float64").T * factor).T
            found.setdefault(layer, []).append(values)
        for layer, each in found.items():
            weight = layer.kernel if kind == "weight" else layer.bias
            weight.assign(np.concatenate(each).T)
            its = {column.part for column in columns if column.layer is layer}
            if kind == "bias" and its <= self.reading.without_bias:
                keep_zero(weight)

    def _taken(self, part: str, name: str, rows: int, dim: int) -> np.ndarray:
        """Returns a kernel of shape (out, in), or a bias."""
        if name.endswith(".weight"):
            if self.family.has_our_kernels:
                return self.tensors.take(name, (dim, rows)).T
            return self.tensors.take(name, (rows, dim))
        if part in self.reading.without_bias:
            return np.zeros(rows, "float32")
        return self.tensors.take(name, (rows,))

    def _save(self, columns: Sequence[Column], kind: str) -> None:
        found: dict[str, list[np.ndarray]] = {}
        for layer, _, name, ours, _, _, factor in columns:
            weight = layer.kernel if kind == "weight" else layer.bias
            values = _over(factor, array_of(weight).T[ours])
            found.setdefault(name, []).append(values)
        for column in columns:
            values = np.concatenate(found[column.name])
            if kind == "weight" and self.family.has_our_kernels:
                values = values.T
            name = f"{column.name}.{kind}"
            self._put(column.layer, column.part, name, values)

    def norm(
        self,
        layer: Any,
        part: str,
        number: int | None = None,
        *,
        factor: float = 1.0,
    ) -> None:
        """Matches a norm, by its current names or by `gamma` and `beta`."""
        name = self.name(part, number)
        is_old = not self.saves and f"{name}.gamma" in self.tensors
        scale, offset = ("gamma", "beta") if is_old else ("weight", "bias")
        if getattr(layer, "gamma", None) is None:  # RMS, without an offset
            added = self.family.norm_offset
            self.pair(
                layer.scale,
                f"{name}.{scale}",
                layer.scale.shape,
                lambda values: (values.astype("float64") + added) * factor,
                lambda values: (
                    _over(factor, values).astype("float64") - added
                ).astype("float32"),
            )
            return
        for weight, of in ((layer.gamma, scale), (layer.beta, offset)):
            if of == offset and part in self.reading.without_bias:
                if self.saves:
                    self._put(layer, part, f"{name}.bias", weight)
                else:
                    weight.assign(np.zeros(weight.shape))
                    keep_zero(weight)
                continue
            self.pair(
                weight,
                f"{name}.{of}",
                weight.shape,
                lambda values: values * factor,
                lambda values: _over(factor, values),
            )

    def logits(self, model: Any, part: str, scale: float) -> None:
        """Matches the projection to logits; checks a stored tied one."""
        name = f"{part}.weight"
        table = model.embedding.embeddings
        if model.head is not None:
            if self.saves:
                kernel = array_of(model.head.kernel).T
                self._put(model.head, part, name, kernel)
            else:
                kernel = self.tensors.take(name, table.shape)
                model.head.kernel.assign(kernel.T)
            return
        if self.saves or name not in self.tensors:
            return
        taken = self.tensors.take(name, table.shape) * scale
        stored = keras.ops.cast(taken, table.dtype)
        if not np.array_equal(
            *map(keras.ops.convert_to_numpy, (stored, table))
        ):
            raise ValueError(
                f"The tensor '{name}' differs from the embeddings, and "
                "config.json says that both are one ('tie_word_embeddings'). "
                'If the model has two, write "tie_word_embeddings": false '
                "into it"
            )

    def norm_called(self, layer: Any, name: str) -> None:
        """Writes a norm after the encoder, under this name."""
        self._put(layer, name, f"{name}.weight", layer.gamma)
        self._put(layer, name, f"{name}.bias", layer.beta)

    def projection(self, layer: keras.layers.Dense, name: str) -> None:
        """Writes a projection after the encoder, under this name."""
        self._put(layer, name, f"{name}.weight", array_of(layer.kernel).T)
        if layer.bias is not None:
            self._put(layer, name, f"{name}.bias", layer.bias)

    def _put(self, layer: Any, part: str, name: str, values: Any) -> None:
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ValueError(
                f"Layer '{layer.path}' is quantized ({mode}), and a checkpoint "
                "holds floats: save the model that it was quantized from"
            )
        if name.endswith(".bias") and part in self.reading.without_bias:
            values = array_of(values)
            if np.any(values):
                raise ValueError(
                    f"The offsets of layer '{layer.path}' must be 0, for "
                    f"there is no tensor '{name}': freeze them in training. "
                    f"Received: up to {np.abs(values).max():g}"
                )
            return
        self.tensors.put(name, values)


class WrittenTensors:
    """The tensors that are saved.

    Attributes:
        names: The names of the tensors of the checkpoint that was loaded.
        values: All tensors, by name.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self.names = names
        self.values: dict[str, np.ndarray] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def put(self, name: str, values: Any) -> None:
        """Keeps a tensor, of floats of at least 32 bits."""
        self.values[name] = array_of(values)


def keep_zero(weight: Any) -> None:
    """Keeps a bias 0 in training, for no tensor could hold it."""
    weight.trainable = False
    # `model.trainable = True` does not undo this.
    weight.constraint = keras.ops.zeros_like


def array_of(values: Any) -> np.ndarray:
    """Returns an array of floats of at least 32 bits."""
    array = keras.ops.convert_to_numpy(values)
    if array.dtype == "float64":
        return array
    return array.astype("float32", copy=False)


def _over(factor: Any, values: np.ndarray) -> np.ndarray:
    """Divides the outputs, in the first axis of a kernel or a bias."""
    if factor is None or np.all(factor == 1):
        return values
    return np.asarray((values.astype("float64").T / factor).T, "float32")
