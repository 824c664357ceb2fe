"""Likelihoods of texts under a model and under its exported file.

Token by token equality says little of a quantized language model: where two
tokens are nearly equally likely it may choose the other one, and every later
token then differs. What it should keep are probabilities.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.signatures.signature import Signature

TOKEN_SCORE = "token_score"
_HIGHEST = 500.0  # a difference whose exponential, squared, is finite

Rescore = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Likelihoods:
    """Sums over tokens, of log-likelihoods in nats.

    Attributes:
        tokens: Number of tokens of given or sampled texts.
        model: Sum of their log-likelihoods under the model.
        file: Sum of their log-likelihoods under the file.
        drawn: Number of tokens that the model sampled itself, or that the file
            generated with their scores.
        divergence: Sum of the estimates of the KL divergence at these.
        chosen: Number of tokens that the file generated as the most likely.
        lost: Sum of how much less likely than the most likely one that may
            follow, after the file's own tokens, the model finds these.
    """

    tokens: int = 0
    model: float = 0.0
    file: float = 0.0
    drawn: int = 0
    divergence: float = 0.0
    chosen: int = 0
    lost: float = 0.0

    def __add__(self, other: "Likelihoods") -> "Likelihoods":
        pairs = zip(
            dataclasses.astuple(self), dataclasses.astuple(other), strict=True
        )
        return Likelihoods(*(one + two for one, two in pairs))

    @property
    def perplexity(self) -> float:
        """The model's perplexity of the texts; NaN without any."""
        return _perplexity(self.model, self.tokens)

    @property
    def file_perplexity(self) -> float:
        """The file's perplexity of the same texts."""
        return _perplexity(self.file, self.tokens)

    @property
    def perplexity_ratio(self) -> float:
        """The file's perplexity, as a multiple of the model's."""
        return _perplexity(self.file - self.model, self.tokens)

    @property
    def kl(self) -> float:
        """Mean KL divergence of the file from the model, in nats per token."""
        return self.divergence / self.drawn if self.drawn else math.nan

    @property
    def chosen_ratio(self) -> float:
        """As `perplexity_ratio`, of generated tokens under the model.

        It is relative to the tokens that the model finds the most likely.
        """
        return _perplexity(-self.lost, self.chosen)

    def too_high(self, limits: Mapping[str, float]) -> list[str]:
        """Returns the names of the limits that are exceeded; NaN exceeds."""
        return [
            name
            for name, value, count in (
                ("kl", self.kl, self.drawn),
                ("perplexity", self.perplexity_ratio, self.tokens),
                ("perplexity", self.chosen_ratio, self.chosen),
            )
            if count and not value <= limits[name]
        ]


def _perplexity(total: float, tokens: int) -> float:
    return math.exp(min(-total / tokens, _HIGHEST)) if tokens else math.nan


def of_targets(
    wanted: Mapping[str, Any],
    got: Mapping[str, Any],
    is_drawn: bool,
    is_token: np.ndarray,
) -> Likelihoods:
    """Compares the log-likelihoods of given targets.

    The mean of `log p/q` over tokens that the model p samples is the KL
    divergence of q. The estimate `q/p - 1 - log q/p` has the same mean, is
    never negative, and varies far less (Schulman, "Approximating KL
    divergence", 2020).

    Args:
        wanted: The model's outputs.
        got: The file's.
        is_drawn: Whether the model has sampled the targets.
        is_token: Bool of the scores' shape: which are of no padding.
    """
    own, other = (
        outputs[TOKEN_SCORE].astype("float64") for outputs in (wanted, got)
    )
    own, other = own[is_token], other[is_token]
    found = Likelihoods(own.size, float(np.sum(own)), float(np.sum(other)))
    if not is_drawn:
        return found
    return dataclasses.replace(
        found, drawn=own.size, divergence=_divergence(other - own)
    )


def _divergence(more: np.ndarray, weights: Any = 1.0) -> float:
    """Returns the sum of the estimates of the KL divergence: see `of_targets`.

    Args:
        more: How much more likely the tokens are under the other one of file
            and model than under that which sampled them, in nats.
        weights: How many tokens each number is of.
    """
    more = np.clip(more, -_HIGHEST, _HIGHEST)
    return float(np.sum(weights * (np.expm1(more) - more)))


def of_choices(
    inputs: Mapping[str, Any],
    wanted: Mapping[str, Any],
    got: Mapping[str, Any],
    rescore: Rescore,
) -> tuple[Likelihoods, str | None]:
    """Returns how likely the model finds what a file generated.

    Args:
        inputs: The inputs.
        wanted: The model's outputs.
        got: The file's outputs.
        rescore: See `Offers`.

    Returns:
        The likelihoods, and what is wrong with the outputs, or None.
    """
    found = rescore(inputs, got)
    scores = found[TOKEN_SCORE].astype("float64")
    count = len(scores)
    # Rows in which the model's own outputs do not pass are not compared: a
    # search with several beams may find fewer sequences than it returns, and a
    # tokenizer may give a text other ids than those it was generated as.
    is_none = np.zeros(count, bool)
    if "ids" not in got or "lost" not in found:
        own = rescore(inputs, wanted)
        is_none = np.any([each for _, each in _wrong_rows(own, wanted)], axis=0)
    error = _wrong(found, got, is_none)
    if error is not None:
        return Likelihoods(), error
    real = found["is_token"] & ~is_none[:, np.newaxis]
    drawn, divergence = 0, 0.0
    if TOKEN_SCORE in got:
        file = got[TOKEN_SCORE].astype("float64").reshape(count, -1)
        drawn = int(np.sum(real))
        divergence = _divergence((scores - file)[real])
    elif "score" in got:  # only of whole sequences: the mean of their tokens
        sizes = np.sum(real, axis=1)
        known = found["is_divisor"] & ~is_none & (sizes > 0)
        file = got["score"].astype("float64").reshape(-1) * found["divisor"]
        more = np.sum(np.where(real, scores, 0), axis=1) - file
        sizes = sizes[known]
        drawn = int(np.sum(sizes))
        divergence = _divergence(more[known] / sizes, sizes)
    likelihoods = Likelihoods(drawn=drawn, divergence=divergence)
    if "lost" in found:
        lost = found["lost"].astype("float64")[real]
        likelihoods = dataclasses.replace(
            likelihoods, chosen=lost.size, lost=float(np.sum(lost))
        )
    return likelihoods, None


