"""Likelihoods of texts under a model and under its exported file.

Where two tokens are nearly equally likely a quantized model may choose the
other one, and every later token differs. It should keep probabilities.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.quality import Loss
from keras_posenc.export.signatures.signature import Signature

TOKEN_SCORE = "token_score"
_HIGHEST = 500.0  # a difference whose exponential, squared, is finite

Rescore = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Likelihoods(Loss):
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
    def perplexity_ratio(self) -> float:
        """The file's perplexity, as a multiple of the model's."""
        if not self.tokens:
            return math.nan
        mean = (self.model - self.file) / self.tokens
        return math.exp(min(mean, _HIGHEST))

    @property
    def kl(self) -> float:
        """Mean KL divergence of the file from the model, in nats per token."""
        return self.divergence / self.drawn if self.drawn else math.nan

    @property
    def measured(self) -> dict[str, float]:
        """The numbers that are known."""
        found = {"kl": self.kl} if self.drawn else {}
        if self.tokens:
            found["perplexity"] = self.perplexity_ratio
        return found


def of_targets(
    wanted: Mapping[str, Any], got: Mapping[str, Any], is_drawn: bool
) -> Likelihoods:
    """Compares the log-likelihoods of given targets, both 0 for padding.

    `q/p - 1 - log q/p` over tokens that the model p samples has the mean of KL
    divergence (Schulman, "Approximating KL divergence", 2020).
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
