"""The encoder-decoder Transformer, from source and target to logits."""

import inspect
from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_positive_int
from keras_posenc.ops.arguments import check_integers, check_mask, check_shape
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.positions import positions_from_mask
from keras_posenc.transformer._attention_layer import check_positions
from keras_posenc.transformer._decoding_model import (
    DecodingModel,
    check_embeddings,
    check_width,
    make_head,
    normed,
)
from keras_posenc.transformer._id_embedding import (
    PaddedIds,
    check_pad_id,
    embedded,
    is_token,
)
from keras_posenc.transformer._input_position import (
    check_input_position,
    check_table,
    counts_all,
    put_in,
)
from keras_posenc.transformer._logits_bias import LogitsBias
from keras_posenc.transformer._options import (
    AttentionPositions,
    ModelOptions,
    ProjectionOptions,
    StackOptions,
    check_options,
    for_sublayer,
    select,
    with_options,
)
from keras_posenc.transformer._sublayers import make_norm
from keras_posenc.transformer._token_embedding import TokenEmbedding
from keras_posenc.transformer.transformer_decoder import TransformerDecoder
from keras_posenc.transformer.transformer_encoder import TransformerEncoder


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(ModelOptions)
class Transformer(DecodingModel):
    """The encoder and the decoder of the paper, with embeddings and logits.

    A Functional model of two inputs, `source` and `target`, ids of shape
    `(batch, source)` and `(batch, target)`, int32, in a dict. The masks of
    padding reach every layer and the loss. Target token `t` attends to
    the whole source, and to the target up to itself; its logits are those of
    the next token.

    `build_cache` and `call_with_cache` compute the same logits token by token,
    at the cost of one token each, and of the source once.

    Args:
        vocabulary_size: Number of ids, the padding included.
        target_vocabulary_size: Number of ids of the target, if it has its own
            ids; by default it has those of the source.
        num_decoder_layers: Number of blocks of the decoder; by default
            `num_layers`, which is that of the encoder.
        pad_id: The id of padding; -1 if all ids from 0 on are tokens, and
            shorter texts are padded with -1.
        target_pad_id: That of the target; by default `pad_id`.
        input_position: The layer between the source's embedding and its
            dropout that adds positions, `"sinusoidal"` for a
            `PositionalEncoding()`, or None for no positions.
        target_input_position: The layer for the target, or `"same"`: another
            layer of the same config, with weights of its own if it has any.
        target_attention_position: Position in the self-attentions of the
            decoder, as `attention_position`, which is that of the encoder; or
            `"same"`, with weights of its own.
        cross_attention_position: Position in the cross-attentions, as
            `TransformerDecoder` takes it.
        embeddings: `"shared"` (the paper): source, target and logits have one
            table; `"shared_inputs"`: source and target have one; `"tied"`:
            target and logits have one; `"separate"`: each has its own.
        scale_inputs: Whether the embeddings are multiplied by `sqrt(d_model)`,
            as in the paper.
        embedding_norm: Whether the embeddings of source and target, with their
            positions, are normalized, as BART's are.
        use_logits_bias: Whether a learned number is added to the logits of
            each id, as in Marian's models.
        skip_padding: As `TransformerEncoder` takes it.
        **options: As for `ModelOptions`.

    Returns:
        The model's output is `(batch, target, vocabulary)`, the vocabulary
        being the target's.

    Raises:
        ValueError: An invalid argument.

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
        - [Lewis et al., 2019](https://arxiv.org/abs/1910.13461) (norms of
          embeddings)
        - [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344)
          (Marian)
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        target_vocabulary_size: int | None = None,
        num_decoder_layers: int | None = None,
        pad_id: int = 0,
        target_pad_id: int | None = None,
        input_position: keras.Layer | str | None = "sinusoidal",
        target_input_position: keras.Layer | str | None = "same",
        target_attention_position: AttentionPositions = "same",
        cross_attention_position: AttentionPositions = None,
        embeddings: str = "shared",
        scale_inputs: bool = True,
        embedding_norm: bool = False,
        use_logits_bias: bool = False,
        skip_padding: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        check_positive_int("vocabulary_size", vocabulary_size)
        d_model = check_positive_int("d_model", options["d_model"])
        num_layers = check_positive_int("num_layers", options["num_layers"])
        dtype = options["dtype"]
        check_bool("scale_inputs", scale_inputs)
        check_bool("embedding_norm", embedding_norm)
        check_bool("use_logits_bias", use_logits_bias)
        check_embeddings(
            embeddings, ("shared", "shared_inputs", "tied", "separate")
        )
        is_shared = embeddings in ("shared", "shared_inputs")
        if target_vocabulary_size is None:
            target_vocabulary_size = vocabulary_size
        check_positive_int("target_vocabulary_size", target_vocabulary_size)
        if num_decoder_layers is None:
            num_decoder_layers = num_layers
        check_positive_int("num_decoder_layers", num_decoder_layers)
        if is_shared and target_vocabulary_size != vocabulary_size:
            raise ValueError(
                f"embeddings={embeddings!r} is one table for source and "
                "target: for two vocabularies give 'tied' or 'separate'. "
                "Received: "
                f"vocabulary_size={vocabulary_size}, "
                f"target_vocabulary_size={target_vocabulary_size}"
            )
        check_pad_id("pad_id", pad_id, vocabulary_size)
        if target_pad_id is None:
            target_pad_id = pad_id
        check_pad_id("target_pad_id", target_pad_id, target_vocabulary_size)
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
        projections = check_options(ProjectionOptions, options)
        of_stacks = {
            **select(StackOptions, options),
            **projections,
            "skip_padding": skip_padding,
            "dtype": dtype,
        }
        encoder = TransformerEncoder(
            num_layers, **for_sublayer(of_stacks, "encoder"), name="encoder"
        )
        embeddings_initializer = keras.initializers.get(
            options["embeddings_initializer"]
        )

        def table(size: int, name: str, pad_id: int | None) -> TokenEmbedding:
            return TokenEmbedding(
                size,
                d_model,
                scale=scale_inputs,
                pad_id=pad_id,
                embeddings_initializer=initializer_of(
                    embeddings_initializer, name
                ),
                embeddings_regularizer=options["embeddings_regularizer"],
                dtype=dtype,
                name=name,
            )

        if is_shared:
            embedding = target_embedding = table(
                vocabulary_size,
                "embedding",
                pad_id if pad_id == target_pad_id else None,
            )
        else:
            embedding = table(vocabulary_size, "source_embedding", pad_id)
            target_embedding = table(
                target_vocabulary_size, "target_embedding", target_pad_id
            )
        norms: dict[str, keras.Layer | None] = {
            side: make_norm(
                encoder.norm,
                encoder.norm_epsilon,
                encoder.dtype_policy,
                f"{side}_embedding_norm",
            )
            if embedding_norm
            else None
            for side in ("source", "target")
        }
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        source_ids, target_ids = source, target
        if embedding.pad_id is None:
            source_ids, target_ids = (
                PaddedIds(each, name=f"{side}_ids")(ids)
                for each, side, ids in (
                    (pad_id, "source", source),
                    (target_pad_id, "target", target),
                )
            )
        x = put_in(position, embedding(source_ids), name="input_position")
        x = normed(norms["source"], x)
        source_dropout = keras.layers.Dropout(
            encoder.dropout, dtype=dtype, name="source_dropout"
        )
        memory = encoder(source_dropout(x))
        x = put_in(
            target_position,
            target_embedding(target_ids),
            name="target_input_position",
            as_cached=True,
        )
        x = normed(norms["target"], x)
        width = memory.shape[-1]
        of_stacks["attention_position"] = check_positions(
            "target_attention_position",
            _another(target_attention_position, encoder.attention_position),
            num_decoder_layers,
            dtype,
        )
        decoder = TransformerDecoder(
            num_decoder_layers,
            cross_attention_position=cross_attention_position,
            memory_dim=None if width == x.shape[-1] else width,
            **for_sublayer(of_stacks, "decoder"),
            name="decoder",
        )
        target_dropout = keras.layers.Dropout(
            encoder.dropout, dtype=dtype, name="target_dropout"
        )
        x = decoder(target_dropout(x), memory=memory)
        head = None
        if embeddings in ("separate", "shared_inputs"):
            head = make_head(decoder, target_vocabulary_size)
            logits = head(x)
        else:
            check_width(x, d_model, embeddings)
            logits = target_embedding(x, reverse=True)
        logits_bias = None
        if use_logits_bias:
            logits_bias = LogitsBias(dtype=dtype, name="logits_bias")
            logits = logits_bias(logits)
        super().__init__(
            inputs={"source": source, "target": target},
            outputs=logits,
            name=options["name"],
            trainable=options["trainable"],
        )
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.input_position = position
        self.target_input_position = target_position
        self.encoder = encoder
        self.decoder = decoder
        self.embedding = embedding
        self.target_embedding = target_embedding
        self.source_embedding_norm = norms["source"]
        self.target_embedding_norm = norms["target"]
        self.head = head
        self.logits_bias = logits_bias
        self.vocabulary_size = vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size
        self.pad_id = pad_id
        self.target_pad_id = target_pad_id
        self.d_model = d_model
        self.embeddings = embeddings
        self.scale_inputs = scale_inputs
        self.embedding_norm = embedding_norm
        self.use_logits_bias = use_logits_bias
        self.num_decoder_layers = decoder.num_layers
        self.target_attention_position = decoder.attention_position
        self.cross_attention_position = decoder.cross_attention_position
        self.skip_padding = encoder.skip_padding
        self.keep_options_of(encoder, embedding)
        # The layers within have seeds of their own, made of these.
        for name, value in projections.items():
            setattr(self, name, value)
        self.embeddings_initializer = embeddings_initializer

    def encode(self, source: Any, *, source_mask: Any = None) -> Any:
        """Computes the memory that the decoder reads: `(batch, source, width)`.

        Args:
            source: Integers `(batch, source)`.
            source_mask: Bool `(batch, source)`, which of them are real; by
                default those that are not padding.

        Raises:
            ValueError: Ids or a mask of another shape or dtype.
        """
        return self._encode(*self._check_source(source, source_mask))

    def build_cache(
        self, source: Any, max_length: Any, source_mask: Any = None
    ) -> dict[str, Any]:
        """Makes a cache for `call_with_cache` from an encoded source.

        The keys and values of the source are computed here, once.

        Args:
            source: Integers `(batch, source)`.
            max_length: Maximum number of target tokens of a row, its prompt
                and padding included: an integer, or a scalar tensor.
            source_mask: Bool `(batch, source)`, which are real; by default
                those that are not padding.

        Returns:
            A nested dict of tensors, whose shapes a loop does not change.

        Raises:
            ValueError: A position that needs the whole sequence; a
                `max_length` that is no positive integer, or more than a table
                has positions; ids or a mask of another shape or dtype.
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
        """Raises `ValueError` unless `length` source tokens have positions."""
        check_table(self.input_position, length, f"a source of length {length}")

    def attention_weights(
        self, source: Any, target: Any, *, source_mask: Any = None
    ) -> dict[str, list[Any]]:
        """Computes all attention weights, in one pass without dropout.

        Args:
            source: Integers `(batch, source)`.
            target: Integers `(batch, target)`, as in a call: the start symbol
                first.
            source_mask: Bool `(batch, source)`, which of them are real; by
                default those that are not padding.

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
        target_mask = is_token(target, self.target_pad_id)
        x = _placed(
            self.target_input_position,
            embedded(self.target_embedding, target, self.target_pad_id),
            target_mask,
            as_cached=True,
        )
        x = normed(self.target_embedding_norm, x)
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
        x = embedded(self.embedding, source, self.pad_id)
        x = _placed(self.input_position, x, mask)
        return normed(self.source_embedding_norm, x)

    def _check_source(self, source: Any, mask: Any) -> tuple[Any, Any]:
        source = ops.convert_to_tensor(source)
        check_integers("source", source)
        unknown = {"rows": None, "seq": None}
        check_shape("source", source, ("rows", "seq"), sizes=unknown)
        if mask is None:
            return source, is_token(source, self.pad_id)
        rows, seq = source.shape
        sizes = {"rows": rows, "seq": seq}
        check_shape("source_mask", mask, ("rows", "seq"), sizes=sizes)
        check_mask("source_mask", mask)
        return source, ops.cast(mask, "bool")


def _placed(
    position: keras.Layer | None, x: Any, mask: Any, as_cached: bool = False
) -> Any:
    """Adds positions to embeddings, as `put_in` does, for an explicit mask."""
    if position is None:
        return x
    if as_cached and counts_all(position):
        return position(x, positions=positions_from_mask(mask))
    takes_mask = "mask" in inspect.signature(position.call).parameters
    return position(x, **({"mask": mask} if takes_mask else {}))


def _another(value: Any, like: Any) -> Any:
    """Returns the value given or, for `"same"`, copies of other layers."""
    if not isinstance(value, str) or value != "same":
        return value
    if isinstance(like, list):
        return [_another("same", each) for each in like]
    if like is None:
        return None
    config = like.get_config()
    config["name"] = f"target_{like.name}"
    return type(like).from_config(config)
