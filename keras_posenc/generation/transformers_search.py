"""Generation from ids to ids by the rules of the library transformers."""

from typing import Any

import keras
import numpy as np

from keras_posenc.checks import check_index
from keras_posenc.generation.options import check_ids
from keras_posenc.generation.search import Search


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformersSearch(Search):
    """Generates the ids that transformers' `generate` does.

    Unlike in `Search`, the start symbol may be generated, and may be an end
    symbol too; an end symbol after a prompt is a part of it; and a prompt may
    have no more tokens than the checkpoint has positions.

    Args:
        model: As for `Search`.
        suppress_ids: Ids that are never generated.
        max_positions: How many tokens a prompt and what follows it may have
            together; None for no limit but the model's own.
        **options: As for `Search`.
    """

    may_repeat_start = True

    def __init__(
        self,
        model: keras.Model,
        *,
        suppress_ids: Any = (),
        max_positions: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.suppress_ids = check_ids("suppress_ids", suppress_ids)
        for each in self.suppress_ids:
            check_index("suppress_ids", each, self.vocabulary)
        self.max_positions = max_positions

    @property
    def forbidden_ids(self) -> tuple[int, ...]:
        """Ids that are never generated."""
        size = self.vocabulary
        most = size if self.generated_ids is None else self.generated_ids
        return (*self.suppress_ids, *range(most, size))

    @property
    def removed_ids(self) -> tuple[int, ...]:
        """Ids that are removed at the end of a prompt."""
        return ()

    def check_lengths(self, values: np.ndarray, *, name: str = "ids") -> None:
        super().check_lengths(values, name=name)
        if self.has_encoder or name == "source" or self.max_positions is None:
            return
        tokens = self._longest(values)
        if tokens + self.max_length > self.max_positions:
            raise ValueError(
                f"The prompt has {tokens} tokens, and with "
                f"max_new_tokens={self.max_length} after it exceeds the "
                f"{self.max_positions} positions of the checkpoint. Shorten "
                "it, or give a smaller `max_new_tokens`"
            )

    def options(self) -> dict[str, Any]:
        return {
            **super().options(),
            "suppress_ids": list(self.suppress_ids),
            "max_positions": self.max_positions,
        }
