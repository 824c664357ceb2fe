"""The tensors of a checkpoint, by the parts of a model that they fill.

`Parts` loads them and `WrittenParts` saves them. Both have the same methods, so
that a family says once which tensors are where.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np


def sizes_of(layer: Any, count: int, heads: Any) -> list[int]:
    """Returns the widths of the projections that one joins: 1, 2 or 3.

    Two are of one width; three are queries, keys and values, of which `heads`
    are the numbers of heads.
    """
    units = layer.kernel.shape[1]
    if count < 3:
        return [units // count] * count
    one = units // (heads[0] + 2 * heads[1])
    return [heads[0] * one, heads[1] * one, heads[1] * one]


class Parts:
    """The tensors of a checkpoint, by the parts of a model that they fill."""

    def __init__(
        self, family: Any, reading: Any, tensors: Any, prefix: str
    ) -> None:
        self.family = family
        self.reading = reading
        self.tensors = tensors
        self._prefix = prefix

    def name(self, part: str, number: int | None = None) -> str:
        """Returns the name of a part, of the block of that number."""
        return self._prefix + self.reading.names[part].format(number)

    def side(self, name: str, reading: Any) -> Self:
        """Returns the parts of one of two stacks, of which `reading` is."""
        prefix = f"{self._prefix}{name}."
        return type(self)(self.family, reading, self.tensors, prefix)

    def first_type(self, width: int, second: Any) -> Any:
        """Returns the embedding of token type 0; 0 where there are no types."""
        if "token_type" not in self.reading.names or not self.reading.types:
            return 0.0
        rows = self.take("token_type", (self.reading.types, width))
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
        """Fills a table of embeddings, from the row `skip` on.

        `offset` is added after scaling, and `more` to single rows.

        Returns:
            The last row that was skipped less the first one that was not; 0 if
            none was skipped.
        """
        length, width = layer.embeddings.shape
        rows = self.take(part, (skip + length, width))
        apart = rows[skip - 1] - rows[skip] if skip else 0.0
        rows = rows[skip:]
        rows *= scale  # in place: this is the largest of all tensors
        rows += offset
        for row, added in (more or {}).items():
            rows[row] += added
        layer.embeddings.assign(rows)
        return apart

    def take(
        self,
        part: str,
        shape: Sequence[int],
        number: int | None = None,
        *,
        of: str | None = "weight",
    ) -> np.ndarray:
        """Returns a tensor unchanged: by default the weight of a part."""
        return self.tensors.take(self.tensor(part, number, of), shape)

    def tensor(self, part: str, number: int | None, of: str | None) -> str:
        """Returns the name of a tensor: by default the weight of a part."""
        name = self.name(part, number)
        return f"{name}.{of}" if of else name

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
        return self.take(part, shape, number, of=of)

    def assign(
        self,
        weight: Any,
        part: str,
        shape: Sequence[int],
        *,
        axes: Sequence[int] | None = None,
        of: str | None = "weight",
        change: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        """Fills one weight from one tensor, whose axes are moved.

        `change` makes the weight of the tensor where they differ in more.
        """
        values = self.take(part, shape, of=of)
        values = values if axes is None else values.transpose(axes)
        if change is not None:
            values = change(values)
        weight.assign(values.reshape(weight.shape))

    def rows(
        self, weight: Any, parts: Sequence[tuple[str, Sequence[int]]]
    ) -> None:
        """Fills a table from tensors, each `(1, rows, width)`."""
        taken = [self.take(part, shape, of=None)[0] for part, shape in parts]
        weight.assign(np.concatenate(taken))

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: tuple[int, int] | None = None,
        factors: Mapping[str, Any] | None = None,
    ) -> None:
        """Fills a projection from one tensor, or from several, concatenated.

        `factors` are as in `Family.factors`; `heads`, as in `sizes_of`.
        """
        dim, _ = layer.kernel.shape
        sizes = sizes_of(layer, len(parts), heads)
        kernels, biases = [], []
        for part, size in zip(parts, sizes, strict=True):
            name, factor = self.name(part, number), (factors or {}).get(part)
            kernels.append(_times(factor, self._kernel(name, size, dim)))
            if layer.bias is not None:
                biases.append(_times(factor, self._bias(part, name, size)))
        self._fill(layer, kernels, biases)

    def halves(self, layers: Sequence[Any], part: str, number: int) -> None:
        """Fills two projections of one width from the halves of a tensor."""
        dim, units = layers[0].kernel.shape
        name = self.name(part, number)
        kernels = np.split(
            self.tensors.take(f"{name}.weight", (2 * units, dim)), 2
        )
        biases = [np.zeros(units)] * 2
        if layers[0].bias is not None:
            biases = np.split(self._bias(part, name, 2 * units), 2)
        for layer, kernel, bias in zip(layers, kernels, biases, strict=True):
            self._fill(layer, [kernel], [bias])

    def norm(
        self,
        layer: Any,
        part: str,
        number: int | None = None,
        *,
        factor: float = 1.0,
    ) -> None:
        """Fills a norm, by its current names or by `gamma` and `beta`."""
        name = self.name(part, number)
        is_old = f"{name}.gamma" in self.tensors
        scale, offset = ("gamma", "beta") if is_old else ("weight", "bias")
        of_norm = getattr(layer, "gamma", None)
        if of_norm is None:  # RMS, without an offset
            weights = self.tensors.take(f"{name}.{scale}", layer.scale.shape)
            weights = weights.astype("float64") + self.family.norm_offset
            layer.scale.assign(weights * factor)
            return
        weights = self.tensors.take(f"{name}.{scale}", of_norm.shape)
        of_norm.assign(weights * factor)
        if part in self.reading.without_bias:
            layer.beta.assign(np.zeros(layer.beta.shape))
            return
        weights = self.tensors.take(f"{name}.{offset}", layer.beta.shape)
        layer.beta.assign(weights * factor)

    def logits(self, model: Any, part: str, scale: float) -> None:
        """Fills the projection to logits; checks tied ones that are stored."""
        name = f"{part}.weight"
        table = model.embedding.embeddings
        if model.head is not None:
            model.head.kernel.assign(self.tensors.take(name, table.shape).T)
            return
        if name not in self.tensors:
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

    def _kernel(self, name: str, units: int, dim: int) -> np.ndarray:
        """Returns a kernel of shape (out, in)."""
        if self.family.has_our_kernels:
            return self.tensors.take(f"{name}.weight", (dim, units)).T
        return self.tensors.take(f"{name}.weight", (units, dim))

    def _bias(self, part: str, name: str, size: int) -> np.ndarray:
        if part in self.reading.without_bias:
            return np.zeros(size, "float32")
        return self.tensors.take(f"{name}.bias", (size,))

    def _fill(
        self,
        layer: Any,
        kernels: Sequence[np.ndarray],
        biases: Sequence[np.ndarray],
    ) -> None:
        layer.kernel.assign(np.concatenate(kernels).T)
        if layer.bias is not None:
            layer.bias.assign(np.concatenate(biases))


def _times(factor: Any, values: np.ndarray) -> np.ndarray:
    """Multiplies the outputs, in the first axis of a kernel or a bias."""
    if factor is None:
        return values
    return np.asarray((values.astype("float64").T * factor).T)


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
        # safetensors writes arrays in memory order: transposed ones wrongly.
        self.values[name] = np.ascontiguousarray(array_of(values))


class WrittenParts(Parts):
    """The reverse of `Parts`: each method writes the tensors that it loads."""

    def take(
        self,
        part: str,
        shape: Sequence[int],
        number: int | None = None,
        *,
        of: str | None = "weight",
    ) -> np.ndarray:
        raise ValueError(
            f"A model of {type(self.family).__name__} cannot be saved: its "
            f"tensor '{self.tensor(part, number, of)}' is kept only as its "
            "products with others. Save it as `.keras`"
        )

    def absorbed(
        self,
        part: str,
        shape: Sequence[int],
        neutral: float,
        number: int | None = None,
        *,
        of: str | None = "weight",
    ) -> np.ndarray:
        values = np.full(shape, neutral, "float32")
        self.tensors.put(self.tensor(part, number, of), values)
        return values

    def assign(
        self,
        weight: Any,
        part: str,
        shape: Sequence[int],
        *,
        axes: Sequence[int] | None = None,
        of: str | None = "weight",
        change: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        name, values = self.tensor(part, None, of), array_of(weight)
        if values.size != np.prod(shape):
            raise ValueError(
                f"'{weight.path}' must have the shape that the checkpoint has, "
                f"for it to be saved as '{name}', {tuple(shape)}. Received: "
                f"{tuple(weight.shape)}. Was it loaded for images of another "
                "size? Load it without `image_size`"
            )
        if axes is not None:
            values = values.transpose(np.argsort(axes))
        self.tensors.put(name, values.reshape(shape))

    def rows(
        self, weight: Any, parts: Sequence[tuple[str, Sequence[int]]]
    ) -> None:
        values, first = array_of(weight), 0
        for part, shape in parts:
            end = first + shape[1]
            name = self.tensor(part, None, None)
            self.tensors.put(name, values[first:end].reshape(shape))
            first = end

    def first_type(self, width: int, second: Any) -> Any:
        """Writes token types, with zeros for type 0; returns 0.

        The positions (or ids) of a model include its type 0 already.
        """
        if "token_type" in self.reading.names and self.reading.types:
            rows = np.zeros((self.reading.types, width), "float32")
            if second is not None:
                rows[1] = array_of(second.embedding)
            self.tensors.put(f"{self.name('token_type')}.weight", rows)
        return 0.0

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
        """Writes a table; the last row before those of tokens is the first.

        So no row of padding gets anything added when the table is loaded.
        """
        values = _over(scale, array_of(layer.embeddings))
        if skip:
            before = np.zeros((skip, values.shape[1]), values.dtype)
            before[-1] = values[0]
            values = np.concatenate([before, values])
        self._put(layer, part, f"{self.name(part)}.weight", values)
        return 0.0

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: tuple[int, int] | None = None,
        factors: Mapping[str, Any] | None = None,
    ) -> None:
        ends = np.cumsum(sizes_of(layer, len(parts), heads))[:-1]
        weights = {"weight": np.split(array_of(layer.kernel).T, ends)}
        if layer.bias is not None:
            weights["bias"] = np.split(array_of(layer.bias), ends)
        for kind, values in weights.items():
            for part, value in zip(parts, values, strict=True):
                name = f"{self.name(part, number)}.{kind}"
                value = _over((factors or {}).get(part), value)
                if kind == "weight" and self.family.has_our_kernels:
                    value = value.T
                self._put(layer, part, name, value)

    def halves(self, layers: Sequence[Any], part: str, number: int) -> None:
        name = self.name(part, number)
        weights = {"weight": [array_of(layer.kernel).T for layer in layers]}
        if layers[0].bias is not None:
            weights["bias"] = [array_of(layer.bias) for layer in layers]
        for kind, values in weights.items():
            both = np.concatenate(values)
            for layer in layers:
                self._put(layer, part, f"{name}.{kind}", both)

    def norm(
        self,
        layer: Any,
        part: str,
        number: int | None = None,
        *,
        factor: float = 1.0,
    ) -> None:
        name = self.name(part, number)
        if getattr(layer, "gamma", None) is None:  # RMS, without an offset
            scale = _over(factor, array_of(layer.scale))
            scale = scale.astype("float64") - self.family.norm_offset
            self._put(layer, part, f"{name}.weight", scale.astype("float32"))
            return
        for kind, values in (("weight", layer.gamma), ("bias", layer.beta)):
            values = _over(factor, array_of(values))
            self._put(layer, part, f"{name}.{kind}", values)

    def logits(self, model: Any, part: str, scale: float) -> None:
        """Writes the projection to logits, unless they are tied."""
        if model.head is not None:
            kernel = array_of(model.head.kernel).T
            self._put(model.head, part, f"{part}.weight", kernel)

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
                    f"there is no tensor '{name}'. Received: up to "
                    f"{np.abs(values).max():g}"
                )
            return
        self.tensors.put(name, values)


def array_of(values: Any) -> np.ndarray:
    """Returns an array of floats of at least 32 bits."""
    array = keras.ops.convert_to_numpy(values)
    return array if array.dtype == "float64" else array.astype("float32")


def _over(factor: Any, values: np.ndarray) -> np.ndarray:
    """Divides what `_times` multiplies."""
    if factor is None or np.all(factor == 1):
        return values
    return np.asarray((values.astype("float64").T / factor).T, "float32")
