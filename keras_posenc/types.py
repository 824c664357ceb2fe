"""Classes whose objects functions of the package return.

    from keras_posenc import types

Nobody has to construct one: they are named here for type annotations and
`isinstance`.
"""

from keras_posenc.export.quantize import QuantizedModel
from keras_posenc.export.replay import ReplayReport
from keras_posenc.export.report import ExportedModel, VerificationReport
from keras_posenc.scoring.files import ScoringReport

__all__ = [
    "ExportedModel",
    "QuantizedModel",
    "ReplayReport",
    "ScoringReport",
    "VerificationReport",
]
