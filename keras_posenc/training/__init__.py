"""What training a Transformer takes that Keras lacks.

    from keras_posenc import training

The paper's schedule, a loss and accuracies that know padding, the inputs of
teacher forcing, batches of texts of like length, and LoRA.
"""

from keras_posenc.training.accuracies import SequenceAccuracy, TokenAccuracy
from keras_posenc.training.batches import batch_by_length
from keras_posenc.training.lora import enable_lora
from keras_posenc.training.noam_schedule import NoamSchedule, noam_adam
from keras_posenc.training.packing import pack_sequences
from keras_posenc.training.teacher_forcing import TeacherForcing
from keras_posenc.training.token_crossentropy import TokenCrossentropy

__all__ = [
    "NoamSchedule",
    "SequenceAccuracy",
    "TeacherForcing",
    "TokenAccuracy",
    "TokenCrossentropy",
    "batch_by_length",
    "enable_lora",
    "noam_adam",
    "pack_sequences",
]
