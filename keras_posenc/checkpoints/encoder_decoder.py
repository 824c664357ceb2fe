"""The base of the families of encoder-decoders."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import Family, Reading
from keras_posenc.checkpoints.parts import Parts, WrittenTensors, array_of
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.transformer._embeddings import NO_ID
from keras_posenc.transformer.transformer import Transformer, TwoPassReader
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

_TABLES = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
_HEAD, _BIAS = "lm_head.weight", "final_logits_bias"


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
    ignored = """
        activation_dropout add_bias_logits classif_dropout decoder_layerdrop
        encoder_layerdrop extra_pos_embeddings force_bos_token_to_be_generated
        init_std n_positions replacing_rate save_step student_decoder_layers
        student_encoder_layers
    """
    # The first id of a target, where the config has no such key.
    usual_start_id: int | None = None

    def as_encoder(self) -> Self:
        """Returns the family of the same checkpoints, read without decoder."""
        encoder = copy.copy(self)
        encoder.model = TransformerEncoderModel
        return encoder

    def as_classifier(self) -> Self:
        """Returns the family of the same checkpoints, read as classifiers."""
        if self.pooler is None:
            raise ValueError(
                f"Classifiers of the family {type(self).__name__} are not "
                "supported; `encoder_only=True` loads the encoder of one"
            )
        classifier = copy.copy(self)
        classifier.model = TwoPassReader
        classifier.unused = (*self.unused, rf"{_HEAD}|{_BIAS}")
        return classifier

    def options(self, config: Config) -> dict[str, Any]:
        config.expect("is_encoder_decoder", True)
        start = config.take("decoder_start_token_id", None, int, type(None))
        start = self.usual_start_id if start is None else start
        options = self.own_options(config)
        if self.model is TransformerEncoderModel:
            known = inspect.signature(TransformerEncoderModel).parameters
            return {name: x for name, x in options.items() if name in known}
        options["target_pad_id"] = NO_ID
        if self.model is TwoPassReader:
            if start is None:
                raise ValueError(
                    f"'{config.path}' has no key 'decoder_start_token_id'"
                )
            options["start_id"] = start
        return options

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        is_scaled = self.model is TransformerEncoderModel and config.values.get(
            "scale_embedding", False
        )
        return {
            "is_tied": config.expect("tie_word_embeddings", True, False),
            "decoder_names": self.decoder_names,
            "embedding_scale": options["d_model"] ** 0.5 if is_scaled else 1.0,
        }

    def own_options(self, config: Config) -> dict[str, Any]:
        """Returns the arguments of a `Transformer`.

        Without `target_pad_id`, and without how tables are shared.
        """
        raise NotImplementedError

    def settle(self, reading: Reading, tensors: Tensors) -> Reading:
        """Returns the reading, with what the tensors say of the tables.

        As in transformers, logits have a kernel of their own if the file has
        one that differs from the embeddings.
        """
        options = reading.options
        shape = options["vocabulary_size"], options["d_model"]
        of_target = options.get("target_vocabulary_size")
        names, of_targets = self._tables_in(tensors, of_target)
        source_table = target_table = _only(tensors, names, shape)
        if of_target:
            target_table = _only(tensors, of_targets, (of_target, shape[1]))
        kernel = None
        if self.model is Transformer:
            has_kernel = _HEAD in tensors and names != [_HEAD]
            if has_kernel or not (reading.is_tied or self.may_tie):
                kernel = tensors.take(_HEAD, target_table.shape)
                if np.array_equal(kernel, target_table):
                    kernel = None
            is_tied = kernel is None
            options = {
                **options,
                "embeddings": ("tied" if is_tied else "separate")
                if of_target
                else ("shared" if is_tied else "shared_inputs"),
                "use_logits_bias": _BIAS in tensors,
            }
        tables = source_table, target_table, kernel
        return replace(reading, options=options, tables=tables)

    def _tables_in(
        self, tensors: Any, of_target: int | None
    ) -> tuple[list[str], list[str]]:
        """Returns the names of the tables of sources, and of own targets'."""
        prefix = self.prefix_in(tensors)
        shared, source, target = (
            f"{prefix}{table}.weight" for table in _TABLES
        )
        stored = [x for x in (shared, source, target) if x in tensors]
        if self.model is TransformerEncoderModel:
            names = [x for x in stored if x != target] or stored[:1]
        else:
            names = [source] if of_target else stored or [_HEAD]
        return names or [shared], [target]

    def fill_tables(self, model: Any, tensors: Any, reading: Reading) -> None:
        """Loads or saves the embeddings, and what makes logits of outputs."""
        of_target = reading.options.get("target_vocabulary_size")
        names, of_targets = self._tables_in(tensors, of_target)
        scale = reading.embedding_scale
        saves = isinstance(tensors, WrittenTensors)
        source, target, kernel = reading.tables or [None] * 3
        table = model.embedding.embeddings
        if saves:
            values = array_of(table)
            for name in names:
                tensors.put(name, values / scale if scale != 1 else values)
        else:
            table.assign(source * scale if scale != 1 else source)
        if self.model is TransformerEncoderModel:
            return
        if model.target_embedding is not model.embedding:
            table = model.target_embedding.embeddings
            if saves:
                tensors.put(of_targets[0], table)
            else:
                table.assign(target)
        if saves and self.model is Transformer:
            if model.head is not None:
                tensors.put(_HEAD, array_of(model.head.kernel).T)
            elif _HEAD in tensors:
                tensors.put(_HEAD, table)
        elif kernel is not None:
            model.head.kernel.assign(kernel.T)
        if model.logits_layer is not None:
            bias, shape = model.logits_layer.bias, (1, -1)
            if saves:
                tensors.put(_BIAS, array_of(bias).reshape(shape))
            else:
                shape = 1, model.target_vocabulary_size
                bias.assign(tensors.take(_BIAS, shape)[0])

    def match(self, model: Any, parts: Parts) -> None:
        reading = parts.reading
        model = getattr(model, "transformer", model)
        self.fill_tables(model, parts.tensors, reading)
        of_encoder = replace(reading, output_scale=1.0)
        sided = parts.side("encoder", of_encoder)
        is_alone = isinstance(model, TransformerEncoderModel)
        if is_alone:
            norm = model.embedding_norm and model.get_layer("embedding_norm")
        else:
            norm = model.source_embedding_norm
        self.fill_stack(model.encoder, model.input_position, norm, sided)
        if is_alone:
            return
        of_decoder = replace(
            reading, names={**reading.names, **reading.decoder_names}
        )
        self.fill_stack(
            model.decoder,
            model.target_input_position,
            model.target_embedding_norm,
            parts.side("decoder", of_decoder),
        )

    def fill_stack(
        self, stack: Any, position: Any, norm: Any, parts: Parts
    ) -> None:
        """Matches the blocks of one side, and what comes before them."""
        if "position" in self.names:
            skip = parts.reading.first_position
            parts.table(position, "position", skip=skip)
        if norm:
            parts.norm(norm, "embedding_norm")
        for number, block in enumerate(stack.blocks):
            self.fill_block(block, parts, number)
        if stack.final_norm is not None:
            factor = parts.reading.output_scale
            parts.norm(stack.final_norm, "final_norm", factor=factor)

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


def _only(
    tensors: Tensors, names: Sequence[str], shape: tuple[int, int]
) -> np.ndarray:
    """Returns the table that all of these names have."""
    first, *others = (tensors.take(name, shape) for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if not np.array_equal(first, other):
            raise ValueError(
                f"The tensors '{names[0]}' and '{name}' must be one table, "
                "which source and target share, and differ. Delete the one "
                "that is not used from the file"
            )
    return first
