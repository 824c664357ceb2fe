"""Training Transformers: what Keras lacks.

    from keras_posenc import training

The paper's schedule, a loss and accuracies that skip padding, the inputs of
teacher forcing, batches of texts of similar length, packing, LoRA, and losses
and an evaluation for encoders that search.
"""

import importlib
from typing import TYPE_CHECKING, Any

from keras_posenc.ops.suggestions import no_such_name
from keras_posenc.training.accuracies import SequenceAccuracy, TokenAccuracy
from keras_posenc.training.contrastive_loss import ContrastiveLoss
from keras_posenc.training.matryoshka_loss import MatryoshkaLoss
from keras_posenc.training.noam_schedule import NoamSchedule
from keras_posenc.training.teacher_forcing import TeacherForcing
from keras_posenc.training.token_crossentropy import TokenCrossentropy

if TYPE_CHECKING:
    from keras_posenc.training.adapters import load_lora, save_lora
    from keras_posenc.training.batches import batch_by_length
    from keras_posenc.training.lora import enable_lora
    from keras_posenc.training.packing import pack_sequences
    from keras_posenc.training.retrieval_evaluator import RetrievalEvaluator

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

# Modules of names that no `.keras` file needs: imported at their first use.
_LATE = {
    "RetrievalEvaluator": "retrieval_evaluator",
    "batch_by_length": "batches",
    "enable_lora": "lora",
    "load_lora": "adapters",
    "save_lora": "adapters",
    "pack_sequences": "packing",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise no_such_name(__name__, name, known=__all__)
    module = importlib.import_module(f"{__name__}.{_LATE[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
