"""Searches as functions, by the one loop."""

from keras_posenc.checks import check_positive_int
from keras_posenc.generation.beams import Beams
from keras_posenc.generation.generated import Forbidden
from keras_posenc.generation.loop import Allowed, Greedy, Sampled, decode
from keras_posenc.generation.options import check_length_penalty, check_n_best
from keras_posenc.generation.sampling import Sampling


def _run(
    next,
    prompt,
    way,
    cache=None,
    index=1,
    end_ids=(),
    pad_id=0,
    min_length=0,
    forbidden_ids=(),
    repetition_penalty=1.0,
):
    way.end_ids, way.pad_id = end_ids, pad_id
    forbidden = Forbidden(end_ids, pad_id, min_length, forbidden_ids)
    allowed = Allowed(forbidden, repetition_penalty)
    return decode(next, prompt, way, allowed, cache=cache, index=index)


def greedy_search(next, prompt, **options):
    return _run(next, prompt, Greedy(), **options)


def sample(
    next,
    prompt,
    *,
    noise,
    temperature=1.0,
    top_k=None,
    top_p=1.0,
    min_p=0.0,
    **options,
):
    draw = Sampling(temperature, top_k, top_p, min_p)
    return _run(next, prompt, Sampled(draw, noise), **options)


def beam_search(
    next, prompt, *, beams, n_best=1, length_penalty=0.0, **options
):
    check_positive_int("beams", beams)
    check_n_best(n_best, beams)
    check_length_penalty(length_penalty)
    way = Beams(beams, n_best, length_penalty)
    return _run(next, prompt, way, **options)
