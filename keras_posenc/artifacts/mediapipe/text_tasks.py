"""Models of texts as MediaPipe's text tasks run them.

MediaPipe cuts a text into tokens by itself, and hands over what BERT takes:
ids between `[CLS]` and `[SEP]`, a mask, and segments. A signature of these
three answers what the model answers to the text.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.expectations.answering import Memory, answers_of
from keras_posenc.artifacts.expectations.expectations import Case
from keras_posenc.artifacts.expectations.invention import texts_beyond
from keras_posenc.artifacts.expectations.samples import split_texts
from keras_posenc.artifacts.mediapipe.requirements import (
    check_output,
    check_tokenizer,
    check_tokens,
    differing,
    is_tokenizer,
    lengths,
)
from keras_posenc.artifacts.signatures.naming import narrowed
from keras_posenc.artifacts.signatures.resolving import (
    as_given,
    resolve_signatures,
)
from keras_posenc.artifacts.signatures.signature import (
    DEFAULT,
    Arrays,
    Origin,
    Signature,
)
from keras_posenc.artifacts.signatures.strings import (
    LIMITS,
    from_ids,
    limit_of,
)
from keras_posenc.keras_internals import layer_behind

IDS, MASK, SEGMENTS = "ids", "mask", "segment_ids"


@dataclasses.dataclass(frozen=True)
class TextTask:
    """What a file for a MediaPipe task is made of.

    Attributes:
        name: One of `TASKS`.
        signature: Of ids, mask and segments.
        vocabulary: The WordPiece tokens in the order of their ids.
        labels: The names of the scores, or None.
        text: The signature of the model itself.
        tokenize: From a text to all of its ids.
        limit: How many ids the model takes of a text; None for all.
        notes: Which texts have other answers in MediaPipe, and what long ones
            cost, in words.
    """

    name: str
    signature: Signature
    vocabulary: list[str]
    labels: list[str] | None
    text: Signature
    tokenize: Callable[[str], np.ndarray]
    limit: int | None
    notes: list[str]

    def questions(self, samples: Any) -> tuple[list[Any], Iterator[Case]]:
        """Samples without their texts, and what those are to be answered.

        Texts are put to the model as they are, and to a file as MediaPipe
        hands them over.
        """
        texts, others = split_texts(samples)
        return others, self._cases(texts)

    def _cases(self, texts: Sequence[str]) -> Iterator[Case]:
        answer = answers_of(self.text, Memory())
        invented = texts_beyond(self.limit)
        for is_sample, group in ((False, invented), (True, texts)):
            for text, inputs, given in self._rows(group):
                answers = answer(given)
                name = self.signature.name
                yield Case(name, inputs, answers, is_sample, text)

    def as_samples(self, samples: Any) -> list[Any]:
        """Samples with each text as MediaPipe hands it over.

        All of one length, for calibration takes several inputs of no other.
        """
        texts, found = split_texts(samples)
        rows = [row for _, row, _ in self._rows(texts)]
        longest = max((row[IDS].shape[1] for row in rows), default=0)
        return found + [
            {
                name: np.pad(ids, ((0, 0), (0, longest - ids.shape[1])))
                for name, ids in row.items()
            }
            for row in rows
        ]

    def _rows(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[str, Arrays, Arrays]]:
        """Texts, as MediaPipe hands them over, and as the model takes them.

        A text that a signature of fixed length cuts, and the model does not,
        is left out.
        """
        (name,) = self.text.specs
        length = self.signature.specs[IDS].shape[1]
        for text in texts:
            ids = self.tokenize(text)
            if length is not None and len(ids) > length:
                if length != self.limit:
                    continue
                ids = np.append(ids[: length - 1], ids[-1])
            row = np.zeros((1, length or len(ids)), "int32")
            row[0, : len(ids)] = ids
            given = {name: np.array([text], dtype=object)}
            yield text, _as_bert(row), given


def resolve_task(
    model: keras.Model,
    task: str,
    labels: Sequence[str] | None = None,
    signatures: Mapping[str, Any] | None = None,
) -> TextTask:
    """What a file for a MediaPipe task is made of.

    Args:
        model: Takes strings, and cuts them by one WordPiece tokenizer: a layer
            with `get_vocabulary()`, `lowercase` and `sequence_length`.
        task: One of `TASKS`.
        labels: A name for each score.
        signatures: For one name the model, or a pair of it and a dict of the
            shape of `ids`. By default `(1, None)`.

    Raises:
        ValueError: A model that is no such one, or whose vocabulary or labels
            MediaPipe would misread.
    """
    whole, *_ = resolve_signatures(model)
    cut = from_ids(whole)
    tokenizer: Any = None
    if cut is not None and cut.cut_at is not None:
        tokenizer = layer_behind(cut.cut_at)
    if cut is None or not is_tokenizer(tokenizer):
        raise ValueError(
            f"task='{task}' needs a model that takes strings and tokenizes "
            "them by WordPiece, such as with kp.WordpieceTokenizer. Received: "
            f"model '{model.name}'"
        )
    check_tokenizer(tokenizer)
    check_output(task, whole, labels)
    # MediaPipe cuts where its input ends, which need not be where ours does.
    config = tokenizer.get_config()
    config |= {name: None for name in LIMITS if name in config}
    uncut = type(tokenizer).from_config(config)

    def tokenize(text: str) -> np.ndarray:
        ids = uncut(np.array([text], dtype=object))
        return np.asarray(keras.ops.convert_to_numpy(ids))[0]

    check_tokens(tokenizer, tokenize)
    found = list(
        as_given({DEFAULT: model} if signatures is None else signatures)
    )
    if len(found) > 1:
        raise ValueError(
            "`signatures` must be one for a task: MediaPipe takes files of one "
            f"signature. Received: {', '.join(name for name, *_ in found)}"
        )
    ((name, given, shapes),) = found
    shape, limit = _shape(name, given, shapes, model), limit_of(tokenizer)
    return TextTask(
        name=task,
        signature=_of_bert(name, cut, shape, tokenizer),
        vocabulary=list(tokenizer.get_vocabulary()),
        labels=None if labels is None else list(labels),
        text=whole,
        tokenize=tokenize,
        limit=limit,
        notes=[*differing(tokenizer), *lengths(limit, shape[1])],
    )


def _shape(
    name: str, given: keras.Model, shapes: Mapping[str, Any], model: keras.Model
) -> tuple[int | None, ...]:
    """The shape of the ids of a signature."""
    if given is not model:
        raise ValueError(
            f"Signature '{name}': a task's signature must be its model, "
            f"'{model.name}', or a pair (model, {{'ids': shape}})"
        )
    if set(shapes) - {IDS}:
        raise ValueError(
            f"Signature '{name}': a task has a shape of 'ids' only. "
            f"Received: {', '.join(map(str, shapes))}"
        )
    spec = keras.InputSpec(shape=(None, None), dtype="int32")
    shape = narrowed(name, IDS, spec, shapes.get(IDS, (1, None))).shape
    if shape[0] != 1 or shape[1] == 1:
        raise ValueError(
            f"Signature '{name}': MediaPipe gives one text at a time, of 2 ids "
            f"or more. Received: shape {shape}"
        )
    return shape


def _of_bert(
    name: str, cut: Signature, shape: tuple[int | None, ...], tokenizer: Any
) -> Signature:
    """The signature of ids, mask and segments, from that of ids."""
    ((cut_name, cut_spec),) = cut.specs.items()
    limit, fixed = limit_of(tokenizer), tokenizer.sequence_length
    if fixed is not None and shape[1] not in (None, fixed):
        raise ValueError(
            f"Signature '{name}': '{tokenizer.name}' makes {fixed} ids of "
            f"every text, so that the shape of ids is (1, {fixed}), or "
            f"(1, None). Received: shape {shape}"
        )
    if limit is not None and shape[1] is not None and shape[1] > limit:
        raise ValueError(
            f"Signature '{name}': '{tokenizer.name}' makes no more than "
            f"{limit} ids of a text. Received: shape {shape}"
        )

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        ids = tensors[IDS] * tensors[MASK]
        if limit is not None and shape[1] is None:
            # All that the model takes of a longer text, and its [SEP].
            kept = keras.ops.minimum(keras.ops.shape(ids)[1], limit) - 1
            ids = keras.ops.concatenate([ids[:, :kept], ids[:, -1:]], axis=1)
        return cut.call({cut_name: ids})

    def ask(inputs: Arrays) -> Arrays:
        (row,) = inputs[IDS] * inputs[MASK]
        if limit is not None:
            if len(row) > limit:
                row = np.append(row[: limit - 1], row[-1])
        if fixed is not None:
            row = np.pad(row, (0, fixed - len(row)))
        return {cut_name: row[np.newaxis].astype(cut_spec.dtype)}

    spec = keras.InputSpec(shape=shape, dtype="int32")
    ids_spec = keras.InputSpec(shape=shape, dtype=cut_spec.dtype)
    return Signature(
        name,
        cut.model,
        dict.fromkeys((IDS, MASK, SEGMENTS), spec),
        call,
        Origin(
            dataclasses.replace(cut, name=name, specs={cut_name: ids_spec}),
            ask=ask,
            widen=lambda inputs: _as_bert(inputs[cut_name].astype("int32")),
        ),
    )


def _as_bert(ids: np.ndarray) -> Arrays:
    return {
        IDS: ids,
        MASK: (ids != 0).astype("int32"),
        SEGMENTS: np.zeros_like(ids),
    }
