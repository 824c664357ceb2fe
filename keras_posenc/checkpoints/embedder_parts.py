"""A sentence encoder in two halves: the table of tokens, and the rest.

Runtimes of phones look up tokens one by one, and then run the rest of the
model on all of them.
"""

import dataclasses
from typing import Any

import keras

from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.prompt import Prompt
from keras_posenc.transformer._from_embeddings import encoded_from_embeddings
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

TOKEN, EMBEDDINGS, MASK = "token", "embeddings", "input_mask"


@dataclasses.dataclass(frozen=True)
class EmbedderParts:
    """The parts of a model from texts to vectors, which share its weights.

    Attributes:
        tokenizer: The tokenizer, a layer.
        embedder: From ids, `token`, int32 `(batch, seq)`, to their rows of the
            table, `(batch, seq, dim)`.
        text_encoder: From these, `embeddings`, and `input_mask`, `(batch,
            seq)`, 1 for a token and 0 for padding, to the output `embedding`,
            `(batch, width)`.
        max_length: The most tokens of a text; None for any number.
        prompts: Texts that an application puts before others, by name.
    """

    tokenizer: Any
    embedder: keras.Model
    text_encoder: keras.Model
    max_length: int | None
    prompts: dict[str, str]


def embedder_parts(model: Any) -> EmbedderParts:
    """Returns the parts of a sentence encoder.

    Args:
        model: A `PretrainedModel`.

    Raises:
        ValueError: It is no model from single texts to vectors, or it puts a
            prompt before each text.
    """
    layers = list(model.layers)
    if layers and isinstance(layers[0], Prompt) and layers[0].prompt:
        raise ValueError(
            f"Model '{model.name}' puts the prompt {layers[0].prompt!r} before "
            "each text, and a package has no place for one. Export "
            "model.with_prompt(''), and have the application put the prompt "
            "before each text"
        )
    layers = [each for each in layers if not isinstance(each, Prompt)]
    (output,) = model.outputs
    match layers:
        case [
            Tokenizer(num_separators=None) as tokenizer,
            TransformerEncoderModel(separator_id=None) as encoder,
            _,
            *_,
        ] if (
            len(model.output_shape) == 2 and model.outputs[0].dtype == "float32"
        ):
            after = layers[2:]
        case _:
            raise ValueError(
                f"Model '{model.name}' must turn single texts into one vector "
                "of float32 each, as load_hugging_face makes it from a folder "
                "with modules.json. Received: layers "
                + ", ".join(type(each).__name__ for each in layers)
            )
    ids = keras.Input((None,), dtype="int32", name=TOKEN)
    width = encoder.embedding.output_dim
    embeddings = keras.Input((None, width), dtype="float32", name=EMBEDDINGS)
    mask = keras.Input((None,), dtype="float32", name=MASK)
    x = encoded_from_embeddings(encoder, embeddings, mask)
    for layer in after:
        x = layer(x)
    return EmbedderParts(
        tokenizer,
        keras.Model(ids, encoder.embedding(ids), name="embedder"),
        keras.Model([embeddings, mask], x, name="text_encoder"),
        tokenizer.sequence_length or tokenizer.max_length,
        {name: text for name, text in model.prompts.items() if text},
    )
