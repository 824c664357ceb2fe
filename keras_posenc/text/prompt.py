"""A prompt before each text, such as "query: "."""

from typing import Any

import keras

from keras_posenc.ops.named import config_of
from keras_posenc.text._tokenizer import OfStrings


@keras.saving.register_keras_serializable(package="keras_posenc")
class Prompt(OfStrings):
    """Puts a prompt before each text.

    >>> import keras_posenc as kp
    >>> kp.Prompt("query: ")(["how tall is it"]).numpy()[0].decode()
    'query: how tall is it'

    For models that were trained with one, such as E5. It comes before the
    tokenizer. Uses TensorFlow's operators.

    Args:
        prompt: The text to put first, with the space that may follow it.
        **kwargs: As for `keras.Layer`: `name`, `trainable`.

    Call arguments:
        inputs: Strings of any shape.

    Returns:
        Strings of the same shape.

    Raises:
        ValueError: `prompt` is not a string.
    """

    def __init__(self, prompt: str, **kwargs: Any) -> None:
        if not isinstance(prompt, str):
            raise ValueError(
                "`prompt` must be a string, such as 'query: '. "
                f"Received: prompt={prompt!r}"
            )
        super().__init__(**kwargs)
        self.prompt = prompt

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if keras.backend.is_keras_tensor(inputs):
            return super().__call__(inputs, *args, **kwargs)
        import tensorflow as tf

        return super().__call__(tf.convert_to_tensor(inputs, tf.string))

    def call(self, inputs: Any) -> Any:
        import tensorflow as tf

        return tf.strings.join([self.prompt, inputs])

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor(inputs.shape, dtype="string")

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
