"""BERT, also of MiniLM, E5, BGE and the first GTE; and ERNIE."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import (
    ACTIVATIONS,
    SIZES,
    Family,
    Pooler,
    name_of,
    said_sizes,
)
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.transformer.specs import Norm


class Bert(Family):
    """[Devlin et al., 2018](https://arxiv.org/abs/1810.04805)."""

    types: Mapping[str, str] | Sequence[str] = ("bert",)
    prefix = "bert."
    names = {
        "embedding": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "token_type": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "query": "encoder.layer.{}.attention.self.query",
        "key": "encoder.layer.{}.attention.self.key",
        "value": "encoder.layer.{}.attention.self.value",
        "attention_output": "encoder.layer.{}.attention.output.dense",
        "attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "intermediate": "encoder.layer.{}.intermediate.dense",
        "feed_forward_output": "encoder.layer.{}.output.dense",
        "feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
    }
    # Of all descendants: computed from others, or of heads of training.
    unused: Sequence[str] = (
        r"(\w+\.)?embeddings\.position_ids",
        r"(\w+\.)?pooler(\.dense)?\.(weight|bias)",
        r"(cls|(generator_)?lm_head|sop_classifier)\..*",
        r"((discriminator|generator|lm|mask)_)?predictions\..*",
        r"vocab_(transform|layer_norm|projector)\..*",
    )
    pooler: Pooler | None = Pooler("bert.pooler.dense", "tanh")
    # Defaults where the config has no such key.
    usual_activation = "gelu"
    usual_epsilon = 1e-12
    usual_pad_id: Any = 0
    usual_types = 2

    def options(self, config: Config) -> dict[str, Any]:
        return {
            **self.sizes(config),
            "input_position": self.position(config),
            "embedding_norm": True,
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        types = config.values.get("type_vocab_size", self.usual_types)
        return {"types": types}

    def describe(self, model: Any) -> dict[str, Any]:
        return {
            **{key: getattr(model, name) for name, key in SIZES.items()},
            "hidden_act": name_of(model.activation),
            "layer_norm_eps": model.norm.epsilon,
            "hidden_dropout_prob": model.dropout,
            "attention_probs_dropout_prob": model.dropout,
            "pad_token_id": model.pad_id,
            "type_vocab_size": self.usual_types,
            "max_position_embeddings": getattr(
                model.input_position, "sequence_length", 1
            ),
        }

    def sizes(self, config: Config) -> dict[str, Any]:
        """Returns the options that all descendants of BERT have in common."""
        config.index("type_vocab_size", 2**31, self.usual_types)
        config.expect("position_embedding_type", "absolute")
        sizes = said_sizes(config)
        if "embedding_projection" not in self.names:
            config.expect("embedding_size", sizes["d_model"])
        return {
            **sizes,
            "activation": config.choose(
                "hidden_act", ACTIVATIONS, self.usual_activation
            ),
            "norm": Norm(
                epsilon=config.positive("layer_norm_eps", self.usual_epsilon)
            ),
            "dropout": config.rate("hidden_dropout_prob", 0.1),
            "pad_id": config.index(
                "pad_token_id", sizes["vocabulary_size"], self.usual_pad_id
            ),
        }

    def position(self, config: Config) -> Any:
        """Returns the table of positions."""
        return PositionEmbedding(
            config.size("max_position_embeddings"), name="position_embedding"
        )


class Ernie(Bert):
    """[Sun et al., 2021](https://arxiv.org/abs/2107.02137)."""

    types = ("ernie",)
    prefix = "ernie."
    names = {**Bert.names, "task": "embeddings.task_type_embeddings"}
    pooler = Pooler("ernie.pooler.dense", "tanh")

    def options(self, config: Config) -> dict[str, Any]:
        config.size("task_type_vocab_size", 3)
        return super().options(config)

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        found = super().said(config, options)
        if config.expect("use_task_id", False, True):
            found["tasks"] = config.values.get("task_type_vocab_size", 3)
        return found

    def fill_embeddings(self, model: Any, parts: Parts) -> None:
        super().fill_embeddings(model, parts)
        if parts.reading.tasks:  # transformers gives every token that of task 0
            table = model.input_position.embeddings
            shape = parts.reading.tasks, table.shape[1]
            rows = parts.absorbed("task", shape, 0.0)
            if np.any(rows[0]):
                table.assign(table + rows[0])
