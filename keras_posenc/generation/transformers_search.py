"""Generation from ids to ids by the rules of the library transformers."""

from typing import Any

import keras
import numpy as np

from keras_posenc.checks import check_bool, check_count, check_index
from keras_posenc.generation.beams import TransformersBeams
from keras_posenc.generation.loop import Way
from keras_posenc.generation.options import check_ids
from keras_posenc.generation.search import Search
from keras_posenc.generation.transformers_rules import Rules


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
        no_repeat_ngram_size: See `Rules`.
        forced_end_id: See `Rules`.
        early_stopping: See `TransformersBeams`.
        renormalize_logits: See `TransformersBeams`.
        **options: As for `Search`.
    """

    may_repeat_start = True
    may_penalize_beams = True

    def __init__(
        self,
        model: keras.Model,
        *,
        suppress_ids: Any = (),
        max_positions: int | None = None,
        no_repeat_ngram_size: int = 0,
        forced_end_id: int | None = None,
        early_stopping: bool | str = False,
        renormalize_logits: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.renormalize_logits = check_bool(
            "renormalize_logits", renormalize_logits
        )
        self.suppress_ids = check_ids("suppress_ids", suppress_ids)
        for each in self.suppress_ids:
            check_index("suppress_ids", each, self.vocabulary)
        self.max_positions = max_positions
        self.no_repeat_ngram_size = check_count(
            "no_repeat_ngram_size", no_repeat_ngram_size
        )
        if forced_end_id is not None:
            check_index("forced_end_id", forced_end_id, self.vocabulary)
        self.forced_end_id = forced_end_id
        if early_stopping not in (True, False, "never"):
            raise ValueError(
                "`early_stopping` must be True, False or 'never'. Received: "
                f"early_stopping={early_stopping!r}"
            )
        self.early_stopping = early_stopping
        self.rules = Rules(self.no_repeat_ngram_size, forced_end_id)

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

    def way(self, noise: Any, **options: Any) -> Way:
        if self.beams == 1:
            return super().way(noise, **options)
        return TransformersBeams(
            beams=self.beams,
            n_best=self.n_best,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            renormalize_logits=self.renormalize_logits,
            before=len(self.prefix_ids),
            penalizes=self.repetition_penalty != 1,
            **options,
        )

    def check_lengths(self, values: np.ndarray, *, name: str = "ids") -> None:
        most = self.max_positions
        is_prompt = not self.has_encoder and name != "source"
        if is_prompt and most is not None:
            tokens = self._longest(values)
            if tokens >= most:
                raise ValueError(
                    f"The prompt has {tokens} tokens, and nothing fits after "
                    f"it into the {most} positions of the checkpoint. Shorten "
                    f"it to at most {most - 1}; of a chat, leave out the first "
                    "messages"
                )
            if tokens + self.max_length > most:
                raise ValueError(
                    f"The prompt has {tokens} tokens, and {self.max_length} "
                    f"more (`max_new_tokens`) exceed the {most} positions of "
                    "the checkpoint. Shorten it, or give `max_new_tokens` of "
                    f"at most {most - tokens}"
                )
        super().check_lengths(values, name=name)

    @property
    def longest_prompt(self) -> int | None:
        """How many tokens inputs may have; None without a limit."""
        known = [super().longest_prompt]
        if self.max_positions is not None and not self.has_encoder:
            known.append(self.max_positions - self.max_length)
        return min((each for each in known if each is not None), default=None)

    def options(self) -> dict[str, Any]:
        return {
            **super().options(),
            "suppress_ids": list(self.suppress_ids),
            "max_positions": self.max_positions,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "forced_end_id": self.forced_end_id,
            "early_stopping": self.early_stopping,
            "renormalize_logits": self.renormalize_logits,
        }
