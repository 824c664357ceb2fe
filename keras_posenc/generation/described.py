"""The description of a generator in the model card of its export."""

from typing import Any

from keras_posenc.generation.search import Search

_SCORED = {
    "score": "log-likelihood of all tokens together",
    "token_score": "log-likelihood of each token; 0 for padding",
}
OF_SCORES = {
    "signature": "How likely the model considers a given target.",
    "inputs": {"target": "the target to score; its end is scored too"},
    "outputs": _SCORED,
}


def described(search: Search) -> dict[str, Any]:
    """Returns a sentence, and the meanings of inputs and outputs by name."""
    if search.beams > 1:
        how = (
            f"By beam search: {search.beams} beams, length penalty "
            f"{search.length_penalty:g}"
        )
    elif search.draw is None:
        how = "Greedy: the most likely token each time"
    else:
        given = (
            f"{name} {getattr(search, name):g}"
            for name in ("temperature", "top_k", "top_p", "min_p")
            if getattr(search, name) is not None
        )
        how = f"Sampled: {', '.join(given)}"
    parts = [how, f"at most {search.max_length} tokens"]
    if search.min_length:
        parts.append(f"at least {search.min_length}")
    if search.repetition_penalty != 1:
        parts.append(f"repetition penalty {search.repetition_penalty:g}")
    if search.start_id is not None:
        parts.append(f"start id {search.start_id}")
    if search.end_ids:
        parts.append(f"end ids {', '.join(map(str, search.end_ids))}")
    which = "the generated ids"
    if search.n_best > 1:
        which += f", the {search.n_best} best, the best first"
    outputs = {
        "text": which,
        "ids": f"{which}: up to and including an end id, then 0",
        "ended": "whether an end id was generated; False: it was cut off",
        **_SCORED,
    }
    if search.length_penalty:
        outputs["score"] += ", divided by the length penalty"
    return {
        "signature": f"{'; '.join(parts)}.",
        "inputs": {"noise": "numbers in [0, 1) that draw the samples"},
        "outputs": outputs,
    }
