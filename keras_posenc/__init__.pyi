"""The table of public names, one a line.

Type checkers and editors read it as a stub, and `__init__.py` when the package
is imported.
"""
# fmt: off
# ruff: noqa: E501, I001

from keras_posenc import analysis as analysis
from keras_posenc import distribution as distribution
from keras_posenc import positions as positions
from keras_posenc import training as training
from keras_posenc import types as types
from keras_posenc.checkpoints.hugging_face import load_hugging_face as load_hugging_face
from keras_posenc.checkpoints.keras_hub import from_keras_hub as from_keras_hub
from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator as PretrainedGenerator
from keras_posenc.checkpoints.pretrained_model import PretrainedModel as PretrainedModel
from keras_posenc.checkpoints.saving import save_hugging_face as save_hugging_face
from keras_posenc.export.errors import ExportError as ExportError
from keras_posenc.export.errors import ExportVerificationError as ExportVerificationError
from keras_posenc.export.inspect import inspect_export as inspect_export
from keras_posenc.export.litert import export_litert as export_litert
from keras_posenc.export.litertlm import export_litertlm as export_litertlm
from keras_posenc.export.onnx import export_onnx as export_onnx
from keras_posenc.export.quantize import quantize as quantize
from keras_posenc.export.saved_model import export_saved_model as export_saved_model
from keras_posenc.export.verify import verify_export as verify_export
from keras_posenc.generation.generator import Generator as Generator
from keras_posenc.ops.positional_encoding import get_angles as get_angles
from keras_posenc.ops.positional_encoding import positional_encoding as positional_encoding
from keras_posenc.positional.biases import AlibiBias as AlibiBias
from keras_posenc.positional.attention_position import AttentionPosition as AttentionPosition
from keras_posenc.positional.grids import AxialPositionalEncoding as AxialPositionalEncoding
from keras_posenc.positional.grids import GridPositions as GridPositions
from keras_posenc.positional.position_embedding import PositionEmbedding as PositionEmbedding
from keras_posenc.positional.positional_encoding import PositionalEncoding as PositionalEncoding
from keras_posenc.positional.randomized_positions import RandomizedPositions as RandomizedPositions
from keras_posenc.positional.biases import RelativePositionBias as RelativePositionBias
from keras_posenc.positional.rotary_embedding import RotaryEmbedding as RotaryEmbedding
from keras_posenc.positional.time_encoding import TimeEncoding as TimeEncoding
from keras_posenc.scoring.files import score_files as score_files
from keras_posenc.scoring.scorer import Scorer as Scorer
from keras_posenc.text.byte_pair_tokenizer import BytePairTokenizer as BytePairTokenizer
from keras_posenc.text.character_tokenizer import ByteTokenizer as ByteTokenizer
from keras_posenc.text.character_tokenizer import CharacterTokenizer as CharacterTokenizer
from keras_posenc.text.prompt import Prompt as Prompt
from keras_posenc.text.sentencepiece_tokenizer import SentencepieceTokenizer as SentencepieceTokenizer
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer as WordpieceTokenizer
from keras_posenc.transformer.specs import Attention as Attention
from keras_posenc.transformer.attention import CrossAttention as CrossAttention
from keras_posenc.transformer.blocks import FeedForward as FeedForward
from keras_posenc.transformer.specs import Norm as Norm
from keras_posenc.transformer.vision_transformer_model import PatchEmbedding as PatchEmbedding
from keras_posenc.transformer.pooling import Pooling1D as Pooling1D
from keras_posenc.transformer.attention import SelfAttention as SelfAttention
from keras_posenc.transformer.transformer import Transformer as Transformer
from keras_posenc.transformer.blocks import TransformerDecoder as TransformerDecoder
from keras_posenc.transformer.blocks import TransformerDecoderBlock as TransformerDecoderBlock
from keras_posenc.transformer.transformer_decoder_model import TransformerDecoderModel as TransformerDecoderModel
from keras_posenc.transformer.blocks import TransformerEncoder as TransformerEncoder
from keras_posenc.transformer.blocks import TransformerEncoderBlock as TransformerEncoderBlock
from keras_posenc.transformer.transformer_encoder_model import TransformerEncoderModel as TransformerEncoderModel
from keras_posenc.transformer.vectors import BinaryQuantization as BinaryQuantization
from keras_posenc.transformer.vectors import Int8Quantization as Int8Quantization
from keras_posenc.transformer.vectors import L2Normalization as L2Normalization
from keras_posenc.transformer.vectors import Truncation as Truncation
from keras_posenc.transformer.vision_transformer_model import VisionTransformerModel as VisionTransformerModel

__version__: str
