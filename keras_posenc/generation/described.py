"""The description of a generator in the model card of its export."""

from typing import Any

from keras_posenc.generation.decoding import SAMPLING, Decoding

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
    if decoding.beams > 1:
        how = (
            f"By beam search: {decoding.beams} beams, length penalty "
            f"{decoding.length_penalty:g}"
        )
    elif decoding.draw is None:
        how = "Greedy: the most likely token each time"
    else:
        given = (
            f"{name} {getattr(decoding, name):g}"
            for name in SAMPLING
            if getattr(decoding, name) is not None
        )
        how = f"Sampled: {', '.join(given)}"
    parts = [how, f"at most {decoding.max_length} tokens"]
    if decoding.min_length:
        parts.append(f"at least {decoding.min_length}")
    if decoding.repetition_penalty != 1:
        parts.append(f"repetition penalty {decoding.repetition_penalty:g}")
    if decoding.start_id is not None:
        parts.append(f"start id {decoding.start_id}")
    if decoding.end_ids:
        parts.append(f"end ids {', '.join(map(str, decoding.end_ids))}")
    which = "the generated ids"
    if decoding.n_best > 1:
        which += f", the {decoding.n_best} best, the best first"
    outputs = {
        "text": which,
        "ids": f"{which}: up to and including an end id, then 0",
        "ended": "whether an end id was generated; False: it was cut off",
        **_SCORED,
    }
    if decoding.length_penalty:
        outputs["score"] += ", divided by the length penalty"
    return {
        "signature": f"{'; '.join(parts)}.",
        "inputs": {"noise": "numbers in [0, 1) that draw the samples"},
        "outputs": outputs,
    }
