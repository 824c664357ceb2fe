"""Checkpoints of Hugging Face are written and read."""

import numpy as np

import keras_posenc as kp

model = kp.TransformerEncoderModel(
    12,
    d_model=8,
    num_layers=1,
    num_heads=2,
    intermediate_dim=6,
    input_position=kp.PositionEmbedding(10),
    embedding_norm=True,
)
ids = np.array([[3, 4, 5]])
answer = np.asarray(model(ids))
kp.save_hugging_face(model, "saved")
again = kp.load_hugging_face("saved", from_ids=True)
np.testing.assert_allclose(np.asarray(again(ids)), answer, atol=1e-6)
