"""What the models have in common that begin with ids."""

from typing import Any

import keras

from keras_posenc.transformer._stack_model import StackModel


class IdModel(StackModel):
    """Base of the Functional models from ids.

    A subclass sets `vocabulary_size` and `input_position` besides.
    """

    vocabulary_size: int
    input_position: keras.Layer | None

    def config_with(self, stack: Any, **others: Any) -> dict[str, Any]:
        return super().config_with(
            stack,
            vocabulary_size=self.vocabulary_size,
            input_position=keras.saving.serialize_keras_object(
                self.input_position
            ),
            **others,
        )
