"""Optional attributes of a model that its exports read."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import keras


@dataclasses.dataclass(frozen=True)
class Offers:
    """Optional attributes of a model, and their defaults.

    A model class defines those that it needs: `Generator` has most of them.

    Attributes:
        offered_signatures: Returns the default signatures of an export: a dict
            of models by name, one of them `serving_default`.
        added_signatures: Returns further signatures of a server's export, as a
            dict of models by name, each time the same models.
        rescore: How likely the model finds other sequences than its own. It
            takes dicts of tensors by the names of inputs and outputs, and
            returns a dict of `token_score`, the log-likelihood of each token,
            and `is_token`, bool of the same shape.
        drawn_pairs: Of a model that scores targets, as `token_score`: takes a
            list of prompts and a function that runs another one on arrays, and
            yields pairs of inputs, a dict of arrays, and whether the model has
            sampled these targets itself.
        measures_quantized: Returns models by name that a quantized file has in
            addition, so that what it loses can be measured.
        embedder_parts: Returns the parts of a model from texts to vectors, as
            LiteRT-LM runs them: see `EmbedderParts` of the checkpoints.
        output_scales: Returns the least size of outputs' numbers by name, for
            numbers that may all be near 0 but are sums of larger ones, such as
            log-likelihoods. Differences are relative to it.
        own_probes: Returns batches of inputs, dicts of arrays by name, to
            verify with where invented numbers mean nothing.
        longest_input: The most tokens that the model takes.
        ids_note: What a report says of ids that an application must make, such
            as of a prompt before each.
        made_inputs: Makes test inputs that no embedding or vocabulary limits:
            by the name of an input, a function of a `np.random.Generator` and
            a shape that returns an array.
        engine_parts: Of a model that LiteRT-LM's engine can run: takes lengths
            of chunks and of the cache, and returns an object as
            `keras_posenc.generation.engine_parts.EngineParts` describes it.
        card: A sentence for the model card.
        is_drawn: Whether the outputs are drawn with the model's own seed, so
            that no file can reproduce them.
    """

    offered_signatures: Callable[[], Mapping[str, keras.Model]] | None = None
    added_signatures: Callable[[], Mapping[str, keras.Model]] | None = None
    rescore: Callable[..., dict[str, Any]] | None = None
    drawn_pairs: Callable[..., Iterable[tuple[dict[str, Any], bool]]] | None = (
        None
    )
    measures_quantized: Callable[[], Mapping[str, keras.Model]] | None = None
    embedder_parts: Callable[[], Any] | None = None
    output_scales: Callable[[], Mapping[str, float]] = dict
    own_probes: Callable[[], Iterable[Mapping[str, Any]]] | None = None
    longest_input: int | None = None
    ids_note: str = ""
    made_inputs: Mapping[str, Callable[[Any, tuple[int, ...]], Any]] = (
        dataclasses.field(default_factory=dict)
    )
    engine_parts: Callable[[Any, Any], Any] | None = None
    card: str = ""
    is_drawn: bool = False

    @classmethod
    def of(cls, model: Any) -> Self:
        """Returns the attributes that a model has."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(
            **{
                name: getattr(model, name)
                for name in names
                if hasattr(model, name)
            }
        )
