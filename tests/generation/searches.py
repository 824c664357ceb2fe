"""Searches as functions, by the one loop."""

from keras_posenc.generation.beams import Beams
from keras_posenc.generation.decoding import Decoding
from keras_posenc.generation.loop import Allowed, Greedy, Sampled, decode


def search(
    kind,
    next,
    prompt,
    *,
    cache=None,
    index=1,
    pad_id=0,
    noise=None,
    **options,
):
    decoding = Decoding(**options)
    return decode(
        next,
        prompt,
        kind(decoding, pad_id, noise),
        Allowed(decoding, pad_id),
        cache=cache,
        index=index,
    )


def greedy_search(*given, **options):
    return search(Greedy, *given, **options)


def sample(*given, **options):
    return search(Sampled, *given, **{"temperature": 1.0, **options})


def beam_search(*given, **options):
    return search(Beams, *given, **options)
