"""keras-hub's backbones become models of ours."""

import keras_hub

import keras_posenc as kp

backbone = keras_hub.models.BertBackbone(
    vocabulary_size=30,
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=16,
    max_sequence_length=12,
)
assert kp.from_keras_hub(backbone).count_params() > 0
