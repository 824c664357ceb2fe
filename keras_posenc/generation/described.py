"""What the page beside an exported generator says of it."""

from typing import Any

from keras_posenc.generation.search import Search

_SCORED = {
    "score": "log-likelihood of the tokens together",
    "token_score": "log-likelihood of each token; 0 for padding",
}
OF_SCORES = {
    "signature": "How likely the model holds a given target.",
    "inputs": {"target": "what is scored; its end is scored too"},
    "outputs": _SCORED,
}


def described(search: Search) -> dict[str, Any]:
    """A sentence, and meanings of inputs and outputs by name."""
    if search.beams > 1:
        how = (
            f"By beam search: {search.beams} beams, length penalty "
            f"{search.length_penalty:g}"
        )
    elif search.draw is None:
        how = "Greedy: the likeliest token each time"
    else:
        given = (
            f"{name} {getattr(search, name):g}"
            for name in ("temperature", "top_k", "top_p", "min_p")
            if getattr(search, name) is not None
        )
        how = f"Drawn: {', '.join(given)}"
    parts = [how, f"at most {search.max_length} tokens"]
    if search.min_length:
        parts.append(f"at least {search.min_length}")
    if search.repetition_penalty != 1:
        parts.append(f"repetition penalty {search.repetition_penalty:g}")
    if search.start_id is not None:
        parts.append(f"start id {search.start_id}")
    if search.end_ids:
        parts.append(f"end ids {', '.join(map(str, search.end_ids))}")
    which = "what is generated"
    if search.n_best > 1:
        which += f", the {search.n_best} best, the best first"
    outputs = {
        "text": which,
        "ids": f"{which}: up to and with an end id, then 0",
        "ended": "whether an end id came; else it was cut off",
        **_SCORED,
    }
    if search.length_penalty:
        outputs["score"] += ", over the length penalty"
    return {
        "signature": f"{'; '.join(parts)}.",
        "inputs": {"noise": "numbers in [0, 1) that draw the samples"},
        "outputs": outputs,
    }
