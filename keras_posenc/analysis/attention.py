"""Attention weights of a Transformer while it writes, and its tokens."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_posenc.checks import check_choice

_NAMES = ("start", "end", "unknown")
# Characters that would be invisible.
_BLANKS = str.maketrans({" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥"})


def token_labels(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Returns the label of each id.

    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import token_labels
    >>> token_labels(kp.CharacterTokenizer("ab "), [2, 4, 6, 5, 3])
    ['<start>', 'a', '␣', 'b', '<end>']

    Args:
        tokenizer: A tokenizer of this package, or a layer with `detokenize`
            and `vocabulary_size`; None gives the numbers.
        ids: The ids.

    Returns:
        The text of each id; `<start>`, `<end>` and `<unknown>` for those; and
        `#7` for an id that is not a text by itself, such as one byte of a
        longer character, or that is not in the vocabulary.
    """
    if tokenizer is None:
        return [str(each) for each in ids]
    named = {
        each: f"<{name}>"
        for name in _NAMES
        if (each := getattr(tokenizer, f"{name}_id", None)) is not None
    }
    size = tokenizer.vocabulary_size()
    # A model may have more ids than its tokenizer.
    rows = np.array([each if each < size else 0 for each in ids], "int32")
    rows = rows.reshape(-1, 1)
    texts = [
        text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        for text in np.asarray(tokenizer.detokenize(rows)).tolist()
    ]
    return [
        named.get(each)
        or (f"#{each}" if not text or "\ufffd" in text else text).translate(
            _BLANKS
        )
        for each, text in zip(ids, texts, strict=True)
    ]


def _ids_of(generator: Any, side: str, text: Any) -> list[int]:
    """Returns the ids of a text, or the ids given, without padding."""
    (ids,) = generator._ids(side, [text], generator._tokenizers()[side])
    pad_id = (generator.search if side == "target" else generator.model).pad_id
    found = [int(each) for each in ids if each != pad_id]
    if not found:
        raise ValueError(f"`{side}` must not be empty. Received none")
    return found


KINDS = ("cross", "source", "target")


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """How much each token of a text attends to each token of a text.

    Attributes:
        kind: `"cross"`, `"source"` or `"target"`: see `attention_map`.
        weights: float64 `(layers, heads, queries, keys)`; sums to 1 along the
            keys.
        queries: The attending tokens, as labels. For a target these are the
            tokens written at each position; the last is the end symbol.
        keys: The tokens attended to, as labels.
    """

    kind: str
    weights: npt.NDArray[np.float64]
    queries: list[str]
    keys: list[str]

    def mean(
        self, *, layer: int | None = None, head: int | None = None
    ) -> npt.NDArray[np.float64]:
        """Returns the weights of one layer and head, or a mean.

        Args:
            layer: Which layer, from 0 on; None for the mean of all.
            head: Which head, from 0 on; None for the mean of all.

        Returns:
            `(queries, keys)`.

        Raises:
            ValueError: There is no such layer or head.
        """
        chosen = self.weights
        given = {"layer": layer, "head": head}
        for axis, (name, value) in enumerate(given.items()):
            count = self.weights.shape[axis]
            if value is None:
                chosen = chosen.mean(axis=axis, keepdims=True)
            elif 0 <= value < count:
                chosen = chosen.take([value], axis=axis)
            else:
                raise ValueError(
                    f"`{name}` must be from 0 to {count - 1}, or None for the "
                    f"mean. Received: {name}={value!r}"
                )
        return np.asarray(chosen[0, 0])


def attention_map(
    generator: keras.Model,
    source: Any,
    target: Any = None,
    *,
    kind: str = "cross",
) -> AttentionMap:
    """Returns what a Transformer attends to, for a source and a target.

    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import attention_map
    >>> model = kp.Transformer(
    ...     9, d_model=8, num_layers=2, num_heads=4, intermediate_dim=8
    ... )
    >>> generator = kp.Generator(model, start_id=2, end_ids=3)
    >>> found = attention_map(generator, [5, 6, 7], [8, 4])
    >>> found.weights.shape, found.queries, found.keys
    ((2, 4, 3, 3), ['8', '4', '3'], ['5', '6', '7'])

    Args:
        generator: A `Generator` of a `Transformer`.
        source: A text, or ids `(seq,)` where there is no source tokenizer.
        target: A text, or ids `(seq,)` where there is no target tokenizer; by
            default the best that the generator writes.
        kind: `"cross"`, from the target's tokens to the source's; `"source"`,
            within the source; `"target"`, within the target.

    Returns:
        An `AttentionMap`, for `plot_attention`.

    Raises:
        ValueError: Another model, an empty text, or an unknown kind.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), figures 3
          to 5
    """
    check_choice("kind", kind, KINDS)
    model: Any = getattr(generator, "model", None)
    if not hasattr(model, "attention_weights"):
        raise ValueError(
            "`generator` must be a Generator of a Transformer, which has a "
            f"source and a target. Received: generator={generator!r}"
        )
    search = generator.search
    start_id = search.decoding.start_id
    source_ids = _ids_of(generator, "source", source)
    if target is None:
        found = search(ops.convert_to_tensor([source_ids], "int32"))["ids"]
        length = search.decoding.max_length
        best = ops.convert_to_numpy(found).reshape(-1, length)[0]
        written = [int(each) for each in best if each != search.pad_id]
    else:
        written = _ids_of(generator, "target", target)
        written = [each for each in written if each != start_id]
        written = _ended(written, search.decoding.end_ids)
    # The decoder writes each token at the position of the one before it.
    read = [start_id, *written[:-1]]
    weights = model.attention_weights(
        np.array([source_ids], "int32"), np.array([read], "int32")
    )[kind]
    sources = token_labels(generator.source_tokenizer, source_ids)
    queries, keys = (
        sources if kind == "source" else token_labels(tokenizer, ids)
        for tokenizer, ids in (
            (generator.target_tokenizer, written),
            (generator.target_tokenizer, read),
        )
    )
    return AttentionMap(
        kind,
        np.stack(
            [ops.convert_to_numpy(ops.cast(w, "float32"))[0] for w in weights]
        ).astype("float64"),
        queries,
        sources if kind == "cross" else keys,
    )


def _ended(ids: list[int], end_ids: Sequence[int]) -> list[int]:
    """Returns ids up to the first end symbol, which is added if missing."""
    for place, each in enumerate(ids):
        if each in end_ids:
            return ids[: place + 1]
    return [*ids, *end_ids[:1]]
