"""The bases of the models: of a stack of blocks, and token by token."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.keras_internals import (
    copied,
    has_static_shapes,
    is_compiled_by_xla,
    is_in_graph,
)
from keras_posenc.ops.arguments import (
    check_integers,
    check_mask,
    check_shape,
    known_values,
)
from keras_posenc.ops.cache import Slots, rows_of
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.masks import Side
from keras_posenc.ops.named import NamedArguments, config_of
from keras_posenc.ops.positions import positions_from_mask
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    Context,
    Memory,
    side_of,
)
from keras_posenc.transformer._embeddings import (
    TokenEmbedding,
    embedded,
    is_token,
)
from keras_posenc.transformer._input_position import (
    check_cacheable,
    check_table,
    put_in_at,
    table_of,
    table_size,
)
from keras_posenc.transformer._options import StackOptions, names_in
from keras_posenc.transformer._sublayers import make_norm, normalized, project
from keras_posenc.transformer.blocks import TransformerDecoder
from keras_posenc.transformer.specs import WITHIN, name_of

# The parts of a cache that have an entry for each row of the batch.
_BY_ROW = ("tokens", "positions", "blocks", "memory", "memory_tokens")


class StackModel(NamedArguments, keras.Model):
    """Base of the Functional models that are made from their config.

    A concrete class is completed by `with_options`, and keeps each constructor
    argument as an attribute, by `connect`.
    """

    arguments_within = WITHIN

    def connect(
        self,
        inputs: Any,
        outputs: Any,
        stack: AttentionLayer,
        options: Mapping[str, Any],
        **kept: Any,
    ) -> None:
        """Makes the Functional model, and keeps its arguments as attributes.

        Options of the stack are read from it; `kept` are the model's own
        arguments, checked, and its layers.
        """
        super().__init__(
            inputs=inputs,
            outputs=outputs,
            name=options["name"],
            trainable=options["trainable"],
        )
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        names = ("num_layers", *names_in(StackOptions))
        kept = {**{name: getattr(stack, name) for name in names}, **kept}
        for name, value in kept.items():
            setattr(self, name, value)
        for name in ("embeddings_initializer", "embeddings_regularizer"):
            if name not in kept:
                setattr(self, name, getattr(kept["embedding"], name))

    def call(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        # A Functional model would accept, and ignore, any other argument.
        return super().call(inputs, training=training, mask=mask)

    def get_config(self) -> dict[str, Any]:
        stack = self.encoder if hasattr(self, "encoder") else self.decoder
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": stack.get_config()["dtype"],
            **config_of(self),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        config = dict(config)
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        with keras.saving.custom_object_scope(custom_objects or {}):
            return cls(**config)


def make_table(
    size: int,
    width: int,
    options: Mapping[str, Any],
    name: str = "embedding",
    **own: Any,
) -> TokenEmbedding:
    """Makes a table of embeddings with the options of its model."""
    return TokenEmbedding(
        size,
        width,
        embeddings_initializer=options["embeddings_initializer"],
        embeddings_regularizer=options["embeddings_regularizer"],
        dtype=options["dtype"],
        name=name,
        **own,
    )


def norm_of(stack: AttentionLayer, name: str) -> keras.Layer:
    """Makes a norm of embeddings, of the kind of a stack's."""
    return make_norm(stack.norm, stack.dtype_policy, name)


def dropped(stack: AttentionLayer, x: Any, name: str) -> Any:
    """Applies the dropout before a stack, at its rate."""
    return keras.layers.Dropout(
        stack.dropout, dtype=stack.dtype_policy, name=name
    )(x)


