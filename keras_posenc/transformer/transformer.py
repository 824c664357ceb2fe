"""The whole Transformer: from a source and a target to logits."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_bool,
    check_integers,
    check_mask,
    check_positive_int,
    check_rate,
    check_shape,
)
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import check_positions
from keras_posenc.transformer._decoding_model import (
    DecodingModel,
    check_embeddings,
    check_width,
    make_head,
)
from keras_posenc.transformer._input_position import (
    check_input_position,
    check_table,
    put_in,
)
from keras_posenc.transformer._sublayers import (
    options_of,
    projection_config,
)
from keras_posenc.transformer._token_embedding import TokenEmbedding
from keras_posenc.transformer.transformer_decoder import TransformerDecoder
from keras_posenc.transformer.transformer_encoder import TransformerEncoder


@keras.saving.register_keras_serializable(package="keras_posenc")
class Transformer(DecodingModel):
    """The encoder and the decoder of the paper, with embeddings and logits.

    A Functional model of two inputs, `source` and `target`, ids of shape
    `(batch, source)` and `(batch, target)`, int32, in a dict. Id 0 is padding,
    and its mask reaches every layer and the loss. Target token `t` sees the
    whole source, and the target up to itself: its logits are of what follows.

    Token by token, `build_cache` and `call_with_cache` give the same logits,
    at the cost of one token each, and of the source once.

    Args:
        vocabulary_size: Number of ids, the padding included.
        target_vocabulary_size: That of the target where it has ids of its own;
            by default it shares the source's.
        d_model: Width of the embeddings.
        num_layers: Number of blocks of the encoder, and of the decoder.
        num_decoder_layers: Number of those of the decoder, if another.
        num_heads: Number of heads; divides the width of both.
        intermediate_dim: Width of the feed-forward parts.
        dropout: Rate of the dropouts, in [0, 1).
        input_position: The layer between the source's embedding and its
            dropout that puts positions in, `"sinusoidal"` for a
            `PositionalEncoding()`, or None for no positions.
        target_input_position: The same of the target, or `"same"`: another
            layer of the same config, with weights of its own if it has any.
        attention_position: That of the `TransformerEncoder`.
        target_attention_position: That of the self-attentions of the
            `TransformerDecoder`, or `"same"` as above.
        cross_attention_position: That of its cross-attentions.
        activation: Activation of the feed-forward parts.
        normalize_first: Pre-norm (True) or post-norm (False, the paper).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
        embeddings: `"shared"` (the paper): source, target and logits have one
            table; `"tied"`: target and logits have one; `"separate"`: each has
            its own.
        scale_inputs: Whether the embeddings are multiplied by `sqrt(d_model)`,
            as in the paper.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        bias_regularizer: Regularizer of their biases.
        embeddings_initializer: Initializer of the embeddings of the ids.
        embeddings_regularizer: Regularizer of the embeddings of the ids.
        skip_padding: That of `TransformerEncoder`.
        dtype: Dtype or dtype policy of every layer; Keras's by default.
        name: Name of the model.
        trainable: Whether its weights train.

    Returns:
        The model's output is `(batch, target, vocabulary)`, the vocabulary
        being the target's.

    Raises:
        ValueError: An argument that is none of the above.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.Transformer(
    ...     1000, d_model=64, num_layers=2, num_heads=4, intermediate_dim=128
    ... )
    >>> source, target = np.array([[5, 7, 2, 0]]), np.array([[1, 8, 9]])
    >>> tuple(model({"source": source, "target": target}).shape)
    (1, 3, 1000)
    >>> cache = model.build_cache(source, 20)
    >>> logits, cache = model.call_with_cache(target[:, :1], cache)
    >>> tuple(logits.shape)
    (1, 1, 1000)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Press and Wolf, 2016](https://arxiv.org/abs/1608.05859) (tied
          embeddings)
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        target_vocabulary_size: int | None = None,
        d_model: int = 512,
        num_layers: int = 6,
        num_decoder_layers: int | None = None,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        input_position: keras.Layer | str | None = "sinusoidal",
        target_input_position: keras.Layer | str | None = "same",
        attention_position: (
            AttentionPosition
            | str
            | Sequence[AttentionPosition | str | None]
            | None
        ) = None,
        target_attention_position: (
            AttentionPosition | Sequence[AttentionPosition | None] | str | None
        ) = "same",
        cross_attention_position: (
            AttentionPosition
            | str
            | Sequence[AttentionPosition | str | None]
            | None
        ) = None,
        activation: Any = "relu",
        normalize_first: bool = False,
        norm_epsilon: float = 1e-5,
        norm: str = "layer",
        use_bias: bool = True,
        use_gate: bool = False,
        num_key_value_heads: int | None = None,
        embeddings: str = "shared",
        scale_inputs: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        skip_padding: bool = True,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ) -> None:
        check_positive_int("vocabulary_size", vocabulary_size)
        check_positive_int("d_model", d_model)
        check_positive_int("num_layers", num_layers)
        dropout = check_rate("dropout", dropout)
        check_bool("scale_inputs", scale_inputs)
        check_embeddings(embeddings, ("shared", "tied", "separate"))
        if target_vocabulary_size is None:
            target_vocabulary_size = vocabulary_size
        check_positive_int("target_vocabulary_size", target_vocabulary_size)
        if num_decoder_layers is None:
            num_decoder_layers = num_layers
        check_positive_int("num_decoder_layers", num_decoder_layers)
        if embeddings == "shared" and target_vocabulary_size != vocabulary_size:
            raise ValueError(
                "embeddings='shared' is one table for source and target; of "
                "two vocabularies, give 'tied' or 'separate'. Received: "
                f"vocabulary_size={vocabulary_size}, "
                f"target_vocabulary_size={target_vocabulary_size}"
            )
        position = check_input_position(
            input_position, dtype, scaled=scale_inputs
        )
        target_position = _another(target_input_position, position)
        if target_position is not None:
            target_position = check_input_position(
                target_position,
                dtype,
                scaled=scale_inputs,
                name="target_input_position",
            )
        options = {
            "kernel_initializer": keras.initializers.get(kernel_initializer),
            "bias_initializer": keras.initializers.get(bias_initializer),
            "kernel_regularizer": keras.regularizers.get(kernel_regularizer),
            "bias_regularizer": keras.regularizers.get(bias_regularizer),
        }
        common = {
            "num_heads": num_heads,
            "intermediate_dim": intermediate_dim,
            "dropout": dropout,
            "activation": activation,
            "normalize_first": normalize_first,
            "norm_epsilon": norm_epsilon,
            "norm": norm,
            "use_bias": use_bias,
            "use_gate": use_gate,
            "num_key_value_heads": num_key_value_heads,
            "skip_padding": skip_padding,
            "dtype": dtype,
        }
        encoder = TransformerEncoder(
            num_layers,
            attention_position=attention_position,
            name="encoder",
            **common,
            **options_of(options, "encoder"),
        )
        embeddings_initializer = keras.initializers.get(embeddings_initializer)

        def table(size: int, name: str) -> TokenEmbedding:
            return TokenEmbedding(
                size,
                d_model,
                scale=scale_inputs,
                embeddings_initializer=initializer_of(
                    embeddings_initializer, name
                ),
                embeddings_regularizer=embeddings_regularizer,
                dtype=dtype,
                name=name,
            )

        if embeddings == "shared":
            embedding = target_embedding = table(vocabulary_size, "embedding")
        else:
            embedding = table(vocabulary_size, "source_embedding")
            target_embedding = table(target_vocabulary_size, "target_embedding")
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        x = put_in(position, embedding(source), name="input_position")
        source_dropout = keras.layers.Dropout(
            dropout, dtype=dtype, name="source_dropout"
        )
        memory = encoder(source_dropout(x))
        x = put_in(
            target_position,
            target_embedding(target),
            name="target_input_position",
        )
        width = memory.shape[-1]
        decoder = TransformerDecoder(
            num_decoder_layers,
            attention_position=check_positions(
                "target_attention_position",
                _another(target_attention_position, encoder.attention_position),
                num_decoder_layers,
                dtype,
            ),
            cross_attention_position=cross_attention_position,
            memory_dim=None if width == x.shape[-1] else width,
            name="decoder",
            **common,
            **options_of(options, "decoder"),
        )
        target_dropout = keras.layers.Dropout(
            dropout, dtype=dtype, name="target_dropout"
        )
        x = decoder(target_dropout(x), memory=memory)
        head = None
        if embeddings == "separate":
            head = make_head(decoder, target_vocabulary_size)
            logits = head(x)
        else:
            check_width(x, d_model, embeddings)
            logits = target_embedding(x, reverse=True)
        super().__init__(
            inputs={"source": source, "target": target},
            outputs=logits,
            name=name,
            trainable=trainable,
        )
        # Else Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.input_position = position
        self.target_input_position = target_position
        self.encoder = encoder
        self.decoder = decoder
        self.embedding = embedding
        self.target_embedding = target_embedding
        self.head = head
        self.vocabulary_size = vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size
        self.d_model = d_model
        self.embeddings = embeddings
        self.scale_inputs = scale_inputs
        self.keep_options(encoder)
        # The stacks have seeds of their own, made of these.
        for option, value in options.items():
            setattr(self, option, value)
        self.num_decoder_layers = decoder.num_layers
        self.target_attention_position = decoder.attention_position
        self.cross_attention_position = decoder.cross_attention_position
        self.embeddings_initializer = embeddings_initializer
        self.embeddings_regularizer = embedding.embeddings_regularizer
        self.skip_padding = encoder.skip_padding

    def encode(self, source: Any, *, source_mask: Any = None) -> Any:
        """What the decoder reads of a source: `(batch, source, width)`.

        Args:
            source: Integers `(batch, source)`.
            source_mask: Bool `(batch, source)`, which of them are real; by
                default those that are not 0.

        Raises:
            ValueError: Ids or a mask of another shape or dtype.
        """
        return self._encode(*self._check_source(source, source_mask))

    def build_cache(
        self, source: Any, max_length: Any, source_mask: Any = None
    ) -> dict[str, Any]:
        """A cache that has read the source, for `call_with_cache`.

        The source is encoded, and its keys and values made, here and once.

        Args:
            source: Integers `(batch, source)`.
            max_length: Number of target tokens that each row may get to, those
                of its prompt and its padding included: an integer, or a scalar
                tensor.
            source_mask: Bool `(batch, source)`, which are real; by default
                those that are not 0.

        Returns:
            A dict of tensors, nested. Its shapes never change, so that a loop
            can carry it.

        Raises:
            ValueError: A position that tokens cannot be given one after
                another, by its name; a `max_length` that is no positive
                integer, or beyond a table of positions; ids or a mask of
                another shape or dtype.
        """
        source, mask = self._check_source(source, source_mask)
        cache = self._empty_cache(ops.shape(source)[0], max_length)
        memory = self._encode(source, mask)
        return {
            **cache,
            "memory": self.decoder.remember(memory, mask),
            "memory_tokens": mask,
        }

    def check_source_length(self, length: Any) -> None:
        """Raises `ValueError` unless so many source tokens have positions."""
        check_table(self.input_position, length, f"a source of length {length}")

    def attention_weights(
        self, source: Any, target: Any, *, source_mask: Any = None
    ) -> dict[str, list[Any]]:
        """How much every token attends to which, in one pass without dropout.

        Args:
            source: Integers `(batch, source)`.
            target: Integers `(batch, target)`, as in a call: the start symbol
                first. 0 is padding.
            source_mask: Bool `(batch, source)`, which of them are real; by
                default those that are not 0.

        Returns:
            A dict of lists, with an entry for each block, of weights that sum
            to 1 along their last axis: `"source"`, of the encoder, `(batch,
            num_heads, source, source)`; `"target"`, of the decoder's
            self-attention, `(batch, num_heads, target, target)`; `"cross"`,
            `(batch, num_heads, target, source)`.

        Raises:
            ValueError: Ids or a mask of another shape or dtype.
        """
        source, mask = self._check_source(source, source_mask)
        target = ops.convert_to_tensor(target)
        check_integers("target", target)
        sizes = {"rows": source.shape[0], "target": None}
        check_shape("target", target, ("rows", "target"), sizes=sizes)
        memory, of_source = self.encoder(
            self._embed_source(source, mask),
            mask=mask,
            return_attention_scores=True,
        )
        target_mask = ops.not_equal(target, 0)
        x = _placed(
            self.target_input_position,
            self.target_embedding(target),
            target_mask,
        )
        _, of_target, across = self.decoder(
            x,
            memory=memory,
            memory_mask=mask,
            mask=target_mask,
            return_attention_scores=True,
        )
        return {"source": of_source, "target": of_target, "cross": across}

    def _encode(self, source: Any, mask: Any) -> Any:
        return self.encoder(self._embed_source(source, mask), mask=mask)

    def _embed_source(self, source: Any, mask: Any) -> Any:
        return _placed(self.input_position, self.embedding(source), mask)

    def _check_source(self, source: Any, mask: Any) -> tuple[Any, Any]:
        source = ops.convert_to_tensor(source)
        check_integers("source", source)
        unknown = {"rows": None, "seq": None}
        check_shape("source", source, ("rows", "seq"), sizes=unknown)
        if mask is None:
            return source, ops.not_equal(source, 0)
        rows, seq = source.shape
        sizes = {"rows": rows, "seq": seq}
        check_shape("source_mask", mask, ("rows", "seq"), sizes=sizes)
        check_mask("source_mask", mask)
        return source, ops.cast(mask, "bool")

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        positions = (
            "target_input_position",
            "target_attention_position",
            "cross_attention_position",
        )
        return self.config_with(
            self.encoder,
            target_vocabulary_size=self.target_vocabulary_size,
            num_decoder_layers=self.num_decoder_layers,
            embeddings=self.embeddings,
            scale_inputs=self.scale_inputs,
            skip_padding=self.skip_padding,
            **{name: serialize(getattr(self, name)) for name in positions},
            **projection_config(self),
        )


def _placed(position: keras.Layer | None, x: Any, mask: Any) -> Any:
    """Embeddings with positions, of tokens that a mask tells."""
    if position is None:
        return x
    takes_mask = "mask" in inspect.signature(position.call).parameters
    return position(x, **({"mask": mask} if takes_mask else {}))


def _another(value: Any, like: Any) -> Any:
    """The value given, or, for `"same"`, copies of other layers."""
    if not isinstance(value, str) or value != "same":
        return value
    if isinstance(like, list):
        return [_another("same", each) for each in like]
    if like is None:
        return None
    config = like.get_config()
    config["name"] = f"target_{like.name}"
    return type(like).from_config(config)
