"""Keras models as files that run elsewhere, and the proof that they do.

Nothing here knows the package's own layers: any Keras model will do.
"""