class DecodingModel(StackModel):
    """Base of the models that compute logits all at once, or token by token.

    A subclass sets these attributes, and defines `build_cache` by
    `_empty_cache`.

    Attributes:
        decoder: The `TransformerDecoder`.
        target_embedding: The `TokenEmbedding` of generated tokens.
        target_pad_id: The id that is padding among them; -1 for none of them.
        target_input_position: The layer that adds their positions, or None.
        target_embedding_norm: The norm after that, or None.
        head: A `Dense` from the decoder's outputs to logits; None if the
            embedding computes them.
        logits_layer: The layer after that, or None.
        layer_embedding: The table of `layer_inputs` of the decoder, or None.
    """

    decoder: TransformerDecoder
    target_embedding: TokenEmbedding
    target_pad_id: int
    target_input_position: keras.Layer | None
    head: keras.layers.Dense | None
    target_embedding_norm: keras.Layer | None
    logits_layer: keras.Layer | None = None
    layer_embedding: TokenEmbedding | None = None

    def call_with_cache(
        self,
        token_ids: Any,
        cache: dict[str, Any],
        *,
        mask: Any = None,
        write: str = "copy",
    ) -> tuple[Any, dict[str, Any]]:
        """Computes the logits of further tokens: a whole prompt, or one token.

        They are written to the slots from `cache["slot"]` on, the same for all
        rows. The positions of a row count its real tokens only, so that
        padding, right or left, does not change the outputs.

        Args:
            token_ids: Integers `(batch, n)`.
            cache: What `build_cache` or the last call returned. It is not
                changed: several calls can continue from one cache.
            mask: Bool `(batch, n)`, which of them are real; by default those
                that are not padding.
            write: How the cache gets the tokens. `"copy"` leaves the given
                cache as it is. In a TensorFlow graph `"memory"` overwrites it,
                so that a step of a loop takes the same time however long it is:
                only for a cache of `own_cache`, with a free slot, that nothing
                reads afterwards. `"slice"` needs slots for all tokens, and
                leaves those that `mask` leaves out; it is for runtimes that
                write slices fast.

        Returns:
            Logits `(batch, n, vocabulary)`, each of the token that follows,
            and the cache with these tokens in it.

        Raises:
            ValueError: The cache is another model's, the tokens do not fit
                into it, or ids or mask have another shape or dtype. In a
                graph, where it is not known how full a cache is, tokens that
                do not fit are left out.
        """
        self._check_cache(cache)
        token_ids = ops.convert_to_tensor(token_ids)
        self._check_tokens(token_ids, cache, mask)
        token_ids = ops.cast(token_ids, "int32")
        batch, count = ops.shape(token_ids)
        length = ops.shape(cache["tokens"])[1]
        if write != "slice":
            if is_compiled_by_xla(token_ids):
                write = "step"
            elif not self._owns_caches(token_ids):
                write = "copy"
        slots = Slots(
            cache["slot"], count=count, length=length, how=write, real=mask
        )
        tokens = is_token(token_ids, self.target_pad_id)
        if mask is not None:
            tokens = ops.cast(mask, "bool")
        before = ops.sum(
            ops.cast(cache["tokens"], "int32"), axis=1, keepdims=True
        )
        positions = before
        if not slots.is_step:
            positions = before + positions_from_mask(tokens)
        kept = {
            "tokens": slots.write(cache["tokens"], tokens),
            "positions": slots.write(cache["positions"], positions),
        }
        queries = Side(
            count,
            tokens,
            positions,
            index=cache["slot"] + ops.arange(count, dtype="int32"),
            places=positions,
        )
        # Frequencies by length must not change while the cache fills.
        queries.known["length"] = length
        keys = Side(
            length,
            kept["tokens"],
            kept["positions"],
            index=slots.index,
            places=kept["positions"],
        )
        memory = None
        if "memory" in cache:
            tokens = cache["memory_tokens"]
            across = side_of(
                self.decoder.positions_across(),
                ops.shape(tokens)[1],
                masks=(tokens,),
            )
            memory = Memory(Context(queries, across, batch=batch))
        context = Context(
            queries,
            keys,
            batch=batch,
            # Later slots hold no tokens yet.
            causal=not slots.is_step,
            memory=memory,
            slots=slots,
        )
        if self.layer_embedding is not None:
            context.layer_inputs = embedded(
                self.layer_embedding, token_ids, self.target_pad_id
            )
        x = put_in_at(
            self.target_input_position,
            embedded(self.target_embedding, token_ids, self.target_pad_id),
            positions=positions,
            table=cache.get("encoding"),
        )
        x = normalized(self.target_embedding_norm, x)
        x, blocks = self.decoder.attend_cached(
            ops.cast(x, self.decoder.compute_dtype),
            context,
            cache["blocks"],
            cache.get("memory", []),
        )
        slot = cache["slot"] + count
        kept |= {"slot": slot, "blocks": blocks}
        return self.logits_at(x), {**cache, **kept}

    def logits_at(self, x: Any) -> Any:
        """Computes the logits of outputs of the decoder, `(..., dim)`."""
        if self.head is None:
            logits = self.target_embedding(x, reverse=True)
        else:
            logits = project(self.head, x)
        if self.logits_layer is not None:
            logits = self.logits_layer(logits)
        return logits

    def own_cache(self, cache: dict[str, Any]) -> dict[str, Any]:
        """Returns a cache that `call_with_cache` may overwrite."""
        blocks = cache["blocks"]
        if self._owns_caches(blocks[0]["key"]):
            blocks = [
                {name: copied(each[name]) for name in each} for each in blocks
            ]
        return {**cache, "blocks": blocks}

    def _owns_caches(self, tensor: Any) -> bool:
        """Whether loops overwrite caches: not in graphs for LiteRT and ONNX."""
        return (
            not has_static_shapes()
            and is_in_graph(tensor)
            and not is_compiled_by_xla(tensor)
        )

    def reorder_cache(self, cache: dict[str, Any], rows: Any) -> dict[str, Any]:
        """Selects rows of a cache, `(n,)`: the beams that are continued."""
        return {
            name: rows_of(value, rows) if name in _BY_ROW else value
            for name, value in cache.items()
        }

    @property
    def max_positions(self) -> int | None:
        """The number of tokens that have positions; None without a table."""
        return table_size(self.target_input_position)

    def check_length(self, length: Any, received: str) -> None:
        """Raises `ValueError` unless so many tokens have positions."""
        check_table(self.target_input_position, length, received)

    def check_cacheable(self, max_length: Any) -> None:
        """Raises `ValueError` unless `max_length` tokens can be cached."""
        check_cacheable(self.target_input_position, max_length)
        for position in self.decoder.positions_within():
            by_cache = getattr(position, "rope_type", None) == "longrope"
            if position.uses_length and not by_cache:
                raise ValueError(
                    f"{name_of(position)} cannot be cached: how it encodes a "
                    "token depends on how long the text becomes, and a cache "
                    "keeps the keys of tokens as they were first computed"
                )

    def _empty_cache(
        self, batch: Any, max_length: Any, max_tokens: Any = None
    ) -> dict[str, Any]:
        max_length = check_size("max_length", max_length)
        self.check_cacheable(max_length if max_tokens is None else max_tokens)
        cache = {
            "slot": ops.zeros((), "int32"),
            "tokens": ops.zeros((batch, max_length), "bool"),
            "positions": ops.zeros((batch, max_length), "int32"),
            "blocks": self.decoder.empty_caches(batch, max_length),
        }
        # Once here, not at each step, where each operator takes time.
        table = table_of(
            self.target_input_position,
            self.target_embedding.output_dim,
            max_length,
        )
        return cache if table is None else {**cache, "encoding": table}

    def _check_cache(self, cache: Any) -> None:
        parts = {"slot", "tokens", "positions", "blocks"}
        if self.decoder.cross_attention is not None:
            parts |= {"memory", "memory_tokens"}
        names = set(cache) if isinstance(cache, dict) else set()
        if names - {"encoding"} != parts:
            what = f"one of {sorted(names)}" if names else repr(cache)
            raise ValueError(
                "`cache` must be one that `build_cache` of this model made. "
                f"Received: cache={what:.200}"
            )

    def _check_tokens(
        self, token_ids: Any, cache: dict[str, Any], mask: Any
    ) -> None:
        check_integers("token_ids", token_ids)
        rows, length = cache["tokens"].shape
        sizes: dict[str, Any] = {"rows": rows, "n": None}
        check_shape("token_ids", token_ids, ("rows", "n"), sizes=sizes)
        sizes["n"] = count = token_ids.shape[1]
        check_shape("mask", mask, ("rows", "n"), sizes=sizes)
        check_mask("mask", mask)
        if count == 0:
            raise ValueError(
                "`token_ids` must hold at least one token per example. "
                f"Received: token_ids of shape {tuple(token_ids.shape)}"
            )
        if count is None or length is None:
            return
        slot = known_values(cache["slot"])
        used = 0 if slot is None else int(slot)
        if used + count > length:
            raise ValueError(
                f"The cache has {length} slots (max_length={length}), of which "
                f"{used} are used. Received: token_ids of shape "
                f"{tuple(token_ids.shape)}"
            )


