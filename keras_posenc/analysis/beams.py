"""The beams of a search as a tree."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.analysis.tokens import ids_of, token_labels

# What the search's trace has in the places of beams that do not exist.
_NO_SCORE = np.finfo("float32").min


@dataclasses.dataclass(frozen=True)
class Beam:
    """One partial sequence that a search kept after a step.

    Attributes:
        id: Its last token; the padding where it had ended before.
        token: That token as a label; empty where it had ended before.
        parent: The index, among the beams of the step before, of the one that
            it continues; 0 after the first step.
        score: Its log-likelihood so far, divided by the length penalty.
        ended: Whether it has ended.
    """

    id: int
    token: str
    parent: int
    score: float
    ended: bool


@dataclasses.dataclass(frozen=True)
class BeamTree:
    """The beams that a search kept at each step.

    Attributes:
        steps: The beams after each step, the best first.
        n_best: How many beams of the last step are returned.
        length_penalty: The power of the scores' divisor; see `beam_search`.
    """

    steps: list[list[Beam]]
    n_best: int
    length_penalty: float = 0.0

    @property
    def leaves(self) -> list[Beam]:
        """The beams after the last step, the best first."""
        return self.steps[-1]

    def path(self, place: int) -> list[int]:
        """Returns the index of a leaf's beam after each step.

        Args:
            place: Index of the leaf, which is also the last one returned.
        """
        places = [place]
        for beams in reversed(self.steps[1:]):
            places.insert(0, beams[places[0]].parent)
        return places

    def beams_to(self, place: int) -> list[Beam]:
        """Returns the beams of `path`, up to the one that ended."""
        pairs = zip(self.steps, self.path(place), strict=True)
        return [beam for beams, at in pairs if (beam := beams[at]).id]


def beam_tree(
    generator: keras.Model, source: Any, *, beams: int | None = None
) -> BeamTree:
    """Returns the beams that a generator keeps for one text.

    Args:
        generator: A `Generator`.
        source: A text, or ids `(seq,)` where there is no source tokenizer.
        beams: How many beams; by default as many as the generator has.

    Returns:
        A `BeamTree`, for `plot_beams`. Its first leaves are the output.

    Raises:
        ValueError: The generator keeps only one beam and `beams` gives no
            other number, it has another model, or the text is empty.

    Example:
        >>> import keras_posenc as kp
        >>> from keras_posenc.analysis import beam_tree
        >>> model = kp.Transformer(
        ...     9, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
        ... )
        >>> generator = kp.Generator(
        ...     model, max_length=3, beams=2, start_id=2, end_ids=3
        ... )
        >>> tree = beam_tree(generator, [5, 6, 7])
        >>> len(tree.leaves)
        2
    """
    search: Any = getattr(generator, "search", None)
    if not hasattr(search, "trace"):
        raise ValueError(
            "`generator` must be a Generator. Received: "
            f"generator={generator!r}"
        )
    if beams is not None and beams != search.beams:
        n_best = min(search.n_best, beams)
        options = {**search.options(), "beams": beams, "n_best": n_best}
        search = type(search)(generator.model, **options)
    ids = ids_of(
        generator.source_tokenizer,
        source,
        "source",
        pad_id=generator.model.pad_id,
    )
    _, trace = search.trace(ops.convert_to_tensor([ids], "int32"))
    steps, tokens, parents, scores, ended = map(ops.convert_to_numpy, trace)
    prefix = len(search.prefix_ids)
    found = []
    for step in range(prefix, prefix + int(steps)):
        kept = [
            place
            for place in range(search.beams)
            if scores[0, place, step] > _NO_SCORE  # False for NaN
        ]
        ids = [int(tokens[0, place, step]) for place in kept]
        labels = token_labels(
            generator.target_tokenizer,
            [each for each in ids if each != search.pad_id],
        )
        rest = iter(labels)
        found.append(
            [
                Beam(
                    each,
                    "" if each == search.pad_id else next(rest),
                    int(parents[0, place, step]),
                    float(scores[0, place, step]),
                    bool(ended[0, place, step]),
                )
                for place, each in zip(kept, ids, strict=True)
            ]
        )
    return BeamTree(found, search.n_best, float(search.length_penalty))
