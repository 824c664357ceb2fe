"""Tokenisation inside the model: strings in, token ids out.

Importing this folder imports neither TensorFlow nor TF-Text.
"""

from keras_posenc.text.wordpiece_tokenizer import (
    WordpieceTokenizer as WordpieceTokenizer,
)