def _wrong_rows(
    found: Mapping[str, Any], got: Mapping[str, Any]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields what may be wrong with sequences, and bool `(rows,)`: of which.

    Args:
        found: What `rescore` returns of them.
        got: The outputs that have them.
    """
    for name, problem in (
        ("is_text", "is not the text of its own ids"),
        ("is_known", "has an id that the model does not generate"),
        ("is_whole", "neither ends with an end symbol nor is full"),
        ("is_allowed", "has an id that may not follow those before it"),
    ):
        if name in found:
            yield problem, ~found[name]
    if "ended" in got:
        differs = got["ended"].reshape(-1) != found["has_end"]
        yield "has another `ended` than its ids say", differs


def _place(got: Mapping[str, Any], row: Any) -> str:
    """Returns a generated sequence as text, with its name."""
    if "ids" in got:
        ids = got["ids"]
        return f"ids[{row}], {ids.reshape(-1, ids.shape[-1])[row].tolist()},"
    return f"text[{row}], {got['text'].reshape(-1)[row]!r},"


def _wrong(
    found: Mapping[str, Any], got: Mapping[str, Any], is_none: np.ndarray
) -> str | None:
    """Returns what is wrong with generated sequences in themselves, or None.

    Args:
        found: What `rescore` returns of them.
        got: The file's outputs.
        is_none: Bool `(rows,)`: which are not compared.
    """
    for problem, is_wrong in _wrong_rows(found, got):
        if np.any(is_wrong & ~is_none):
            row = np.argmax(is_wrong & ~is_none)
            return f"{_place(got, row)} {problem}"
    if TOKEN_SCORE not in got:
        return None
    return wrong_scores(
        got,
        found["is_token"],
        found["divisor"],
        found["is_divisor"],
        is_none,
    )


def wrong_scores(
    got: Mapping[str, Any],
    is_token: np.ndarray,
    divisor: Any = 1.0,
    is_divisor: Any = True,
    is_none: Any = False,
) -> str | None:
    """Returns where scores contradict each other, or None.

    Args:
        got: A file's outputs.
        is_token: Bool `(rows, tokens)`: where `token_score` is of a token.
        divisor: What sums of these are divided by, one for each row.
        is_divisor: Whether it is known.
        is_none: Which rows are not compared.
    """
    rows = len(is_token)
    is_compared = ~np.broadcast_to(is_none, rows)
    scores = got[TOKEN_SCORE].astype("float64").reshape(rows, -1)
    is_wrong = is_compared & np.any((scores != 0) & ~is_token, axis=1)
    if np.any(is_wrong):
        row = np.argmax(is_wrong)
        return f"{TOKEN_SCORE}[{row}] is not 0 where no token is"
    if "score" in got:
        score = got["score"].astype("float64").reshape(-1)
        total = np.sum(scores, axis=1) / divisor
        is_near = np.isclose(score, total, rtol=1e-3, atol=1e-3)
        is_wrong = is_compared & is_divisor & ~is_near
        if np.any(is_wrong):
            row = np.argmax(is_wrong)
            return (
                f"score[{row}] is {score[row]:.4g}, and its tokens' are "
                f"{total[row]:.4g} together"
            )
    return None


def rescore_of(signature: Signature) -> Rescore | None:
    """Returns `Offers.rescore`, from arrays to arrays, or None."""
    oracle = signature.oracle
    if oracle is not None:
        inner = rescore_of(oracle.base)
        if inner is None:
            return None
        return lambda inputs, outputs: inner(
            oracle.to_base(dict(inputs)), outputs
        )
    method = Offers.of(signature.model).rescore
    if method is None:
        return None
    call, own = traced_once(method), signature.own_names

    def rescore(
        inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        named = {own.get(name, name): x for name, x in outputs.items()}
        found: dict[str, Any] = call(dict(inputs), named)
        return found

    return rescore


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of arrays, computed in one graph for all shapes.

    Args:
        function: It takes and returns tensors, or dicts of them.
    """
    import tensorflow as tf

    call = tf.function(function, autograph=False)

    def run(*arguments: Any) -> Any:
        with tf.device("CPU:0"):
            given = tf.nest.map_structure(tf.constant, arguments)
            traced = call.get_concrete_function(
                *tf.nest.map_structure(
                    lambda x: tf.TensorSpec([None] * x.shape.rank, x.dtype),
                    given,
                )
            )
            found = traced(*given)
        return tf.nest.map_structure(lambda x: x.numpy(), found)

    return run


def in_graph(call: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Returns what a function of tensors gives, computed in a graph."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        function = tf.function(call, autograph=False)
        return function(*map(tf.constant, arrays)).numpy()


def scores_targets(signature: Signature) -> bool:
    """Returns whether its outputs are log-likelihoods of its inputs."""
    return Offers.of(signature.model).drawn_pairs is not None
