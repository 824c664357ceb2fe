"""Outputs of an exported file for tables of any size."""

from keras_posenc.scoring.scorer import Scorer as Scorer
