"""What a model may tell its exports, beyond what every Keras model has."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras


@dataclasses.dataclass(frozen=True)
class Offers:
    """Attributes of these names that a model has, or what holds without them.

    A model class declares what it needs: `Generator` has all of them except
    `constant_outputs`.

    Attributes:
        offered_signatures: Returns the signatures of an export to which none
            are given: a dict of models by name, one of them `serving_default`.
            For a model of several uses, such as one from texts and from ids.
        retrace: Computes the outputs again where they are choices, one hanging
            on another, such as the tokens of a sequence. From dicts of tensors
            by the names of inputs and outputs, and a tolerance, to a dict of
            outputs: each choice that leads by no more than the tolerance falls
            as in the outputs given.
        output_scales: The size, at least, of an output's numbers, by its name:
            where they may all be next to nothing and are made of larger ones,
            as log-likelihoods are. Differences are relative to it.
        constant_outputs: Names of outputs that do not depend on the inputs, so
            that a report does not warn of them.
        card: What the model card says: `"signature"`, a sentence; `"inputs"`
            and `"outputs"`, dicts of the meaning of each by name.
        is_drawn: Whether the outputs are drawn by a seed of the model's own,
            so that no file can reproduce them.
    """

    offered_signatures: Callable[[], Mapping[str, keras.Model]] | None = None
    retrace: Callable[..., dict[str, Any]] | None = None
    output_scales: Mapping[str, float] = dataclasses.field(default_factory=dict)
    constant_outputs: Sequence[str] = ()
    card: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_drawn: bool = False

    @classmethod
    def of(cls, model: Any) -> Self:
        """Returns what a model offers."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(
            **{
                name: getattr(model, name)
                for name in names
                if hasattr(model, name)
            }
        )
