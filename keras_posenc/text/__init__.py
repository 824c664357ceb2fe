"""Tokenization inside the model: strings in, token ids out.

Importing this subpackage imports neither TensorFlow nor TF-Text.
"""

from keras_posenc.text.byte_pair_tokenizer import (
    BytePairTokenizer as BytePairTokenizer,
)
from keras_posenc.text.character_tokenizer import (
    ByteTokenizer as ByteTokenizer,
)
from keras_posenc.text.character_tokenizer import (
    CharacterTokenizer as CharacterTokenizer,
)
from keras_posenc.text.sentencepiece_tokenizer import (
    SentencepieceTokenizer as SentencepieceTokenizer,
)
from keras_posenc.text.wordpiece_tokenizer import (
    WordpieceTokenizer as WordpieceTokenizer,
)
