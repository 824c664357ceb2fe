"""The encoder-decoder Transformer, from source and target to logits."""

import inspect
import types
from dataclasses import replace
from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.checks import check_choice
from keras_posenc.ops.arguments import check_integers, check_mask, check_shape
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.named import checked_arguments
from keras_posenc.ops.positions import positions_from_mask
from keras_posenc.transformer._embeddings import (
    NO_ID,
    LogitsBias,
    PaddedIds,
    TokenEmbedding,
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
from keras_posenc.transformer._models import (
    DecodingModel,
    dropped,
    logits_of,
    make_table,
    norm_of,
)
from keras_posenc.transformer._options import (
    ModelOptions,
    ProjectionOptions,
    StackOptions,
    check_options,
    for_sublayer,
    select,
    with_options,
)
from keras_posenc.transformer._sublayers import normalized
from keras_posenc.transformer.blocks import (
    TransformerDecoder,
    TransformerEncoder,
)
from keras_posenc.transformer.specs import (
    Attention,
    Attentions,
    by_block,
    check_attention,
    is_same,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(ModelOptions)
class Transformer(DecodingModel):
    """The encoder and the decoder of the paper, with embeddings and logits.

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
        target_attention: The self-attentions of the decoder, as `attention`,
            which is those of the encoder; or `"same"`, whose position has
            weights of its own.
        cross_attention: The attentions of the decoder to the source, as
            `TransformerDecoder` takes them, without None.
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
        target_attention: Attentions = "same",
        cross_attention: Attentions = "same",
        embeddings: str = "shared",
        scale_inputs: bool = True,
        embedding_norm: bool = False,
        use_logits_bias: bool = False,
        skip_padding: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        own = checked_arguments({**locals(), "d_model": options["d_model"]})
        check_choice(
            "embeddings",
            embeddings,
            ("shared", "shared_inputs", "tied", "separate"),
        )
        if cross_attention is None:
            raise ValueError(
                "`cross_attention` must not be None: a model without it is "
                "TransformerDecoderModel. Received: cross_attention=None"
            )
        is_shared = embeddings in ("shared", "shared_inputs")
        if target_vocabulary_size is None:
            target_vocabulary_size = vocabulary_size
        if num_decoder_layers is None:
            num_decoder_layers = options["num_layers"]
        if is_shared and target_vocabulary_size != vocabulary_size:
            raise ValueError(
                f"embeddings={embeddings!r} is one table for source and "
                "target: for two vocabularies give 'tied' or 'separate'. "
                "Received: "
                f"vocabulary_size={vocabulary_size}, "
                f"target_vocabulary_size={target_vocabulary_size}"
            )
        if target_pad_id is None:
            target_pad_id = pad_id
        check_pad_id("pad_id", pad_id, vocabulary_size)
        check_pad_id("target_pad_id", target_pad_id, target_vocabulary_size)
        dtype = options["dtype"]
        position = check_input_position(
            input_position, dtype, scaled=scale_inputs
        )
        target_position = check_input_position(
            _another(target_input_position, position),
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
            options["num_layers"],
            **for_sublayer(of_stacks, "encoder"),
            name="encoder",
        )
        initializer = keras.initializers.get(options["embeddings_initializer"])

        def table(size: int, name: str, pad_id: int | None) -> TokenEmbedding:
            seeded = initializer_of(initializer, name)
            return make_table(
                size,
                own["d_model"],
                {**options, "embeddings_initializer": seeded},
                name=name,
                scale=scale_inputs,
                pad_id=pad_id,
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
        source_norm = target_norm = None
        if embedding_norm:
            source_norm = norm_of(encoder, "source_embedding_norm")
            target_norm = norm_of(encoder, "target_embedding_norm")
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        source_ids, target_ids = source, target
        if embedding.pad_id is None:
            source_ids = PaddedIds(pad_id, name="source_ids")(source)
            target_ids = PaddedIds(target_pad_id, name="target_ids")(target)
        x = put_in(position, embedding(source_ids), name="input_position")
        x = normalized(source_norm, x)
        memory = encoder(dropped(encoder, x, "source_dropout"))
        x = put_in(
            target_position,
            target_embedding(target_ids),
            name="target_input_position",
            as_cached=True,
        )
        x = normalized(target_norm, x)
        width = memory.shape[-1]
        of_stacks["attention"], _ = by_block(
            "target_attention",
            _another(target_attention, encoder.attention),
            num_decoder_layers,
            check_attention,
            dtype,
        )
        decoder = TransformerDecoder(
            num_decoder_layers,
            cross_attention=cross_attention,
            memory_dim=None if width == x.shape[-1] else width,
            **for_sublayer(of_stacks, "decoder"),
            name="decoder",
        )
        x = decoder(dropped(encoder, x, "target_dropout"), memory=memory)
        logits, head = logits_of(
            decoder, x, target_embedding, embeddings, target_vocabulary_size
        )
        logits_layer = None
        if use_logits_bias:
            logits_layer = LogitsBias(dtype=dtype, name="logits_bias")
            logits = logits_layer(logits)
        self.connect(
            {"source": source, "target": target},
            logits,
            encoder,
            options,
            # The layers within have seeds of their own, made of these.
            **projections,
            **{
                **own,
                "target_vocabulary_size": target_vocabulary_size,
                "num_decoder_layers": decoder.num_layers,
            },
            embeddings_initializer=initializer,
            input_position=position,
            target_input_position=target_position,
            encoder=encoder,
            decoder=decoder,
            embedding=embedding,
            target_embedding=target_embedding,
            source_embedding_norm=source_norm,
            target_embedding_norm=target_norm,
            head=head,
            logits_layer=logits_layer,
            pad_id=pad_id,
            target_pad_id=target_pad_id,
            embeddings=embeddings,
            target_attention=decoder.attention,
            cross_attention=decoder.cross_attention,
        )

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
            source: As for `encode`.
            max_length: Maximum number of target tokens of a row, its prompt
                and padding included: an integer, or a scalar tensor.
            source_mask: As for `encode`.

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
            source: As for `encode`.
            target: Integers `(batch, target)`, as in a call: the start symbol
                first.
            source_mask: As for `encode`.

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
            self._embedded("source", source, mask),
            mask=mask,
            return_attention_scores=True,
        )
        target_mask = is_token(target, self.target_pad_id)
        _, of_target, across = self.decoder(
            self._embedded("target", target, target_mask),
            memory=memory,
            memory_mask=mask,
            mask=target_mask,
            return_attention_scores=True,
        )
        return {"source": of_source, "target": of_target, "cross": across}

    def _encode(self, source: Any, mask: Any) -> Any:
        return self.encoder(self._embedded("source", source, mask), mask=mask)

    def _embedded(self, side: str, ids: Any, mask: Any) -> Any:
        """Embeds ids of a side, with their positions, for an explicit mask."""
        is_target = side == "target"
        table, position, pad_id = (
            (
                self.target_embedding,
                self.target_input_position,
                self.target_pad_id,
            )
            if is_target
            else (self.embedding, self.input_position, self.pad_id)
        )
        x = embedded(table, ids, pad_id)
        if position is not None and is_target and counts_all(position):
            x = position(x, positions=positions_from_mask(mask))
        elif position is not None:
            takes_mask = "mask" in inspect.signature(position.call).parameters
            x = position(x, **({"mask": mask} if takes_mask else {}))
        return normalized(getattr(self, f"{side}_embedding_norm"), x)

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


def _another(value: Any, like: Any) -> Any:
    """Returns the value given or, for `"same"`, copies of other layers."""
    if not is_same(value):
        return value
    if like is None:
        return None
    if isinstance(like, list):
        return [_another("same", each) for each in like]
    if isinstance(like, Attention):
        return replace(like, position=_another("same", like.position))
    config = like.get_config()
    config["name"] = f"target_{like.name}"
    return type(like).from_config(config)


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="TwoPassReader"
)
class TwoPassReader(keras.Layer):
    """Encodes a text, and decodes the same text from it.

    The target is the source, one token later: its last token, which has seen
    all others, is the only one whose embedding knows the whole text.

    Args:
        vocabulary_size: As for `Transformer`.
        start_id: The first id of the target.
        name: Name of the layer.
        trainable: Whether its weights train.
        **options: As for `Transformer`, whose `target_pad_id` must be -1 and
            whose `embeddings` must be `"shared"`: logits are not computed.

    Call arguments:
        inputs: Integers `(batch, seq)`.

    Returns:
        `(batch, seq, d_model)`, with the mask of the tokens.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        start_id: int,
        name: str | None = None,
        trainable: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            name=name, trainable=trainable, dtype=options.get("dtype")
        )
        self.supports_masking = True
        self.start_id = start_id
        self.transformer = Transformer(
            vocabulary_size, **options, name="transformer"
        )
        for each in ("vocabulary_size", "pad_id", "d_model"):
            setattr(self, each, getattr(self.transformer, each))
        # Not as an attribute, whose layers Keras would save twice.
        hidden = keras.Model(
            self.transformer.input, self.transformer.get_layer("decoder").output
        )
        hidden.supports_masking = True  # else Keras warns of ids with a mask
        self._within = types.SimpleNamespace(hidden=hidden)

    @property
    def input_position(self) -> Any:
        """The layer that adds positions to the source."""
        return self.transformer.input_position

    def build(self, input_shape: Any) -> None:
        self.built = True  # the Transformer is

    def call(self, inputs: Any, *, training: Any = None) -> Any:
        ids = ops.cast(inputs, "int32")
        start = ops.full_like(ids[:, :1], self.start_id)
        target = ops.concatenate([start, ids[:, :-1]], axis=1)
        # Padding stays padding, so that it is skipped.
        target = ops.where(
            is_token(ids, self.pad_id), target, ops.full_like(target, NO_ID)
        )
        return self._within.hidden(
            {"source": ids, "target": target}, training=training
        )

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return is_token(inputs, self.pad_id)

    def compute_output_spec(
        self, inputs: Any, *, training: Any = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor(
            (*inputs.shape, self.d_model), self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **self.transformer.get_config(),
            "name": self.name,
            "trainable": self.trainable,
            "start_id": self.start_id,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TwoPassReader":
        config = dict(config)
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)
