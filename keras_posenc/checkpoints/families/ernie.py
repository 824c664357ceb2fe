"""ERNIE: BERT with an embedding of the task, that of task 0."""

from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.checkpoints.parts import Parts


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
