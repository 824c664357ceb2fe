"""The base of character and byte tokenizers: four special ids, then theirs."""

from typing import Any

from keras_posenc.checks import check_bool
from keras_posenc.text._tokenizer import Tokenizer


class FramedTokenizer(Tokenizer):
    """Base of tokenizers whose own ids start at 4, with optional start and end.

    0 is padding, 1 unknown, 2 the start of a text and 3 its end.
    """

    unknown_id, start_id, end_id = 1, 2, 3
    first_id = 4

    def __init__(
        self, *, add_start: bool = True, add_end: bool = True, **kwargs: Any
    ) -> None:
        # First: the base checks lengths against `frame`, which needs them.
        self.add_start = check_bool("add_start", add_start)
        self.add_end = check_bool("add_end", add_end)
        super().__init__(**kwargs)

    @property
    def frame(self) -> tuple[int, int]:
        return int(self.add_start), int(self.add_end)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "add_start": self.add_start,
            "add_end": self.add_end,
        }
