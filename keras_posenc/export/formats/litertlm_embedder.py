"""Packages of sentence encoders, for LiteRT-LM's embedding engine.

The engine tokenizes a text by the package's `tokenizer.json`, puts the start
and the end of the metadata around it, looks up each token in the model
`embedder`, and runs the shortest signature of `text_encoder` that all tokens
fit into.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from keras_posenc.checks import as_integer
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litert_convert import convert
from keras_posenc.export.formats.litertlm_package import (
    Section,
    check_metadata,
    metadata_section,
    model_section,
    require_builder,
    section_content,
    tokenizer_section,
    write_package,
)
from keras_posenc.export.formats.litertlm_run import (
    run_in_embedding_engine,
    vectors_of,
)
from keras_posenc.export.graphs.float32 import to_float32
from keras_posenc.export.graphs.keras_int8 import is_quantized
from keras_posenc.export.inspect import Inspection, Tensor
from keras_posenc.export.pipeline import Format, Step
from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.reference import Memory, Reference, runner_of
from keras_posenc.export.probes.samples import split_texts
from keras_posenc.export.probes.tolerance import BY_KERAS
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.resolve import (
    resolve_numeric_signatures,
    resolve_signatures,
)
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.sizes import check_size
from keras_posenc.export.worker_client import (
    Worker,
)
from keras_posenc.publish import working_folder

_MODELS = ("embedder", "text_encoder")
_ENCODER = re.compile(r"encoder_([1-9]\d*)")
_LENGTHS = (64, 128, 256, 512)  # by default, as far as a model takes them
_BATCH = 16  # texts that the model is run on at once
_QUANTIZATIONS = ("float16", "int8")


def check_lengths(lengths: Any, most: int | None) -> list[int]:
    """Returns the lengths of signatures, the shortest first.

    Args:
        lengths: Those given; None for the default.
        most: The most tokens of a text that the model takes; None for any.

    Raises:
        ValueError: They are no integers above 2, or longer than the model's
            texts.
    """
    if lengths is None:
        found = [x for x in _LENGTHS if most is None or x < most]
        if most is not None and most <= _LENGTHS[-1]:
            found.append(most)
        return found
    given = [] if isinstance(lengths, str | int) else [*lengths]
    numbers = [as_integer(each) or 0 for each in given]
    if not numbers or min(numbers) < 3:
        raise ValueError(
            "`lengths` must be a list of integers from 3 on, the numbers of "
            "tokens that the package has a signature for, such as (64, 128). "
            f"Received: lengths={lengths!r}"
        )
    if most is not None and max(numbers) > most:
        raise ValueError(
            f"`lengths` must be at most {most}, as many tokens as the model "
            f"takes of a text. Received: lengths={lengths!r}"
        )
    return sorted({*numbers})


@dataclasses.dataclass(kw_only=True)
class Embedder(Format):
    """A package of a sentence encoder.

    Attributes:
        parts: The model's `EmbedderParts`.
        sizes: The lengths of its signatures.
        mode: Its quantization.
        frame: The sections of the metadata and the tokenizer; of a package to
            verify its own.
        texts: The texts that the engine is run on.
    """

    parts: Any
    sizes: Sequence[int]
    mode: str | None = None
    frame: Sequence[Section] = ()
    texts: Sequence[str] = ()
    writing: ClassVar[str] = "Converting to LiteRT"

    def __post_init__(self) -> None:
        if self.path is not None and self.mode not in (None, *_QUANTIZATIONS):
            raise ValueError(
                "`quantization` of a package of vectors must be 'float16', "
                f"'int8' or None. Received: quantization={self.mode!r}"
            )
        self._samples, others = split_texts(self.samples)
        if others:
            raise ValueError(
                "`samples` of a package must be texts. "
                f"Received: samples={others[0]!r:.60}"
            )
        self.max_length = self.sizes[-1]
        self._whole = self.parts.cut_at(self.max_length)
        self._halves = _halves(
            self.parts.embedder, self.parts.text_encoder, self.sizes
        )
        # For the frozen model, which must know them.
        self.given = {"model": self._whole, **self._halves}

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the texts, and reads the frame of a package to verify."""
        tokenizer = self.parts.tokenizer_json()
        own = _metadata(self.parts, self.sizes)
        self.frame = [metadata_section(own), tokenizer_section(tokenizer)]
        if found is not None:
            if (lengths_of(found), found.quantization) != (
                (self.sizes, self.mode)
            ):
                raise ExportVerificationError(
                    f"'{found.path}' was changed while it was verified. Verify "
                    "it again while no process writes to it"
                )
            self.frame = _read_frame(found, own)
        (whole, *_) = resolve_signatures(self._whole)
        self.signatures = [whole]
        both = [each for half in self._halves for each in self._half(half)]
        self.in_float32 = to_float32([whole, *both], self.frozen)
        by_keras = is_quantized([whole])
        if found is None and by_keras and self.mode is not None:
            raise ValueError(
                "`quantization` must be None for a model that went through "
                f"quantize(). Received: quantization={self.mode!r}"
            )
        if found is None:
            check_size(
                self.signatures,
                "LiteRT",
                "quantization='int8' divides them by 4",
                0.25 if self.mode == "int8" else 1.0,
            )
        self.quantization = BY_KERAS if by_keras else self.mode
        ordinary, unusual = _texts(self.parts, self.sizes)
        # What rounding to 8 bits makes of odd texts says little of a package.
        compared = [*dict.fromkeys(self._samples or ordinary)]
        if by_keras or self.mode is None:
            compared = [*dict.fromkeys([*ordinary, *unusual, *self._samples])]
        self.texts = [*dict.fromkeys([*compared, *ordinary, *unusual])]
        self.samples = _batches(compared)
        self.extra = _probes(whole, self.texts[len(compared) :])

    def _half(self, name: str) -> list[Signature]:
        return resolve_numeric_signatures(self._whole, self._halves[name])

    def write(self, path: Path) -> None:
        """Converts both halves, and packs them."""
        halves = {name: self._half(name) for name in self._halves}
        self._pack(path, halves, self.mode)

    def _pack(
        self,
        path: Path,
        halves: Mapping[str, Sequence[Signature]],
        mode: str | None,
    ) -> None:
        with working_folder() as folder:
            files = []
            for name, signatures in halves.items():
                file = folder / f"{name}.tflite"
                convert(signatures, mode, {}, False, self.frozen, file)
                files.append(model_section(file, name))
            write_package(path, [*self.frame, *files])

    def as_served(self, reference: Reference, found: Inspection) -> Inspection:
        """Compares the ids of texts; returns the file as a model of texts."""
        ids = self.parts.ids(self.texts)
        longest = max(map(len, ids))
        echo = {
            name: resolve_numeric_signatures(self._whole, half)
            for name, half in _halves(*_echo(longest), [longest]).items()
        }
        with working_folder() as folder:
            package = folder / "ids.litertlm"
            self._pack(package, echo, None)
            check_ids(package, self.texts, ids)
        (signature,) = reference.signatures
        sides = {
            "inputs": {
                name: Tensor(tuple(spec.shape), spec.dtype)
                for name, spec in signature.specs.items()
            },
            "outputs": {
                name: Tensor((None, *value.shape[1:]), "float32")
                for name, value in reference.probes[0].outputs.items()
            },
        }
        return dataclasses.replace(found, signatures={signature.name: sides})

    def run(
        self, reference: Reference, found: Inspection, runtime: Worker | None
    ) -> dict[str, Any]:
        """Returns the engine's vectors, as `run_model` does."""
        rows = [_rows(each) for each in reference.probes]
        texts = [*dict.fromkeys(text for each in rows for text in each)]
        response = run_in_embedding_engine(found.path, texts)
        by_text = dict(zip(texts, response["cases"], strict=True))
        cases = [
            vectors_of([by_text[text] for text in own], *probe.outputs)
            for probe, own in zip(reference.probes, rows, strict=True)
        ]
        return {"cases": cases, "load_seconds": response["load_seconds"]}

    def run_further(
        self, report: VerificationReport, reference: Reference, step: Step
    ) -> VerificationReport:
        """Adds what an application has to know."""
        notes = [*_notes(self.parts, self.sizes, reference), *report.notes]
        return dataclasses.replace(
            report, notes=notes, token_ids=len(self.texts)
        )


