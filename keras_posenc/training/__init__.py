"""Training Transformers: what Keras lacks.

    from keras_posenc import training

The paper's schedule, a loss and accuracies that skip padding, the inputs of
teacher forcing, batches of texts of similar length, packing, LoRA, and losses
and an evaluation for encoders that search.
"""

from typing import Any

from keras_posenc.ops.suggestions import no_such_name
from keras_posenc.training.batches import batch_by_length, pack_sequences
from keras_posenc.training.lora import enable_lora
from keras_posenc.training.noam_schedule import NoamSchedule
from keras_posenc.training.retrieval_evaluator import RetrievalEvaluator
from keras_posenc.training.teacher_forcing import TeacherForcing
from keras_posenc.training.tokens import (
    SequenceAccuracy,
    TokenAccuracy,
    TokenCrossentropy,
)
from keras_posenc.training.vector_losses import ContrastiveLoss, MatryoshkaLoss

__all__ = [
    "ContrastiveLoss",
    "MatryoshkaLoss",
    "NoamSchedule",
    "RetrievalEvaluator",
    "SequenceAccuracy",
    "TeacherForcing",
    "TokenAccuracy",
    "TokenCrossentropy",
    "batch_by_length",
    "enable_lora",
    "load_lora",
    "pack_sequences",
    "save_lora",
]


def __getattr__(name: str) -> Any:
    if name in ("load_lora", "save_lora"):  # they import all checkpoints
        from keras_posenc.training import adapters

        return getattr(adapters, name)
    raise no_such_name(__name__, name, known=__all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
