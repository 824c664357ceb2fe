"""Runs exported models in worker processes, without Keras and keras_posenc."""
