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
from keras_posenc.export.probes.tolerance import DEVIATIONS
from keras_posenc.export.signatures.signature import Signature

# Mean KL divergence from the model, in nats per token. Rounding to 8 bits costs
# 0.05 in SmolLM2-135M; one wrong kernel in a model of two small blocks, 0.34.
MAX_KL = 0.1
# A perplexity above the model's by more than this factor.
MAX_PERPLEXITY_RATIO = 1.1

TOKEN_SCORE = "token_score"
_EQUAL = 1e-4  # log-likelihoods that rounding may make of equal ones
_HIGHEST = 500.0  # a difference whose exponential, squared, is finite

Rescore = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Likelihoods:
    """Sums over tokens, of log-likelihoods in nats.

    Attributes:
        tokens: Number of tokens of given or sampled texts.
        model: Sum of their log-likelihoods under the model.
        file: Sum of their log-likelihoods under the file.
        drawn: Number of tokens that the model sampled itself.
        divergence: Sum of the estimates of the KL divergence at these.
        chosen: Number of tokens that the file generated.
        most_likely: Number of those that the model finds the most likely, after
            the file's own tokens.
        regret: Sum of how much less likely than the most likely one that may
            follow the model finds them.
        misjudged: Sum of half the squared difference between the file's and the
            model's log-likelihoods of them.
        moved: Sum of how far noise must change for the model to sample them;
            divided by `concentration`, an estimate of half the squared error
            of log-likelihoods: see `rescored`.
        concentration: Sum of the sums of squared probabilities.
    """

    tokens: int = 0
    model: float = 0.0
    file: float = 0.0
    drawn: int = 0
    divergence: float = 0.0
    chosen: int = 0
    most_likely: int = 0
    regret: float = 0.0
    misjudged: float = 0.0
    moved: float = 0.0
    concentration: float = 0.0

    def __add__(self, other: "Likelihoods") -> "Likelihoods":
        return Likelihoods(
            *(
                one + two
                for one, two in zip(
                    dataclasses.astuple(self),
                    dataclasses.astuple(other),
                    strict=True,
                )
            )
        )

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
    def agreement(self) -> float:
        """Share of generated tokens that the model would choose too."""
        return self.most_likely / self.chosen if self.chosen else math.nan

    @property
    def loss(self) -> float:
        """The largest loss of generated tokens, in nats per token."""
        losses = (
            self.regret / max(self.chosen, 1),
            self.misjudged / max(self.chosen, 1),
            self.moved / (self.concentration or 1.0),
        )
        # `max` would pass over NaN.
        return math.inf if any(map(math.isnan, losses)) else max(losses)

    @property
    def largest_loss(self) -> float:
        """The larger of `kl` and `loss`, in nats per token."""
        kl = self.kl if self.drawn else 0.0
        return math.inf if math.isnan(kl) else max(kl, self.loss)

    def exceeds(self, max_kl: float, max_perplexity_ratio: float) -> bool:
        """Returns whether a file loses more than is allowed; NaN is more."""
        return not (
            self.largest_loss <= max_kl
            and (
                not self.tokens or self.perplexity_ratio <= max_perplexity_ratio
            )
        )


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
    more = np.clip(other - own, -_HIGHEST, _HIGHEST)
    found = Likelihoods(own.size, float(np.sum(own)), float(np.sum(other)))
    if not is_drawn:
        return found
    divergence = float(np.sum(np.expm1(more) - more))
    return dataclasses.replace(found, drawn=own.size, divergence=divergence)


def margin_of(max_kl: float) -> float:
    """Returns how much less likely a generated token may be than the best."""
    # As far apart as errors may put two log-likelihoods: see `rescored`.
    return DEVIATIONS * 2 * math.sqrt(max_kl)


def of_choices(
    inputs: Mapping[str, Any],
    wanted: Mapping[str, Any],
    got: Mapping[str, Any],
    rescore: Rescore,
    max_kl: float = MAX_KL,
) -> tuple[Likelihoods, str | None]:
    """Returns how likely the model finds what a file generated.

    Args:
        inputs: The inputs.
        wanted: The model's outputs.
        got: The file's outputs.
        rescore: See `Offers`.
        max_kl: The largest mean loss of a token, in nats.

    Returns:
        The likelihoods, and what is wrong with the outputs, or None.
    """
    found, own = rescore(inputs, got), None
    scores = found[TOKEN_SCORE].astype("float64")
    count = len(scores)
    # Rows in which the model's own outputs do not pass are not compared: a
    # search with several beams may find fewer sequences than it returns, and a
    # tokenizer may give a text other ids than those it was generated as.
    is_none = np.zeros(count, bool)
    if "ids" not in got or not {"lost", "moved"} & {*found}:
        own = rescore(inputs, wanted)
        is_none = np.any([each for _, each in _wrong_rows(own, wanted)], axis=0)
    error = _wrong(found, got, is_none)
    if error is not None:
        return Likelihoods(), error
    real = found["is_token"] & ~is_none[:, np.newaxis]
    totals = np.sum(np.where(real, scores, 0), axis=1)
    misjudged = most_likely = 0
    if TOKEN_SCORE in got:
        file = got[TOKEN_SCORE].astype("float64").reshape(count, -1)
        misjudged = np.sum((file - scores)[real] ** 2) / 2
    elif "score" in got:  # errors of tokens add up like random ones
        file = got["score"].astype("float64").reshape(-1) * found["divisor"]
        is_known = found["is_divisor"] & ~is_none
        misjudged = np.sum((file - totals)[is_known] ** 2) / 2
    if "lost" in found:
        lost = np.where(real, found["lost"].astype("float64"), 0)
        margin = margin_of(max_kl)
        if np.any(lost > margin):
            row, place = np.unravel_index(np.argmax(lost), lost.shape)
            return Likelihoods(), (
                f"{_place(got, row)} has a token, the {place + 1}., that the "
                f"model finds {lost[row, place]:.3g} nats less likely than the "
                f"most likely one (allowed {margin:.3g})"
            )
        most_likely = np.sum(real & (lost <= _EQUAL))
        regret = np.sum(lost)
    elif "moved" in found:
        regret = 0
    else:  # beams: whole sequences count
        assert own is not None
        best = np.sum(np.where(own["is_token"], own[TOKEN_SCORE], 0), axis=1)
        less = best / own["divisor"] - totals / found["divisor"]
        less = np.maximum(less * found["divisor"], 0)
        regret = np.sum(less[~is_none])
    sums: dict[str, Any] = {
        name: float(np.sum(found[name].astype("float64")[real]))
        for name in ("moved", "concentration")
        if name in found
    }
    return Likelihoods(
        chosen=int(np.sum(real)),
        most_likely=int(most_likely),
        regret=float(regret),
        misjudged=float(misjudged),
        **sums,
    ), None


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
