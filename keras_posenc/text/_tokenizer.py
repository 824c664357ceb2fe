"""The base of all tokenizers."""

import contextlib
import contextvars
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_posenc.checks import check_positive_int
from keras_posenc.keras_internals import carried_mask, carry_mask
from keras_posenc.ops.named import NamedArguments

_REPORT: contextvars.ContextVar[Callable[[int], None] | None] = (
    contextvars.ContextVar("keras_posenc_cut_texts", default=None)
)


_PACKAGE = f"{__name__.partition('.')[0]}.text."


@contextlib.contextmanager
def reporting_cuts(report: Callable[[int], None]) -> Iterator[None]:
    """Within, tokenizers that are traced report how many texts they cut.

    Only where they are run by Python: no exported graph may hold its function.
    """
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


class OfStrings(NamedArguments, keras.layers.Layer):
    """Base of layers of strings, which Keras leaves as they are."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False

    @property
    def compute_dtype(self) -> str:
        # As Keras' `TextVectorization`: a `Sequential` without an `Input`
        # takes the dtype of its own from here.
        return "string"

    @property
    def variable_dtype(self) -> str:
        return "string"


class Tokenizer(OfStrings):
    """Base of tokenizers: strings in, token ids out, and back.

    A subclass splits texts into ids (`split`) and joins ids to texts (`join`),
    and has the ids `pad_id`, `unknown_id`, `start_id` and `end_id`. This class
    does the rest: the start and the end of each text, its length, its mask,
    and where a sequence ends on the way back. Both ways use TensorFlow's
    operators, in a graph as well as outside.
    The two texts of a pair are tokenized separately, then joined.
    """

    # -1 where no token is padding, as in models of `pad_id=-1`.
    pad_id = 0
    # What `detokenize` leaves out, besides padding and the start.
    skipped_ids: Sequence[int] = ()
    vocabulary: Sequence[str]
    unknown_id: int
    start_id: int
    end_id: int

    def __init__(
        self,
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        num_separators: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_separators is not None:
            check_positive_int("num_separators", num_separators)
            if not self.frame[1]:
                raise ValueError(
                    "`num_separators` counts the end symbols between two "
                    "texts, and must be None where there is none. Received: "
                    f"num_separators={num_separators}."
                )
        self.num_separators = num_separators
        self.sequence_length = self._check_length(
            "sequence_length", sequence_length
        )
        self.max_length = self._check_length("max_length", max_length)
        if sequence_length is not None and max_length is not None:
            raise ValueError(
                "`sequence_length` is the number of ids of each text, and "
                "leaves nothing to `max_length`: give one of them. Received: "
                f"sequence_length={sequence_length}, max_length={max_length}."
            )
        self.supports_masking = True

    @property
    def frame(self) -> tuple[int, int]:
        """How many ids come before those of a text, and how many after."""
        return 1, 1

    @property
    def ending(self) -> Sequence[int]:
        """The ids after those of a text, as many as `frame` says."""
        return [self.end_id]

    def _check_length(self, name: str, value: Any) -> int | None:
        if value is None:
            return None
        try:
            length = operator.index(value)
        except TypeError:
            length = 0
        least = max(1, sum(self.frame) + (self.num_separators or 0))
        if length < least:
            raise ValueError(
                f"`{name}` must be at least {least}, as many as a "
                f"text without tokens has. Received: {name}={value}."
            )
        return length

    def split(self, texts: Any) -> Any:
        """Returns the ids of texts, ragged, of shape (batch, any)."""
        raise NotImplementedError

    def join(self, ids: Any, kept: Any) -> Any:
        """Returns the texts of ids (..., seq), of those with `kept` True."""
        raise NotImplementedError

    def get_vocabulary(self) -> list[str]:
        """Returns the tokens, in the order of their ids."""
        return list(self.vocabulary)

    def vocabulary_size(self) -> int:
        """Returns how many tokens the vocabulary holds."""
        return len(self.vocabulary)

    def tokenizer_json(self) -> dict[str, Any]:
        """Returns a `tokenizer.json` without frame, padding and lengths."""
        raise ValueError(
            f"A {type(self).__name__} cannot be written as a tokenizer.json"
        )

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        # Here and not in `call`: Keras takes only tensors as inputs.
        texts = self._as_strings(inputs)
        symbolic = keras.backend.is_keras_tensor(texts)
        if symbolic or keras.backend.backend() == "tensorflow":
            ids = super().__call__(texts, *args, **kwargs)
            if symbolic:
                # A model that follows takes the mask as one more input, which
                # must therefore be part of the graph.
                carry_mask(ids, keras.ops.not_equal(ids, self.pad_id))
            return ids
        import tensorflow as tf

        ids = self.call(texts)
        if tf.inside_function():  # a dataset's graph
            return ids
        return keras.ops.convert_to_tensor(ids.numpy())

    def _as_strings(self, inputs: Any) -> Any:
        if keras.backend.is_keras_tensor(inputs):
            self._check_inputs(inputs.dtype, inputs.shape)
            return inputs
        import tensorflow as tf

        texts = tf.convert_to_tensor(inputs, dtype_hint=tf.string)
        if texts.shape.rank is None:  # as in some datasets
            texts = tf.ensure_shape(
                texts, (None,) if self.num_separators is None else (None, 2)
            )
        self._check_inputs(texts.dtype.name, texts.shape)
        return texts

    def _check_inputs(self, dtype: str, shape: Sequence[int | None]) -> None:
        axes, known = [], "strings of shape (batch,)"
        if self.num_separators is not None:
            axes, known = [2], "pairs of strings, of shape (batch, 2)"
        if dtype != "string" or not len(shape) or [*shape[1:]] != axes:
            raise ValueError(
                f"Layer '{self.name}' expects {known}. "
                f"Received: dtype={dtype}, shape={tuple(shape)}."
            )

    def call(self, inputs: Any) -> Any:
        import tensorflow as tf

        before, after = self.frame
        length = self.sequence_length
        room = None if length is None else length - before - after
        if self.num_separators is not None:
            pieces = self._joined(inputs, self.num_separators)
        else:
            pieces = self.split(inputs)
            self._report_cuts(pieces.row_lengths(), 0)
            if self.max_length is not None:
                pieces = pieces[:, : self.max_length - before - after]
        ids = pieces.to_tensor(
            tf.constant(self.pad_id, pieces.dtype), shape=(None, room)
        )
        last = tf.minimum(
            tf.cast(pieces.row_lengths(), "int32"), tf.shape(ids)[1]
        )
        # Columns appended here, for the start and for the end.
        ids = tf.pad(  # (batch, seq)
            ids, ((0, 0), (before, after)), constant_values=self.pad_id
        )
        column = tf.range(tf.shape(ids)[1])
        if before:
            ids = tf.where(column == 0, self.start_id, ids)
        if after:
            end = tf.expand_dims(last + before, 1)
            for place, index in enumerate(self.ending):
                ids = tf.where(column == end + place, index, ids)
        # Keras looks for a mask here. `compute_mask` gets only the strings
        # and would tokenize them a second time.
        carry_mask(ids, tf.not_equal(ids, self.pad_id))
        return ids

    def _report_cuts(self, lengths: Any, num_separators: int) -> None:
        """Reports rows of too many tokens, by `reporting_cuts`."""
        report = _REPORT.get()
        longest = self.sequence_length or self.max_length
        if report is None or longest is None:
            return
        import tensorflow as tf

        room = longest - sum(self.frame) - num_separators
        count = tf.math.count_nonzero(lengths > room)
        tf.numpy_function(report, [count], [])

    def _joined(self, texts: Any, num_separators: int) -> Any:
        """Returns the ids of pairs, (batch, 2), ragged, with separators."""
        import tensorflow as tf

        pieces = self.split(tf.reshape(texts, (-1,)))  # (2 batch, any)
        separators = tf.fill(
            (tf.shape(texts)[0], num_separators),
            tf.constant(self.end_id, pieces.dtype),
        )
        longest = self.sequence_length or self.max_length
        if longest is not None:
            room = longest - sum(self.frame) - num_separators
            lengths = pieces.row_lengths()
            both = tf.reduce_sum(tf.reshape(lengths, (-1, 2)), axis=1)
            self._report_cuts(both, num_separators)
            kept = tf.reshape(
                _longest_first(tf.reshape(lengths, (-1, 2)), room), (-1,)
            )
            place = tf.ragged.range(lengths)  # of each piece in its text
            kept = place.flat_values < tf.repeat(kept, lengths)
            pieces = tf.ragged.boolean_mask(
                pieces, pieces.with_flat_values(kept)
            )
        return tf.concat([pieces[::2], separators, pieces[1::2]], axis=1)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        if keras.backend.is_keras_tensor(inputs):
            return None  # see `__call__`
        return carried_mask(self.call(self._as_strings(inputs)))

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        return input_shape[0], self.sequence_length

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), "int32"
        )

    def get_config(self) -> dict[str, Any]:
        # The arguments of the package's classes: a user's subclass adds its.
        names = {
            name: None
            for kind in type(self).__mro__
            if kind.__module__.startswith(_PACKAGE) and "__init__" in vars(kind)
            for name in inspect.signature(vars(kind)["__init__"]).parameters
            if name not in ("self", "args", "kwargs")
        }
        values = {name: getattr(self, name) for name in names}
        return {
            **super().get_config(),
            **{
                name: list(value) if isinstance(value, tuple) else value
                for name, value in values.items()
            },
        }

    def detokenize(self, ids: Any) -> Any:
        """Returns the text of each sequence of ids, up to its first end symbol.

        Padding and the start symbol are left out; of a pair only the first
        text is returned. Uses TensorFlow's core operators only, in a graph
        too, so that a server or a program without TF-Text can run it.

        Args:
            ids: integers of shape (..., seq): a tensor, an array, a list, or
                ragged.
        """
        import tensorflow as tf

        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(tf.constant(self.pad_id, ids.dtype))
        elif not tf.is_tensor(ids):
            try:
                ids = tf.convert_to_tensor(keras.ops.convert_to_numpy(ids))
            except ValueError:
                raise ValueError(
                    "`ids` must be integers of shape (..., seq), or a ragged "
                    f"tensor of them. Received: ids={ids!r:.60}"
                ) from None
        if not ids.dtype.is_integer or ids.shape.rank == 0:
            raise ValueError(
                "`ids` must be integers of shape (..., seq). "
                f"Received: dtype={ids.dtype.name}, shape={tuple(ids.shape)}."
            )
        # Without changing values, which another integer type might.
        ids = tf.cast(ids, "int64" if ids.dtype.size == 8 else "int32")
        ends = tf.cast(tf.equal(ids, self.end_id), "int32")
        # Ids from the end symbol on do not count, whatever they are.
        ids = tf.where(tf.cumsum(ends, axis=-1) > 0, self.pad_id, ids)
        kept = (ids != self.pad_id) & (ids != self.start_id)
        if self.skipped_ids:
            skipped = tf.constant([*self.skipped_ids], ids.dtype)
            kept &= tf.reduce_all(tf.expand_dims(ids, -1) != skipped, -1)
        if self.pad_id < 0:
            ids = tf.where(ids == self.pad_id, tf.zeros_like(ids), ids)
        self._check_ids(ids)
        return self.join(ids, kept)

    def settled(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns the first of some ids, whose text later ids do not change."""
        return ids

    def _check_ids(self, ids: Any) -> None:
        import tensorflow as tf

        if not tf.executing_eagerly():
            return  # in a graph, looking them up raises
        size = self.vocabulary_size()
        wrong = tf.boolean_mask(ids, (ids < 0) | (ids >= size)).numpy()
        if wrong.size:
            raise ValueError(
                f"`ids` must be in [0, {size}). Received: {wrong[0]}."
            )


def _longest_first(lengths: Any, room: int) -> Any:
    """Returns how many tokens each text of a pair keeps, (batch, 2).

    Tokens of the longer text are dropped until both fit. An odd one stays with
    the longer text, or, if they are equal, with the second.
    """
    import tensorflow as tf

    others = lengths[:, ::-1]
    first, second = tf.unstack(lengths, axis=1)
    is_longer = tf.stack([first > second, second >= first], axis=1)
    half = (room + tf.cast(is_longer, lengths.dtype)) // 2
    return tf.minimum(lengths, tf.maximum(room - others, half))


def import_tensorflow_text(name: str) -> Any:
    """Returns TF-Text; raises an error that says what needs it."""
    try:
        import tensorflow_text
    except ImportError as error:
        raise ImportError(
            f"`{name}` needs TensorFlow and TF-Text, of the same "
            "minor version: `pip install tensorflow tensorflow-text`. TF-Text "
            "has no wheel for Windows; use the Windows Subsystem for Linux."
        ) from error
    return tensorflow_text
