"""Extractive question answering: the part of a text that a question is about.

A model has two logits for each token, that the predicted text starts or ends
there. `answer` makes texts of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from keras_posenc.checkpoints.pretrained_model import TakesTexts
from keras_posenc.checks import check_bool, check_positive_int
from keras_posenc.ops.masks import resolve_mask
from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.files import shown
from keras_posenc.text.spans import Span, token_spans

# The logit of tokens that are not of the second text, as in transformers:
# float16 holds it, and its softmax is 0.
NOWHERE = -10000.0
# Lengths of windows and of their overlap, in ids, as in transformers.
_LENGTH, _STRIDE = 384, 128


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="SpanLogits"
)
class SpanLogits(keras.Layer):
    """Two logits for each token: that a span starts there, or ends there.

    Of tokens that are not of the second text they are -10000, except for the
    first token, whose logits are those of no span at all.

    Args:
        separator_id: The id that ends the first text.
        num_separators: How often it is between the two texts.
        **kwargs: As for `keras.Layer`.

    Call arguments:
        inputs: Contextual embeddings, `(batch, seq, dim)`.
        ids: Their ids, integers of shape `(batch, seq)`.

    Returns:
        A dict: `start` and `end`, `(batch, seq)`.
    """

    def __init__(
        self, separator_id: int, num_separators: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.separator_id = separator_id
        self.num_separators = num_separators
        self.supports_masking = True
        self.projection = keras.layers.Dense(
            2, dtype=self.dtype_policy, name="projection"
        )

    def build(self, inputs_shape: Any, ids_shape: Any = None) -> None:
        self.projection.build(inputs_shape)
        self.built = True

    def call(self, inputs: Any, ids: Any) -> dict[str, Any]:
        mask = resolve_mask(None, inputs)
        if mask is None:
            mask = ops.ones_like(ids, dtype="bool")
        mask = ops.cast(mask, "int32")
        separators = ops.cast(ops.equal(ids, self.separator_id), "int32")
        before = ops.cumsum(separators, axis=1) - separators
        token = ops.cumsum(mask, axis=1)  # its number, from 1 on
        last = ops.sum(mask, axis=1, keepdims=True)
        is_second = (before >= self.num_separators) & (token < last)
        is_possible = ops.cast(mask, "bool") & (is_second | ops.equal(token, 1))
        logits = self.projection(inputs)  # (batch, seq, 2)
        return {
            name: ops.where(
                is_possible,
                logits[..., index],
                ops.cast(NOWHERE, logits.dtype),
            )
            for index, name in enumerate(("start", "end"))
        }

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        return None

    def compute_output_spec(self, inputs: Any, ids: Any) -> dict[str, Any]:
        return {  # a tensor each: Keras tells outputs apart by their identity
            name: keras.KerasTensor(inputs.shape[:2], self.compute_dtype)
            for name in ("start", "end")
        }

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "separator_id": self.separator_id,
            "num_separators": self.num_separators,
        }


@keras.saving.register_keras_serializable(package="keras_posenc")
class QuestionAnsweringModel(TakesTexts, keras.Model):
    """A model that finds the part of a text that answers a question.

    `load_hugging_face` makes it from a checkpoint. It takes pairs of texts,
    `(question, context)`, as strings of shape `(batch, 2)`, or the ids of such
    pairs, `(batch, seq)`.

    Its output is a dict of logits, `start` and `end`, `(batch, seq)`: for each
    token, that the predicted part starts or ends there. Tokens that are not of
    the context have -10000, except for the first one, whose logits are those of
    "no answer". The softmax of each is a distribution over tokens, so that two
    `SparseCategoricalCrossentropy(from_logits=True)` train it.

    `answer` returns texts.

    Args:
        *args: `inputs` and `outputs`, as for `keras.Model`.
        inputs: The input, by its name.
        outputs: The outputs, by their name.
        origin: As for `PretrainedModel`.
        name: As for `keras.Model`.
        trainable: As for `keras.Model`.
        **kwargs: As for `keras.Model`.
    """

    labels = None

    def __init__(
        self,
        # Keras makes such a model of its config only if it takes `*args` and
        # `**kwargs`, and gives the next two by name.
        *args: Any,
        inputs: Any = None,
        outputs: Any = None,
        origin: Mapping[str, Any] | None = None,
        name: str | None = None,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        tensors = args if inputs is None else (inputs, outputs)
        super().__init__(*tensors, name=name, trainable=trainable, **kwargs)
        self.origin = dict(origin or {})

    def answer(
        self,
        pairs: Sequence[Sequence[str]],
        *,
        top_k: int | None = None,
        allow_no_answer: bool = False,
        max_answer_length: int = 30,
        max_length: int | None = None,
        stride: int | None = None,
        batch_size: int = 32,
    ) -> list[Any]:
        """Returns the part of each context that answers its question.

        A score is the probability that the part starts at its first token times
        the probability that it ends at its last: the softmax of the logits over
        the context's tokens and the first one, as in the question answering
        pipeline of transformers.

        A long context is read in windows that overlap. A part that is in
        several windows has its largest score.

        Args:
            pairs: Pairs of a question and a context: a list, or an array
                `(batch, 2)`.
            top_k: None for the best part of each pair; a number for a list of
                up to that many, the best first.
            allow_no_answer: Whether the best may be "no answer", with `text`
                `""` and `start` and `end` 0, for models that were trained with
                questions that have none, as by SQuAD 2. Its score is the least
                of all windows.
            max_answer_length: The most tokens of a part.
            max_length: The most ids of a window. By default as many as the
                tokenizer's `max_length`, at most 384.
            stride: How many tokens of the context two windows share. By default
                half of `max_length`, at most 128.
            batch_size: How many windows the model reads at once.

        Returns:
            For each pair a dict, or a list of them with `top_k`: `text`, a str,
            equal to `context[start:end]`; `start` and `end`, in characters;
            `score`, a float.

        Raises:
            ValueError: These are no pairs of texts; a question or a context is
                empty, or a question leaves no place for its context; the model
                takes ids.

        Example:
        >>> import keras_posenc as kp
        >>> model = kp.load_hugging_face("squad2")  # doctest: +SKIP
        >>> model.answer([
        ...     ["Who wrote it?", "It was written by Ada Lovelace in 1843."]
        ... ])  # doctest: +SKIP
        [{'text': 'Ada Lovelace', 'start': 18, 'end': 30, 'score': 0.98}]
        """
        tokenizer = self.layers[1]
        if not isinstance(tokenizer, Tokenizer):
            raise ValueError(
                f"`answer` needs texts, and model '{self.name}' takes ids: "
                "load_hugging_face(folder) makes one of texts"
            )
        if top_k is not None:
            check_positive_int("top_k", top_k)
        check_bool("allow_no_answer", allow_no_answer)
        check_positive_int("max_answer_length", max_answer_length)
        check_positive_int("batch_size", batch_size)
        longest = tokenizer.max_length
        if max_length is None:
            max_length = min(longest or _LENGTH, _LENGTH)
        tokenizer._check_length("max_length", max_length)
        if longest is not None and max_length > longest:
            raise ValueError(
                f"`max_length` must be at most {longest}, the tokenizer's. "
                f"Received: max_length={max_length}"
            )
        if stride is None:
            stride = min(max_length // 2, _STRIDE)
        check_positive_int("stride", stride)
        given = self._texts_of(pairs)
        if given is None:
            raise ValueError(
                "`pairs` must be a list of pairs of a question and a context. "
                f"Received: {pairs!r:.60}"
            )
        texts = [_decoded(number, *pair) for number, pair in enumerate(given)]
        if not texts:
            return []
        windows = [*_windows(tokenizer, texts, max_length, stride)]
        found: list[list[Any]] = [[] for _ in texts]
        nothing = [1.0] * len(texts)
        # Windows of about one length are read together, with little padding.
        windows.sort(key=lambda window: -len(window.ids))
        for begin in range(0, len(windows), batch_size):
            several = windows[begin : begin + batch_size]
            logits = self._logits(tokenizer.pad_id, several)
            for row, window in enumerate(several):
                size = len(window.ids)
                starts, ends = (x[row, :size] for x in logits)
                nothing[window.pair] = min(
                    nothing[window.pair], float(starts[0] * ends[0])
                )
                found[window.pair] += _best(
                    starts,
                    ends,
                    window,
                    texts[window.pair][1],
                    top_k or 1,
                    max_answer_length,
                )
        results = []
        for answers, no_score in zip(found, nothing, strict=True):
            if allow_no_answer:
                answers.append(_answer("", 0, 0, no_score))
            answers.sort(key=lambda each: -each["score"])
            spans = {(x["start"], x["end"]): x for x in reversed(answers)}
            answers = [x for x in answers if x is spans[x["start"], x["end"]]]
            results.append(answers[0] if top_k is None else answers[:top_k])
        return results

    def _logits(
        self, pad_id: int, windows: Sequence["_Window"]
    ) -> list[np.ndarray]:
        """Returns the probabilities of starts and of ends, `(batch, seq)`."""
        ids = np.full((len(windows), len(windows[0].ids)), pad_id, "int32")
        for row, window in zip(ids, windows, strict=True):
            row[: len(window.ids)] = window.ids
        ids = ops.convert_to_tensor(ids)
        *layers, head = self.layers[2:]
        x = ids
        for layer in layers:
            x = layer(x, training=False)
        outputs = head(x, ids)
        return [
            _softmax(ops.convert_to_numpy(outputs[name]).astype("float64"))
            for name in ("start", "end")
        ]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "origin": self.origin}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        config = dict(config)
        origin = config.pop("origin", None)
        model = super().from_config(config, custom_objects)
        model.origin = dict(origin or {})
        return model


def model_of(
    front: Sequence[Any], encoder: Any, after: Sequence[Any], **named: Any
) -> QuestionAnsweringModel:
    """Returns a model of an input, perhaps a tokenizer, and layers.

    The last of `after` is a `SpanLogits`.
    """
    inputs, *tokenizer = front
    ids = tokenizer[0](inputs) if tokenizer else inputs
    *layers, head = [encoder, *after]
    x = ids
    for layer in layers:
        x = layer(x)
    return QuestionAnsweringModel(inputs, head(x, ids), **named)


class _Window(NamedTuple):
    """The ids of a question and of a part of its context.

    `pair` is the number of the pair, `first` the place in the ids where the
    context begins, and `spans` are the characters of its tokens.
    """

    pair: int
    ids: list[int]
    first: int
    spans: Sequence[Span]


def _decoded(number: int, *pair: Any) -> list[str]:
    """Returns question and context as texts that are not empty."""
    texts = []
    for name, text in zip(("question", "context"), pair, strict=True):
        try:
            text = text.decode() if isinstance(text, bytes) else text
            text.encode()
        except UnicodeError:
            raise ValueError(
                f"`pairs` must be Unicode. Received at index {number}: "
                f"{name}={text[:40]!r}"
            ) from None
        if not text.strip():
            raise ValueError(
                f"`pairs` must have no empty text. Received at index {number}: "
                f"{name}={text[:40]!r}"
            )
        texts.append(text)
    return texts


def _windows(
    tokenizer: Any,
    texts: Sequence[Sequence[str]],
    max_length: int,
    stride: int,
) -> Iterator[_Window]:
    """Yields the windows of all pairs, framed as the tokenizer frames them."""
    longest = tokenizer.max_length
    questions = tokenizer.split([question for question, _ in texts]).to_list()
    contexts = token_spans(tokenizer, [context for _, context in texts])
    between = [tokenizer.end_id] * tokenizer.num_separators
    start, end = (
        [index] * count
        for index, count in zip(
            (tokenizer.start_id, tokenizer.end_id), tokenizer.frame, strict=True
        )
    )
    for pair, (question, (ids, spans)) in enumerate(
        zip(questions, contexts, strict=True)
    ):
        where = f"at index {pair}: {shown(texts[pair][0])}"
        if tokenizer.end_id in question:
            raise ValueError(
                "A question must not have the token that ends it, "
                f"{tokenizer.end_token!r}. Received {where}"
            )
        if not any(texts[pair][1][slice(*span)].strip() for span in spans):
            raise ValueError(
                "A context must have tokens, for one to be found. Received at "
                f"index {pair}: {shown(texts[pair][1])}"
            )
        framed = [*start, *question, *between]
        room = max_length - len(framed) - len(end)
        if room < 1 or len(ids) > room <= stride:
            remedies = ["shorten the question"]
            more = max_length - room + min(stride + 1, len(ids))
            if longest is None or more <= longest:
                remedies.append(f"give max_length={more}, stride={stride}")
            if room > 1:
                remedies.append(
                    f"give max_length={max_length}, stride={room - 1}"
                )
            raise ValueError(
                f"The question takes {len(framed)} of the {max_length} ids of "
                f"a window, which leaves {max(room, 0)} to its context, and "
                f"the next window repeats `stride`, {stride}: "
                f"{', or '.join(remedies)}. Received {where}"
            )
        for first in range(0, len(ids), max(room - stride, 1)):
            last = first + room
            yield _Window(
                pair,
                [*framed, *ids[first:last], *end],
                len(framed),
                spans[first:last],
            )
            if last >= len(ids):
                break


def _best(
    starts: np.ndarray,
    ends: np.ndarray,
    window: _Window,
    context: str,
    count: int,
    longest: int,
) -> list[dict[str, Any]]:
    """Returns the best spans of a window, each with its text."""
    length = len(window.spans)
    inside = slice(window.first, window.first + length)
    # A row for each first token, a column for each number of tokens after it.
    firsts, more = np.indices((length, min(longest, length)))
    lasts = firsts + more
    kept = lasts < length
    firsts, lasts = firsts[kept], lasts[kept]
    scores = starts[inside][firsts] * ends[inside][lasts]
    found: dict[Span, dict[str, Any]] = {}
    for index in np.argsort(-scores, kind="stable"):
        first, last = firsts[index], lasts[index]
        text = context[window.spans[first][0] : window.spans[last][1]]
        start = window.spans[first][0] + len(text) - len(text.lstrip())
        text = text.strip()
        span = start, start + len(text)
        if text and span not in found:
            found[span] = _answer(text, *span, float(scores[index]))
            if len(found) == count:
                break
    return [*found.values()]


def _answer(text: str, start: int, end: int, score: float) -> dict[str, Any]:
    return {"text": text, "start": start, "end": end, "score": score}


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)
