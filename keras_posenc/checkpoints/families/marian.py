"""Marian's translators: the paper's Transformer, with a bias of logits."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bart import Bart
from keras_posenc.positional.positional_encoding import PositionalEncoding


class Marian(Bart):
    """[Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344)."""

    types = ("marian",)
    names = {
        part: name
        for part, name in Bart.names.items()
        if part not in ("position", "embedding_norm")
    }
    unused = (
        *Bart.unused,
        # Sinusoids, which are computed.
        r"(model\.)?(encoder|decoder)\.embed_positions\.weight",
    )
    pooler = None
    embedding_norm = False
    usual_start_id = None

    def own_options(self, config: Config) -> dict[str, Any]:
        options = super().own_options(config)
        size = config.take("decoder_vocab_size", None, int, type(None))
        if not config.expect("share_encoder_decoder_embeddings", True, False):
            options["target_vocabulary_size"] = (
                options["vocabulary_size"] if size is None else size
            )
        return options

    def usual_pad_id(self, vocabulary: int) -> int:
        return vocabulary - 1

    def position(self, config: Config) -> Any:
        config.size("max_position_embeddings", 1024)  # of a table of the same
        return PositionalEncoding(layout="halves", name="positional_encoding")
