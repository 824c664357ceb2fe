"""ERNIE: BERT with an embedding of the task, that of task 0."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Parts, Pooler


class Ernie(Bert):
    """[Sun et al., 2021](https://arxiv.org/abs/2107.02137)."""

    types = {"ernie": "Ernie"}
    prefix = "ernie."
    names = {**Bert.names, "task": "embeddings.task_type_embeddings"}
    unused = (
        r"(ernie\.)?embeddings\.position_ids",
        r"(ernie\.)?pooler\.dense\.(weight|bias)",
        r"cls\..*",
    )
    pooler = Pooler("ernie.pooler.dense", "tanh")

    def options(self, config: Config) -> dict[str, Any]:
        tasks = config.size("task_type_vocab_size", 3)
        has_tasks = config.expect("use_task_id", False, True)
        self.tasks = tasks if has_tasks else 0
        return super().options(config)

    def fill_embeddings(self, model: Any, parts: Parts) -> None:
        super().fill_embeddings(model, parts)
        if self.tasks:  # transformers gives every token that of task 0
            table = model.input_position.embeddings
            rows = parts.take("task", (self.tasks, table.shape[1]))
            table.assign(table + rows[0])
