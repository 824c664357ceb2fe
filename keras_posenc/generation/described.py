"""The description of a generator in the model card of its export."""

import dataclasses
from typing import Any

from keras_posenc.generation.decoding import Decoding

_SCORED = {
    "score": "log-likelihood of all tokens together",
    "token_score": "log-likelihood of each token; 0 for padding",
}
OF_SCORES = {
    "signature": "How likely the model considers a given target.",
    "inputs": {"target": "the target to score; its end is scored too"},
    "outputs": _SCORED,
}


def described(decoding: Decoding) -> dict[str, Any]:
    """Returns a sentence, and the meanings of inputs and outputs by name."""
    given = [
        f"{each.name}={value}"
        for each in dataclasses.fields(decoding)
        if (value := getattr(decoding, each.name)) not in (each.default, ())
        or each.name == "max_length"
    ]
    which = "the generated ids"
    if decoding.n_best > 1:
        which += f", the {decoding.n_best} best, the best first"
    divided = ", divided by the length penalty" * bool(decoding.length_penalty)
    return {
        "signature": f"Generates with {', '.join(given)}.",
        "inputs": {"noise": "numbers in [0, 1) that draw the samples"},
        "outputs": {
            "text": which,
            "ids": f"{which}: up to and including an end id, then 0",
            "ended": "whether an end id was generated; False: it was cut off",
            **_SCORED,
            "score": f"{_SCORED['score']}{divided}",
        },
    }
