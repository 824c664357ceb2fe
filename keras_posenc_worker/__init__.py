"""Runs in isolated processes, and imports neither Keras nor keras_posenc."""
