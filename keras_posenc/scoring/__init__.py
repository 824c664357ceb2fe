"""Answers of an exported file to tables of any size."""

from keras_posenc.scoring.scorer import Scorer as Scorer
