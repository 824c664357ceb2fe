"""Optional attributes of a model that its exports read."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import keras


@dataclasses.dataclass(frozen=True)
class Offers:
    """Optional attributes of a model, and their defaults.

    A model class defines those that it needs: `Generator` has most of them.
    """

    # Returns the default signatures: models by name, also `serving_default`.
    offered_signatures: Callable[[], Mapping[str, keras.Model]] | None = None
    # Returns further ones of a server's export, each time the same models.
    added_signatures: Callable[[], Mapping[str, keras.Model]] | None = None
    # How likely the model finds other sequences than its own. Takes dicts of
    # tensors by the names of inputs and outputs, and returns a dict of
    # `token_score`, the log-likelihood of each token, and `is_token`, bool.
    rescore: Callable[..., dict[str, Any]] | None = None
    # Of a model that scores targets, as `token_score`: takes a list of prompts
    # and a function that runs another one on arrays, and yields pairs of
    # inputs and whether the model has sampled these targets itself.
    drawn_pairs: Callable[..., Iterable[tuple[dict[str, Any], bool]]] | None = (
        None
    )
    # Returns what a quantized file has in addition, to measure what it loses.
    measures_quantized: Callable[[], Mapping[str, keras.Model]] | None = None
    # Returns `EmbedderParts` of the checkpoints, which LiteRT-LM runs.
    embedder_parts: Callable[[], Any] | None = None
    # Returns the least size of outputs' numbers by name, for sums of numbers
    # that are larger, such as log-likelihoods. Differences are relative to it.
    output_scales: Callable[[], Mapping[str, float]] = dict
    # Returns inputs to verify with where invented numbers mean nothing.
    own_probes: Callable[[], Iterable[Mapping[str, Any]]] | None = None
    longest_input: int | None = None  # tokens that the model takes
    ids_note: str = ""  # what a report says of ids that an application makes
    # Makes test inputs, from a `np.random.Generator` and a shape, by name.
    made_inputs: Mapping[str, Callable[[Any, tuple[int, ...]], Any]] = (
        dataclasses.field(default_factory=dict)
    )
    # Takes lengths of chunks and of the cache, and returns an `EngineParts` of
    # the generation, which LiteRT-LM runs.
    engine_parts: Callable[[Any, Any], Any] | None = None
    card: str = ""  # a sentence for the model card
    is_drawn: bool = False  # by the model's own seed: no file can do that

    @classmethod
    def of(cls, model: Any) -> Self:
        """Returns the attributes that a model has."""
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**{x: getattr(model, x) for x in names if hasattr(model, x)})
