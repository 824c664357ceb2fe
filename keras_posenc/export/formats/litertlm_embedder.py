"""Packages of sentence encoders, for LiteRT-LM's embedding engine.

The engine tokenizes a text by the package's `tokenizer.json`, puts the start
and the end of the metadata around it, looks up each token in the model
`embedder`, and runs the shortest signature of `text_encoder` that all tokens
fit into.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.checks import as_integer
from keras_posenc.export.check import check
from keras_posenc.export.errors import ExportVerificationError, check_verify
from keras_posenc.export.formats.litert_convert import convert
from keras_posenc.export.formats.litertlm_package import (
    Section,
    metadata_section,
    model_section,
    require_builder,
    tokenizer_section,
    write_package,
)
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.graphs.float32 import to_float32
from keras_posenc.export.graphs.keras_int8 import is_quantized
from keras_posenc.export.inspect import Inspection, Tensor, inspect_safe
from keras_posenc.export.probes.generate import Probe, Probes
from keras_posenc.export.probes.reference import (
    Memory,
    Reference,
    compute_reference,
    runner_of,
)
from keras_posenc.export.probes.samples import split_texts
from keras_posenc.export.probes.tolerance import BY_KERAS
from keras_posenc.export.publish import (
    publish_file,
    staging_in,
    writing_to,
)
from keras_posenc.export.record import (
    make_record,
    record_path,
    try_to_record,
)
from keras_posenc.export.report import ExportedModel, VerificationReport
from keras_posenc.export.signatures.resolve import (
    resolve_numeric_signatures,
    resolve_signatures,
)
from keras_posenc.export.signatures.signature import DEFAULT, Signature
from keras_posenc.export.signatures.sizes import check_size
from keras_posenc.export.worker_client import (
    MEMORY,
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc.progress import progress
from keras_posenc_worker import run_embedding_engine

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


def export_embedder(
    model: keras.Model,
    path: Path,
    parts: Any,
    *,
    lengths: Any,
    quantization: str | None,
    verify: bool,
    samples: Any,
    tolerance: float | None,
    verbose: int,
) -> ExportedModel:
    """Exports a sentence encoder; see `export_litertlm`.

    Args:
        model: The model.
        path: The package.
        parts: The model's `EmbedderParts`.
        lengths: As for `export_litertlm`, and all that follow too.
        quantization: None, "float16" or "int8".
        verify: Whether to verify before publishing.
        samples: Texts, or None.
        tolerance: Largest difference allowed, or None.
        verbose: Whether to show progress.
    """
    check_verify(verify, samples)
    if quantization not in (None, *_QUANTIZATIONS):
        raise ValueError(
            "`quantization` of a package of vectors must be 'float16', 'int8' "
            f"or None. Received: quantization={quantization!r}"
        )
    given, others = split_texts(samples)
    if others:
        raise ValueError(
            "`samples` of a package must be texts. "
            f"Received: samples={others[0]!r:.60}"
        )
    sizes = check_lengths(lengths, parts.max_length)
    halves = _halves(parts.embedder, parts.text_encoder, sizes)
    ordinary, unusual = _texts(parts, sizes)
    # What rounding to 8 bits makes of odd texts says little of a package.
    compared = [*dict.fromkeys(given or ordinary)]
    if quantization is None:
        compared = [*dict.fromkeys([*ordinary, *unusual, *given])]
    texts = [*dict.fromkeys([*compared, *ordinary, *unusual])]
    ids = parts.ids(texts)
    longest = max(map(len, ids))
    echo = _halves(*_echo(longest), [longest])
    whole = parts.cut_at(sizes[-1])
    tokenizer = tokenizer_section(parts.tokenizer_json())
    report = None
    with FrozenModel(model, whole, halves, echo) as frozen:
        (signature, *_) = resolve_signatures(whole)
        both = [
            each
            for half in halves.values()
            for each in resolve_numeric_signatures(model, half)
        ]
        in_float32 = to_float32([signature, *both], frozen)
        by_keras = is_quantized([signature])
        if by_keras and quantization is not None:
            raise ValueError(
                "`quantization` must be None for a model that went through "
                f"quantize(). Received: quantization={quantization!r}"
            )
        check_size(
            [signature],
            "LiteRT",
            "quantization='int8' divides them by 4",
            0.25 if quantization == "int8" else 1.0,
        )
        with progress(verbose) as step, staging_in(path.parent) as folder:
            with writing_to(path.parent):
                folder.mkdir()
            reference = None
            if verify:
                step("Computing reference outputs")
                reference = compute_reference(
                    Probes.fit(
                        [signature],
                        _batches(compared),
                        sizes[-1],
                        tolerance=tolerance,
                        extra=_probes(signature, texts[len(compared) :]),
                    ),
                    in_float32,
                    BY_KERAS if by_keras else quantization,
                )
            sections = [_metadata(parts, sizes), tokenizer]

            def pack(name: str, models: Any, mode: str | None) -> Path:
                package = folder / f"{name}.litertlm"  # no other ending
                files = []
                for half, given in models.items():
                    file = folder / f"{half}.tflite"
                    numeric = resolve_numeric_signatures(model, given)
                    with writing_to(path.parent):
                        convert(numeric, mode, {}, False, frozen, file)
                    files.append(model_section(file, half))
                write_package(package, [*sections, *files])
                return package

            step("Converting to LiteRT")
            staged = pack("model", halves, quantization)
            found = inspect_safe(staged, ())
            if reference is not None:
                step("Running it in LiteRT-LM's engine")
                check_ids(pack("ids", echo, None), texts, ids)
                report = _verified(reference, found)
                notes = [*_notes(parts, sizes, reference), *report.notes]
                report = dataclasses.replace(
                    report, notes=notes, token_ids=len(texts)
                )
            record = None if report is None else make_record(report, staged)
            publish_file(staged, path)
    if report is None:  # what an earlier file left is not this one's
        record_path(path).unlink(missing_ok=True)
    else:
        report = try_to_record(report, record, path)
    return ExportedModel.published(path, report)


def _metadata(parts: Any, sizes: Sequence[int]) -> Section:
    metadata = require_builder().EmbeddingMetadata()
    metadata.embedding_model_type.generic_model.SetInParent()
    for token, index in (
        (metadata.bos_token, parts.start_id),
        (metadata.eos_token, parts.end_id),
    ):
        if index is not None:
            token.token_ids.ids.append(index)
    metadata.max_input_length = sizes[-1]
    return metadata_section(metadata)


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


def _verified(reference: Reference, found: Inspection) -> VerificationReport:
    """Compares the engine's vectors with the model's.

    Raises:
        ExportVerificationError: The engine does not load the package, or its
            vectors are not the model's.
    """
    (signature,) = reference.signatures
    ((name, spec),) = signature.specs.items()
    rows = [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for probe in reference.probes
        for text in probe.inputs[name]
    ]
    texts = [*dict.fromkeys(rows)]
    response = _run(found.path, texts)
    by_text = dict(zip(texts, response["cases"], strict=True))
    cases = []
    left = iter(rows)
    for probe in reference.probes:
        own = [by_text[next(left)] for _ in probe.inputs[name]]
        errors = [each["error"] for each in own if "error" in each]
        case: dict[str, Any] = {"outputs": {}}
        if errors:
            case["error"] = errors[0]
        else:
            (output,) = probe.outputs
            vectors = [each["vector"] for each in own]
            case["outputs"][output] = np.array(vectors, "float32")
            times = [each["milliseconds"] for each in own]
            case["milliseconds"] = float(np.median(times))
        cases.append(case)
    outputs = {
        each: Tensor((None, *value.shape[1:]), "float32")
        for each, value in reference.probes[0].outputs.items()
    }
    inputs = {name: Tensor(tuple(spec.shape), spec.dtype)}
    as_model = {DEFAULT: {"inputs": inputs, "outputs": outputs}}
    report = check(
        reference,
        dataclasses.replace(found, signatures=as_model),
        {"cases": cases, "load_seconds": response["load_seconds"]},
    )
    report.require_success()
    return report


def check_ids(
    package: Path, texts: Sequence[str], ids: Sequence[Sequence[int]]
) -> None:
    """Compares the engine's ids of texts with the model's tokenizer's.

    The engine does not tell them. So they are the output of a package with
    the same tokenizer, whose models pass them through: see `_echo`.

    Raises:
        ExportVerificationError: There is another id.
    """
    cases = _run(package, texts)["cases"]
    for text, wanted, found in zip(texts, ids, cases, strict=True):
        numbers = np.array(found.get("vector", []))
        got = (numbers[numbers > 0].astype(int) - 1).tolist()
        if got != wanted:
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


def _run(package: Path, texts: Sequence[str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = run_in_worker(
            run_embedding_engine.__name__,
            str(package.resolve()),
            list(texts),
            limits=Limits(
                memory=2 * MEMORY + 4 * package.stat().st_size,
                seconds=300,
                timeout=600,
            ),
            prepare=[],
        )
    except WorkerError as error:
        raise ExportVerificationError(
            f"LiteRT-LM's engine {error} while it ran '{package}'"
        ) from error
    return found


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
