"""The base of the families of encoder-decoders."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import Family, Parts
from keras_posenc.checkpoints.heads import SEQUENCE
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer._embeddings import NO_ID
from keras_posenc.transformer.transformer import Transformer, TwoPassReader
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

_TABLES = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
_HEAD, _BIAS = "lm_head.weight", "final_logits_bias"
# Keys of training, and those that say what other keys do.
_OF_NO_MATTER = (
    "activation_dropout",
    "add_bias_logits",
    "classif_dropout",
    "decoder_layerdrop",
    "encoder_layerdrop",
    "extra_pos_embeddings",
    "force_bos_token_to_be_generated",
    "init_std",
    "n_positions",
    "replacing_rate",
    "save_step",
    "student_decoder_layers",
    "student_encoder_layers",
)


class EncoderDecoder(Family):
    """Base of the families that are read as a `Transformer`, by `model_type`.

    The source has the padding of the config; every id of the target is a
    token. The encoder alone can be read too, and both as a classifier.

    Attributes:
        names: As in `Family`, after the name of the stack. Parts whose names
            start with "cross_" are of the attention to the encoder's outputs.
        decoder_names: Those of the decoder that differ.
        may_tie: Whether logits are products with the embeddings where the file
            has no kernel of theirs, although the config says otherwise.
    """

    model: Any = Transformer
    prefix = "model."
    decoder_names: Mapping[str, str] = {}
    may_tie = False
    # What `options` finds in the config.
    is_tied = True
    start_id: int | None = None
    # The kernel of logits, where it is no table of embeddings.
    _kernel: np.ndarray | None = None

    def as_encoder(self) -> Self:
        """Returns the family of the same checkpoints, read without decoder."""
        encoder = copy.copy(self)
        encoder.model = TransformerEncoderModel
        return encoder

    def as_classifier(self) -> Self:
        """Returns the family of the same checkpoints, read as classifiers.

        Raises:
            ValueError: The family has no such checkpoints.
        """
        if self.pooler is None:
            raise ValueError(
                f"Classifiers of the family {type(self).__name__} are not "
                "supported; encoder_only=True loads the encoder of one"
            )
        classifier = copy.copy(self)
        classifier.model = TwoPassReader
        classifier.unused = (*self.unused, rf"{_HEAD}|{_BIAS}")
        return classifier

    def options(self, config: Config) -> dict[str, Any]:
        config.expect("is_encoder_decoder", True)
        for key in _OF_NO_MATTER:
            config.take(key, None)
        self.is_tied = config.expect("tie_word_embeddings", True, False)
        self.start_id = config.take(
            "decoder_start_token_id", None, int, type(None)
        )
        options = self.own_options(config)
        if self.model is TransformerEncoderModel:
            if options.pop("scale_inputs"):
                self.embedding_scale = options["d_model"] ** 0.5
            known = inspect.signature(TransformerEncoderModel).parameters
            return {name: x for name, x in options.items() if name in known}
        options["target_pad_id"] = NO_ID
        if self.model is TwoPassReader:
            if self.start_id is None:
                raise ValueError(
                    f"'{config.path}' has no key 'decoder_start_token_id'"
                )
            options["start_id"] = self.start_id
        return options

    def own_options(self, config: Config) -> dict[str, Any]:
        """Returns the arguments of a `Transformer`.

        Without `target_pad_id`, and without how tables are shared.
        """
        raise NotImplementedError

    def check(
        self, options: Mapping[str, Any], tensors: Tensors, path: Any
    ) -> None:
        super().check(options, tensors, path)
        size = options["num_heads"] * (options.get("head_dim") or 0)
        size *= options["d_model"]
        if size > tensors.largest:
            raise ValueError(
                f"'{path}' describes a larger model than the tensors are of: "
                f"its head_dim would take a tensor of {size} numbers, and the "
                f"largest has {tensors.largest}"
            )

    def settle(
        self, options: dict[str, Any], tensors: Tensors
    ) -> dict[str, Any]:
        """Returns the options, with what the tensors say of the tables.

        As in transformers, logits have a kernel of their own if the file has
        one that differs from the embeddings.

        Raises:
            ValueError: Tables that must be one differ, or one is missing.
        """
        prefix = self.prefix_in(tensors)
        shape = options["vocabulary_size"], options["d_model"]
        shared, source, target = (
            f"{prefix}{table}.weight" for table in _TABLES
        )
        stored = [x for x in (shared, source, target) if x in tensors]
        of_target = options.get("target_vocabulary_size")
        if self.model is TransformerEncoderModel:
            names = [x for x in stored if x != target] or stored[:1]
        else:
            names = [source] if of_target else stored or [_HEAD]
        self._source = self._target = _only(tensors, names or [shared], shape)
        if of_target:
            self._target = _only(tensors, [target], (of_target, shape[1]))
        if self.model is not Transformer:
            return options
        self._kernel = None
        has_kernel = _HEAD in tensors and names != [_HEAD]
        if has_kernel or not (self.is_tied or self.may_tie):
            kernel = tensors.take(_HEAD, self._target.shape)
            if not np.array_equal(kernel, self._target):
                self._kernel = kernel
        is_tied = self._kernel is None
        return {
            **options,
            "embeddings": ("tied" if is_tied else "separate")
            if of_target
            else ("shared" if is_tied else "shared_inputs"),
            "use_logits_bias": _BIAS in tensors,
        }

    def fill(self, model: Any, tensors: Tensors) -> None:
        prefix = self.prefix_in(tensors)
        model = getattr(model, "transformer", model)
        table = self._source
        if self.embedding_scale != 1:
            table = table * self.embedding_scale
        model.embedding.embeddings.assign(table)
        encoder = copy.copy(self)
        encoder.output_scale = 1.0
        parts = Parts(encoder, tensors, f"{prefix}encoder.")
        if isinstance(model, TransformerEncoderModel):
            norm = model.embedding_norm and model.get_layer("embedding_norm")
            encoder.fill_stack(model.encoder, model.input_position, norm, parts)
            return
        encoder.fill_stack(
            model.encoder,
            model.input_position,
            model.source_embedding_norm,
            parts,
        )
        decoder = copy.copy(self)
        decoder.names = {**self.names, **self.decoder_names}
        decoder.fill_stack(
            model.decoder,
            model.target_input_position,
            model.target_embedding_norm,
            Parts(decoder, tensors, f"{prefix}decoder."),
        )
        if model.target_embedding is not model.embedding:
            model.target_embedding.embeddings.assign(self._target)
        if self._kernel is not None:
            model.head.kernel.assign(self._kernel.T)
        if model.logits_bias is not None:
            shape = (1, model.target_vocabulary_size)
            model.logits_bias.bias.assign(tensors.take(_BIAS, shape)[0])

    def fill_stack(
        self, stack: Any, position: Any, norm: Any, parts: Parts
    ) -> None:
        """Matches the blocks of one side, and what comes before them."""
        if "position" in self.names:
            parts.table(position, "position", skip=self.first_position)
        if norm:
            parts.norm(norm, "embedding_norm")
        for number, block in enumerate(stack.blocks):
            self.fill_block(block, parts, number)
        if stack.final_norm is not None:
            parts.norm(stack.final_norm, "final_norm", factor=self.output_scale)

    def fill_block(self, block: Any, parts: Parts, number: int) -> None:
        super().fill_block(block, parts, number)
        across = block.cross_attention
        if across is None:
            return
        factors = self.factors(block, parts, number)
        parts.dense(across.query, ["cross_query"], number, factors=factors)
        parts.dense(across.key_value, ["cross_key", "cross_value"], number)
        parts.dense(across.output_projection, ["cross_output"], number)
        parts.norm(block.cross_attention_norm, "cross_attention_norm", number)


def as_read(
    family: Family, values: Mapping[str, Any], encoder_only: bool
) -> Family:
    """Returns a family as the model is read: whole, or a part of it.

    Args:
        family: Any family.
        values: The config.
        encoder_only: As in `load_hugging_face`.
    """
    if not isinstance(family, EncoderDecoder):
        return family
    names = values.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    if encoder_only or name.endswith("EncoderModel"):  # such as T5EncoderModel
        return family.as_encoder()
    return family.as_classifier() if name.endswith(SEQUENCE) else family


def _only(
    tensors: Tensors, names: Sequence[str], shape: tuple[int, int]
) -> np.ndarray:
    """Returns the table that all of these names have.

    Raises:
        ValueError: They have several.
    """
    first, *others = (tensors.take(name, shape) for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if not np.array_equal(first, other):
            raise ValueError(
                f"The tensors '{names[0]}' and '{name}' must be one table, "
                "which source and target share, and differ. Delete the one "
                "that is not used from the file"
            )
    return first
