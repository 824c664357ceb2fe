"""A sentence encoder in two halves: the table of tokens, and the rest.

LiteRT-LM's engine looks up tokens one by one, and then runs the rest of the
model on all of them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.prompt import Prompt
from keras_posenc.text.sample_texts import ORDINARY, sample_texts
from keras_posenc.transformer._from_embeddings import (
    encoded_from_embeddings,
    looked_up,
)
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

TOKEN, EMBEDDINGS, MASK, VECTOR = (
    *("token", "embeddings", "input_mask"),
    "embedding",
)


@dataclasses.dataclass(frozen=True)
class EmbedderParts:
    """The parts of a model from texts to vectors, which share its weights.

    `embedder` turns ids, `token`, `(batch, seq)`, into rows of the table;
    `text_encoder` these, `embeddings`, and `input_mask`, 1 for a token and 0
    for padding, into `embedding`, `(batch, width)`.
    """

    model: keras.Model
    embedder: keras.Model
    text_encoder: keras.Model
    tokenizer: Tokenizer
    start_id: int | None
    end_id: int | None
    max_length: int | None
    prompts: dict[str, str]

    def tokenizer_json(self) -> dict[str, Any]:
        """Returns the content of the tokenizer's `tokenizer.json`."""
        return self.tokenizer.tokenizer_json()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns all ids of each text, those around it included."""
        start = [] if self.start_id is None else [self.start_id]
        end = [] if self.end_id is None else [self.end_id]
        split = self.tokenizer.split(keras.ops.convert_to_tensor(texts))
        return [[*start, *ids, *end] for ids in split.to_list()]

    def texts(self) -> tuple[list[str], list[str]]:
        """Returns ordinary texts, and texts of all kinds and scripts."""
        return [*ORDINARY], sample_texts(self.tokenizer)

    def cut_at(self, max_length: int) -> Any:
        """Returns the model, or one of its layers that cuts texts earlier."""
        if max_length == self.max_length:
            return self.model
        limits = {"sequence_length": None, "max_length": max_length}
        tokenizer = type(self.tokenizer).from_config(
            {**self.tokenizer.get_config(), **limits}
        )
        text = keras.Input((), dtype="string", name=self.model.inputs[0].name)
        layers = _layers_of(self.model)[1:]
        return keras.Sequential(
            [text, tokenizer, *layers], name=self.model.name
        )


def embedder_parts(model: Any) -> EmbedderParts:
    """Returns the parts of a sentence encoder."""
    tokenizer, encoder, *after = _layers_of(model)
    before, behind = tokenizer.frame
    if before > 1 or behind > 1:
        raise ValueError(
            f"The tokenizer of '{model.name}' must put at most one token "
            "before each text and one after it, as the metadata of a package "
            f"does. Received: {before} before and {behind} after"
        )
    ids = keras.Input((None,), dtype="int32", name=TOKEN)
    rows = looked_up(encoder, ids)
    embeddings = keras.Input(rows.shape[1:], dtype="float32", name=EMBEDDINGS)
    mask = keras.Input((None,), dtype="float32", name=MASK)
    x = encoded_from_embeddings(encoder, embeddings, mask)
    for layer in after:
        x = layer(x)
    return EmbedderParts(
        model=model,
        # Keras would number the names of these outputs, from model to model.
        embedder=keras.Model(ids, {EMBEDDINGS: rows}, name="embedder"),
        text_encoder=keras.Model(
            [embeddings, mask], {VECTOR: x}, name="text_encoder"
        ),
        tokenizer=tokenizer,
        start_id=tokenizer.start_id if before else None,
        end_id=tokenizer.end_id if behind else None,
        max_length=tokenizer.sequence_length or tokenizer.max_length,
        prompts={name: text for name, text in model.prompts.items() if text},
    )


def _layers_of(model: Any) -> list[Any]:
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
            Tokenizer(num_separators=None),
            TransformerEncoderModel(separator_id=None),
            _,
            *_,
        ] if len(output.shape) == 2 and output.dtype == "float32":
            return layers
    raise ValueError(
        f"Model '{model.name}' must turn single texts into one vector of "
        "float32 each, as load_hugging_face makes it from a folder with "
        "modules.json. Received: layers "
        + ", ".join(type(each).__name__ for each in layers)
    )
