"""Warm-up requests are written, and answered."""

from pathlib import Path

import keras

import keras_posenc as kp

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
assert kp.export_saved_model(model, "judge", warmup=True).report.passed
warmup = Path("judge/1/assets.extra/tf_serving_warmup_requests")
assert warmup.stat().st_size > 0