def lengths_of(found: Inspection) -> list[int]:
    """Returns the lengths of a package's signatures, the shortest first.

    Raises:
        ExportVerificationError: Its models are not those of an embedder.
    """
    sizes = [_ENCODER.fullmatch(name) for name in found.signatures]
    lengths = sorted(int(each[1]) for each in sizes if each is not None)
    names = {"embed", *(f"encoder_{size}" for size in lengths)}
    if not lengths or names != {*found.signatures}:
        raise ExportVerificationError(
            f"'{found.path}' is no package of a text embedder that this "
            "library wrote: its signatures must be embed and encoder_<n>. It "
            f"has: {', '.join(found.signatures) or 'none'}"
        )
    return lengths


def _sections(found: Inspection) -> list[Any]:
    """Returns where the four sections of a package are, in their order.

    Raises:
        ExportVerificationError: It has others.
    """
    named = {
        " ".join([each["kind"], *each["items"].values()]): each
        for each in found.sections
    }
    names = [
        "EmbeddingMetadataProto",
        "HF_Tokenizer_Zlib",
        *(f"TFLiteModel tf_lite_{name}" for name in _MODELS),
    ]
    if {*names} != {*named} or len(found.sections) != len(names):
        raise ExportVerificationError(
            f"'{found.path}' must have the sections {', '.join(names)}. It "
            f"has: {', '.join(sorted(named)) or 'none'}"
        )
    return [named[name] for name in names]


