"""Packages of sentence encoders, for LiteRT-LM's embedding engine.

The engine tokenizes a text, looks up each token in the model `embedder`, and
runs the shortest signature of `text_encoder` that all tokens fit into.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from keras_posenc.checks import as_integer
from keras_posenc.export import units
from keras_posenc.export.formats.litert_convert import convert
from keras_posenc.export.formats.litertlm_package import write_package
from keras_posenc.export.formats.litertlm_run import vectors
from keras_posenc.export.graphs.weights import check_size, to_float32
from keras_posenc.export.inspect import Inspection, Tensor
from keras_posenc.export.pipeline import Format, Step
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.resolve import (
    resolve_numeric_signatures,
    resolve_signatures,
)
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.publish import working_folder

_LENGTHS = (64, 128, 256, 512)  # by default, as far as a model takes them
_BATCH = 16  # texts that the model is run on at once
_QUANTIZATIONS = ("float16", "int8")


def check_lengths(lengths: Any, most: int | None) -> list[int]:
    """Returns the lengths of signatures, the shortest first."""
    if lengths is None:
        found = [x for x in _LENGTHS if most is None or x < most]
        if most is not None and most <= _LENGTHS[-1]:
            found.append(most)
        return found
    given = [] if isinstance(lengths, str | int) else [*lengths]
    numbers = [as_integer(each) or 0 for each in given]
    if not numbers or min(numbers) < 3 or max(numbers) > (most or max(numbers)):
        raise ValueError(
            "`lengths` must be a list of integers from 3 on, such as (64, 128)"
            + f", and at most {most}, as many as the model takes" * bool(most)
            + f". Received: lengths={lengths!r}"
        )
    return sorted({*numbers})


@dataclasses.dataclass(kw_only=True)
class Embedder(Format):
    """A package of a sentence encoder."""

    parts: Any  # `EmbedderParts`
    sizes: Sequence[int]  # the lengths of its signatures
    mode: str | None = None
    texts: Sequence[str] = ()  # the caller's
    writing: ClassVar[str] = "Converting to LiteRT"
    computes_first: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.mode not in (None, *_QUANTIZATIONS):
            raise ValueError(
                "`quantization` of a package of vectors must be 'float16', "
                f"'int8' or None. Received: quantization={self.mode!r}"
            )
        self.max_length = self.sizes[-1]
        self._whole = self.parts.cut_at(self.max_length)
        self._halves = _halves(
            self.parts.embedder, self.parts.text_encoder, self.sizes
        )
        # For the frozen model, which must know them.
        self.given = {"model": self._whole, **self._halves}

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signatures and the texts."""
        self.signatures = resolve_signatures(self._whole)[:1]
        halves = map(self._signatures, self._halves.values())
        both = [*itertools.chain(self.signatures, *halves)]
        self.in_float32 = to_float32(both, self.frozen)
        check_size(
            self.signatures,
            "LiteRT",
            "`quantization='int8'` divides them by 4",
            0.25 if self.mode == "int8" else 1.0,
        )
        self.quantization = self.mode
        ordinary, unusual = _texts(self.parts, self.sizes)
        compared = [*ordinary, *unusual, *self.texts]
        # What rounding to 8 bits makes of odd texts says little of a package.
        if self.mode is not None:
            compared = [*self.texts] or ordinary
        compared = [*dict.fromkeys(compared)]
        self.samples = [
            np.array(compared[begin : begin + _BATCH], object)
            for begin in range(0, len(compared), _BATCH)
        ]

    def _signatures(self, half: Mapping[str, Any]) -> list[Signature]:
        return resolve_numeric_signatures(self._whole, half)

    def write(self, path: Path) -> None:
        """Converts both halves, and packs them."""
        with working_folder() as folder:
            files = {name: folder / f"{name}.tflite" for name in self._halves}
            for name, half in self._halves.items():
                convert(self._signatures(half), self.mode, files[name])
            metadata = _metadata(self.parts, self.sizes)
            write_package(path, metadata, self.parts.tokenizer_json(), files)

    def as_served(self, reference: Reference, found: Inspection) -> Inspection:
        """Returns the file as a model of texts, as the engine runs it."""
        (signature,) = reference.signatures
        sides = {
            "inputs": dict.fromkeys(signature.specs, Tensor(None, "")),
            "outputs": dict.fromkeys(
                reference.probes[0].outputs, Tensor(None, "")
            ),
        }
        return dataclasses.replace(found, signatures={signature.name: sides})

    def run(self, reference: Reference, found: Inspection) -> dict[str, Any]:
        """Returns the engine's vectors, as `run_model` does."""
        batches = [
            (name, texts)
            for probe in reference.probes
            for name in probe.outputs
            for texts in probe.inputs.values()
        ]
        return vectors(found.path, batches)

    def run_further(
        self, report: VerificationReport, reference: Reference, step: Step
    ) -> VerificationReport:
        """Adds the prompts that an application puts before its texts."""
        if found := [f"{k} {v!r}" for k, v in self.parts.prompts.items()]:
            report = report.with_notes(
                "the application must put the prompts of the checkpoint before "
                f"its texts: {', '.join(found)}"
            )
        texts = units.count(sum(map(len, self.samples)), "text")
        text = f"LiteRT-LM's engine gave the vectors of {texts}"
        return dataclasses.replace(report, checks=[*report.checks, text])


def _metadata(parts: Any, sizes: Sequence[int]) -> Any:
    from litert_lm_builder.runtime.proto import embedding_metadata_pb2

    metadata = embedding_metadata_pb2.EmbeddingMetadata()
    metadata.embedding_model_type.generic_model.SetInParent()
    if parts.start_id is not None:
        metadata.bos_token.token_ids.ids.append(parts.start_id)
    if parts.end_id is not None:
        metadata.eos_token.token_ids.ids.append(parts.end_id)
    metadata.max_input_length = sizes[-1]
    return metadata


def _texts(parts: Any, sizes: Sequence[int]) -> tuple[list[str], list[str]]:
    ordinary, unusual = parts.texts()
    if parts.start_id is None and parts.end_id is None:
        # The engine takes no text without tokens.
        found = zip(unusual, parts.ids(unusual), strict=True)
        unusual = [text for text, ids in found if ids]
    words = "one two three four five six seven eight nine ten "
    (once, twice) = map(len, parts.ids([words, 2 * words]))
    each = max(twice - once, 1)
    counts = [*(size // each - 1 for size in sizes), sizes[-1] // each + 2]
    return [*ordinary, *(words * max(1, n) for n in counts)], unusual


def _halves(
    embedder: keras.Model, text_encoder: keras.Model, sizes: Sequence[int]
) -> dict[str, dict[str, Any]]:
    width = text_encoder.inputs[0].shape[-1]
    return {
        "embedder": {"embed": (embedder, {"token": (1, 1)})},
        "text_encoder": {
            f"encoder_{size}": (
                text_encoder,
                {"embeddings": (1, size, width), "input_mask": (1, size)},
            )
            for size in sizes
        },
    }
