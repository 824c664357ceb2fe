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
        tokens: Number of tokens of given or sampled texts.
        model: Sum of their log-likelihoods under the model.
        file: Sum of their log-likelihoods under the file.
        drawn: Number of tokens that the model sampled or the file generated.
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
) -> Likelihoods:
    """Compares the log-likelihoods of given targets, both 0 for padding.

    The mean of `log p/q` over tokens that the model p samples is the KL
    divergence of q. The estimate `q/p - 1 - log q/p` has the same mean, is
    never negative, and varies far less (Schulman, "Approximating KL
    divergence", 2020).
    """
    own, other = (
        outputs[TOKEN_SCORE].astype("float64") for outputs in (wanted, got)
    )
    is_token = (own != 0) | (other != 0)
    own, other = own[is_token], other[is_token]
    found = Likelihoods(own.size, float(np.sum(own)), float(np.sum(other)))
    if not is_drawn:
        return found
    return dataclasses.replace(
        found, drawn=own.size, divergence=_divergence(other - own)
    )


def _divergence(more: np.ndarray) -> float:
    """Returns the sum of the estimates, of log q/p."""
    more = np.clip(more, -_HIGHEST, _HIGHEST)
    return float(np.sum(np.expm1(more) - more))


def of_generated(
    inputs: Mapping[str, Any], got: Mapping[str, Any], rescore: Rescore
) -> Likelihoods:
    """Compares the scores of tokens that a file generated with the model's."""
    found = rescore(inputs, got)
    is_token = found["is_token"]
    own, file = (
        scores.astype("float64").reshape(is_token.shape)[is_token]
        for scores in (found[TOKEN_SCORE], got[TOKEN_SCORE])
    )
    return Likelihoods(drawn=own.size, divergence=_divergence(own - file))


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
