"""The decoder-only Transformer, from token ids to logits of the next token."""

from typing import Any, Unpack

import keras

from keras_posenc.checks import check_choice, check_count
from keras_posenc.ops.named import checked_arguments
from keras_posenc.transformer._embeddings import LogitsCap, check_pad_id
from keras_posenc.transformer._input_position import (
    check_input_position,
    put_in,
)
from keras_posenc.transformer._models import (
    DecodingModel,
    check_size,
    dropped,
    logits_of,
    make_table,
)
from keras_posenc.transformer._options import (
    ModelOptions,
    StackOptions,
    select,
    with_options,
)
from keras_posenc.transformer.blocks import TransformerDecoder


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(ModelOptions)
class TransformerDecoderModel(DecodingModel):
    """A decoder-only model: embedding, positions, decoder, logits.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.TransformerDecoderModel(
    ...     1000, d_model=64, num_layers=2, num_heads=4, intermediate_dim=128
    ... )
    >>> tuple(model(np.array([[5, 7, 2, 0, 0]])).shape)
    (1, 5, 1000)
    >>> cache = model.build_cache(1, 20)
    >>> logits, cache = model.call_with_cache(np.array([[5, 7, 2]]), cache)
    >>> logits, cache = model.call_with_cache(np.array([[9]]), cache)
    >>> tuple(logits.shape)
    (1, 1, 1000)

    A Functional model of one input, `ids` of shape `(batch, seq)`, int32. The
    mask of padding, `pad_id`, reaches every layer and the loss. No token
    attends to later ones.

    `build_cache` and `call_with_cache` compute the same logits token by token,
    at the cost of one token each.

    Args:
        vocabulary_size: Number of ids, the padding included.
        input_position: The layer between embedding and dropout that adds
            positions, `"sinusoidal"` for a `PositionalEncoding()`, or None for
            no positions.
        pad_id: The id of padding; -1 if all ids from 0 on are tokens, and
            shorter texts are padded with -1.
        embeddings: `"tied"`: the logits are products with the embeddings; or
            `"separate"`: with a kernel of its own.
        scale_inputs: Whether the embeddings are multiplied by `sqrt(d_model)`,
            as in the paper.
        logits_cap: What no logit exceeds in magnitude: they become
            `logits_cap * tanh(logits / logits_cap)`. None for no cap.
        layer_input_dim: As `TransformerDecoder` takes it; the ids have a
            further table of embeddings for `layer_inputs`.
        use_output_scale: As `TransformerDecoder` takes it.
        skip_padding: As `TransformerEncoder` takes it.
        **options: As for `ModelOptions`.

    Returns:
        The model's output is `(batch, seq, vocabulary_size)`.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Liu et al., 2018](https://arxiv.org/abs/1801.10198) (decoder-only)
        - [Press and Wolf, 2016](https://arxiv.org/abs/1608.05859) (tied)
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        input_position: keras.Layer | str | None = "sinusoidal",
        pad_id: int = 0,
        embeddings: str = "tied",
        scale_inputs: bool = True,
        logits_cap: float | None = None,
        layer_input_dim: int | None = None,
        use_output_scale: bool = False,
        skip_padding: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        own = checked_arguments({**locals(), "d_model": options["d_model"]})
        check_choice("embeddings", embeddings, ("tied", "separate"))
        check_pad_id("pad_id", pad_id, vocabulary_size)
        dtype = options["dtype"]
        position = check_input_position(
            input_position, dtype, scaled=scale_inputs
        )
        decoder = TransformerDecoder(
            options["num_layers"],
            cross_attention=None,
            layer_input_dim=layer_input_dim,
            use_output_scale=use_output_scale,
            skip_padding=skip_padding,
            **select(StackOptions, options),
            dtype=dtype,
            name="decoder",
        )
        ids = keras.Input((None,), dtype="int32", name="ids")
        embedding = make_table(
            vocabulary_size,
            own["d_model"],
            options,
            scale=scale_inputs,
            pad_id=pad_id,
        )
        x = put_in(
            position, embedding(ids), name="input_position", as_cached=True
        )
        layer_embedding, inputs = None, {}
        if layer_input_dim is not None:
            layer_embedding = make_table(
                vocabulary_size,
                options["num_layers"] * layer_input_dim,
                options,
                name="layer_embedding",
                pad_id=pad_id,
            )
            inputs["layer_inputs"] = layer_embedding(ids)
        x = decoder(dropped(decoder, x, "dropout"), **inputs)
        logits, head = logits_of(
            decoder, x, embedding, embeddings, vocabulary_size
        )
        logits_layer = None
        if logits_cap is not None:
            logits_layer = LogitsCap(logits_cap, dtype=dtype, name="logits_cap")
            logits = logits_layer(logits)
        self.connect(
            ids,
            logits,
            decoder,
            options,
            **own,
            input_position=position,
            target_input_position=position,
            target_embedding_norm=None,
            logits_layer=logits_layer,
            layer_embedding=layer_embedding,
            decoder=decoder,
            embedding=embedding,
            target_embedding=embedding,
            head=head,
            pad_id=pad_id,
            target_pad_id=pad_id,
            embeddings=embeddings,
        )

    def build_cache(
        self, batch_size: Any, max_length: Any, *, max_tokens: Any = None
    ) -> dict[str, Any]:
        """Makes an empty cache, for `call_with_cache`.

        Args:
            batch_size: Number of rows: an integer, or a scalar tensor.
            max_length: Maximum number of tokens of a row, its prompt and
                padding included: an integer, or a scalar tensor.
            max_tokens: Maximum number without padding, which takes no
                positions; by default `max_length`.

        Returns:
            A nested dict of tensors, whose shapes a loop does not change.

        Raises:
            ValueError: A position that needs the whole sequence; a
                `batch_size` below 0 or a `max_length` below 1; more tokens
                than a table has positions.
        """
        return self._empty_cache(
            check_size("batch_size", batch_size, check_count),
            max_length,
            max_tokens,
        )
