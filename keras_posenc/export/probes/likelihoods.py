"""Likelihoods of texts under a model and under its exported file.

Token by token equality says little of a quantized language model: where two
tokens are nearly equally likely it may choose the other one, and every later
token then differs. What it should keep are probabilities.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_posenc.export import units
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.signatures.signature import Signature

TOKEN_SCORE = "token_score"
_HIGHEST = 500.0  # a difference whose exponential, squared, is finite

Rescore = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Likelihoods:
    """Sums over tokens, of log-likelihoods in nats.

    Attributes:
        tokens: Number of tokens of given or sampled texts, or that the file
            generated without sampling.
        model: Sum of their log-likelihoods under the model; of generated
            tokens, of those that the model finds the most likely there.
        file: Sum of their log-likelihoods under the file; of generated tokens,
            under the model.
        drawn: Number of tokens that the model sampled itself, or that the file
            generated with their scores.
        divergence: Sum of the estimates of the KL divergence at these.
    """

    tokens: int = 0
    model: float = 0.0
    file: float = 0.0
    drawn: int = 0
    divergence: float = 0.0

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
    def measured(self) -> list[tuple[str, float]]:
        """The numbers that have a limit, with its name."""
        found = (
            ("kl", self.kl, self.drawn),
            ("perplexity", self.perplexity_ratio, self.tokens),
        )
        return [(name, value) for name, value, count in found if count]

    def exceeded(self, limits: Mapping[str, float]) -> list[str]:
        """Returns the names of the limits that are exceeded; NaN exceeds."""
        return [name for name, x in self.measured if not x <= limits[name]]

    def text(self, limits: Mapping[str, float]) -> str:
        """Returns perplexities and KL divergence, with their limits if any."""

        def most(name: str) -> str:
            return f" (at most {limits[name]:g})" if name in limits else ""

        parts = []
        if self.tokens:
            parts.append(
                f"perplexity {self.file_perplexity:.4g}, and the model's "
                f"{self.perplexity:.4g}, on "
                f"{units.count(self.tokens, 'token')}: "
                f"{self.perplexity_ratio:.4g} times{most('perplexity')}"
            )
        if self.drawn:
            parts.append(
                f"KL divergence {self.kl:.2g} nats per token{most('kl')}"
            )
        return "; ".join(parts) or "no token compared"


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
    """Returns the sum of the estimates of the KL divergence.

    `more` is how much more likely a token is under the other one of file and
    model than under that which sampled it, in nats.
    """
    more = np.clip(more, -_HIGHEST, _HIGHEST)
    return float(np.sum(weights * (np.expm1(more) - more)))


def of_choices(
    inputs: Mapping[str, Any],
    wanted: Mapping[str, Any],
    got: Mapping[str, Any],
    rescore: Rescore,
) -> tuple[Likelihoods, str | None]:
    """Returns how likely the model finds what a file generated."""
    found = rescore(inputs, got)
    scores = found[TOKEN_SCORE].astype("float64")
    count = len(scores)
    # Rows in which the model's own outputs do not pass are not compared: a
    # search with several beams may find fewer sequences than it returns, and a
    # tokenizer may give a text other ids than those it was generated as.
    is_none = np.zeros(count, bool)
    if "ids" not in got or "lost" not in found:
        own = _wrong_rows(rescore(inputs, wanted), wanted)
        is_none = np.any([*own.values()], axis=0)
    for problem, rows in _wrong_rows(found, got).items():
        if np.any(is_wrong := rows & ~is_none):
            return Likelihoods(), f"sequence {np.argmax(is_wrong)} {problem}"
    real = found["is_token"] & ~is_none[:, np.newaxis]
    sizes = np.sum(real, axis=1)
    drawn, divergence = 0, 0.0
    if TOKEN_SCORE in got:
        file = got[TOKEN_SCORE].astype("float64").reshape(count, -1)
        drawn = int(np.sum(sizes))
        divergence = _divergence((scores - file)[real])
    elif "score" in got:  # only of whole sequences: the mean of their tokens
        known = found["is_divisor"] & (sizes > 0)
        file = got["score"].astype("float64").reshape(-1) * found["divisor"]
        more = np.sum(scores, axis=1, where=real) - file
        sizes = sizes[known]
        drawn = int(np.sum(sizes))
        divergence = _divergence(more[known] / sizes, sizes)
    chosen = Likelihoods(drawn=drawn, divergence=divergence)
    if "lost" in found:  # how much less likely than the most likely token
        own = scores[real]
        best = own + found["lost"].astype("float64")[real]
        totals = float(np.sum(best)), float(np.sum(own))
        chosen += Likelihoods(own.size, *totals)
    return chosen, None


def _wrong_rows(
    found: Mapping[str, Any], got: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Returns what may be wrong with sequences, and of which: bool `(rows,)`.

    `found` is what `rescore` returns of the outputs `got`.
    """
    problems = {
        "is_text": "is not the text of its own ids",
        "is_known": "has an id that the model does not generate",
        "is_whole": "neither ends with an end symbol nor is full",
        "is_allowed": "has an id that may not follow those before it",
    }
    wrong = {
        problem: ~found[name]
        for name, problem in problems.items()
        if name in found
    }
    if "ended" in got:
        differs = got["ended"].reshape(-1) != found["has_end"]
        wrong["has another `ended` than its ids say"] = differs
    if {TOKEN_SCORE, "score"} <= got.keys():
        scores, score = (
            got[name].astype("float64") for name in (TOKEN_SCORE, "score")
        )
        total = scores.reshape(score.size, -1).sum(axis=1) / found["divisor"]
        near = np.isclose(score.reshape(-1), total, rtol=1e-3, atol=1e-3)
        differs = found["is_divisor"] & ~near
        wrong["has a score that is not its tokens'"] = differs
    return wrong


def rescore_of(signature: Signature) -> Rescore | None:
    """Returns `Offers.rescore`, from arrays to arrays, or None."""
    oracle = signature.oracle
    if oracle is not None:
        inner = rescore_of(oracle.base)
        return inner and (
            lambda inputs, outputs: inner(oracle.to_base(dict(inputs)), outputs)
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
    """Returns a function of arrays, computed in one graph for all shapes."""
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