def check_size(
    name: str, value: Any, check: Callable[..., int] = check_positive_int
) -> Any:
    """Checks a number of rows or slots: an integer, or a scalar tensor."""
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        check_shape(name, value, (), sizes={})
        check_integers(name, value)
        return value
    # Each backend has its own symbols for dynamic sizes.
    known = int | float | str | list | tuple | dict | np.generic | None
    if isinstance(value, known):
        return check(name, value)
    return value


def logits_of(
    decoder: TransformerDecoder,
    x: Any,
    table: TokenEmbedding,
    embeddings: str,
    units: int,
) -> tuple[Any, keras.layers.Dense | None]:
    """Computes logits; returns also their projection, unless it is the table.

    The projection has no biases.
    """
    if embeddings in ("separate", "shared_inputs"):
        head = keras.layers.Dense(
            units,
            use_bias=False,
            kernel_initializer=initializer_of(
                decoder.kernel_initializer, "logits"
            ),
            kernel_regularizer=decoder.kernel_regularizer,
            dtype=decoder.dtype_policy,
            name="logits",
        )
        return head(x), head
    if x.shape[-1] != table.output_dim:
        raise ValueError(
            f"embeddings={embeddings!r} computes logits with the embeddings, "
            f"of width {table.output_dim}, and the position at the decoder's "
            f"input makes its outputs {x.shape[-1]} wide: give "
            "embeddings='separate'"
        )
    return table(x, reverse=True), None