def _read_frame(found: Inspection, own: Any) -> list[Section]:
    """Returns the metadata and the tokenizer of a package."""
    metadata, tokenizer, *_ = _sections(found)
    check_metadata(found.path, metadata, own)
    return [
        Section(each["kind"], section_content(found.path, each))
        for each in (metadata, tokenizer)
    ]


def _metadata(parts: Any, sizes: Sequence[int]) -> Any:
    metadata = require_builder().EmbeddingMetadata()
    metadata.embedding_model_type.generic_model.SetInParent()
    for token, index in (
        (metadata.bos_token, parts.start_id),
        (metadata.eos_token, parts.end_id),
    ):
        if index is not None:
            token.token_ids.ids.append(index)
    metadata.max_input_length = sizes[-1]
    return metadata


def _texts(parts: Any, sizes: Sequence[int]) -> tuple[list[str], list[str]]:
    """Returns ordinary texts, one for each length, and all others."""
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


def _batches(texts: Sequence[str]) -> list[np.ndarray]:
    """Returns texts as the model is run on them."""
    return [
        np.array(texts[begin : begin + _BATCH], "object")
        for begin in range(0, len(texts), _BATCH)
    ]


def _probes(signature: Signature, texts: Sequence[str]) -> Iterator[Probe]:
    """Yields texts whose vectors must be numbers, in a quantized package."""
    run = runner_of(signature, Memory())
    (name,) = signature.specs
    for batch in _batches(texts):
        yield Probe(signature.name, {name: batch}, run({name: batch}))


def _rows(probe: Probe) -> list[str]:
    """Returns the texts of a batch."""
    (texts,) = probe.inputs.values()
    return [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in texts
    ]


def check_ids(
    package: Path, texts: Sequence[str], ids: Sequence[Sequence[int]]
) -> None:
    """Compares the engine's ids of texts with the model's tokenizer's.

    The engine does not tell them. So they are the output of a package with
    the same tokenizer, whose models pass them through: see `_echo`.

    Raises:
        ExportVerificationError: There is another id.
    """
    cases = run_in_embedding_engine(package, texts)["cases"]
    for text, wanted, found in zip(texts, ids, cases, strict=True):
        numbers = np.array(found.get("vector", []))
        got = (numbers[numbers > 0].astype(int) - 1).tolist()
        if got != wanted:
            if "error" in found:
                raise ExportVerificationError(
                    f"LiteRT-LM's engine cannot run the text {text!r:.80}: "
                    f"{found['error']}"
                )
            raise ExportVerificationError(
                f"LiteRT-LM's engine makes the token ids {got[:20]} of "
                f"{text!r:.80}, and the model's tokenizer {wanted[:20]}",
                differs=True,
            )


def _halves(
    embedder: keras.Model, text_encoder: keras.Model, sizes: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Returns the signatures of the two models, as exports take them."""
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


def _echo(length: int) -> tuple[keras.Model, keras.Model]:
    """Returns models whose output are the ids plus 1, and 0 for padding."""
    ids = keras.Input((None,), dtype="int32", name="token")
    embeddings = keras.Input((length, 1), name="embeddings")
    mask = keras.Input((length,), name="input_mask")
    row = keras.ops.cast(ids, "float32") + 1.0
    return (
        keras.Model(ids, keras.ops.expand_dims(row, -1), name="ids"),
        keras.Model(
            [embeddings, mask],
            keras.ops.squeeze(embeddings, -1) * mask,
            name="all_ids",
        ),
    )


def _notes(parts: Any, sizes: Sequence[int], reference: Reference) -> list[str]:
    """Returns what an application has to know, as text."""
    notes = [
        f"texts of more than {sizes[-1]} tokens are an error in the engine, "
        "unless the application chooses TRUNCATE, which cuts them"
    ]
    if parts.max_length != sizes[-1]:
        notes[0] += f". The model itself takes {parts.max_length or 'all'}"
    lengths = [
        np.linalg.norm(value.astype("float64"), axis=-1)
        for probe in reference.probes
        for value in probe.outputs.values()
    ]
    if np.any(np.abs(np.concatenate(lengths) - 1) > 1e-3):
        notes.append(
            "the engine makes vectors of length 1, unless the application says "
            "normalize=False: the model's have other lengths"
        )
    if parts.prompts:
        prompts = ", ".join(f"{k} {v!r}" for k, v in parts.prompts.items())
        notes.append(
            "the application must put the prompts of the checkpoint before "
            f"its texts: {prompts}"
        )
    return notes
