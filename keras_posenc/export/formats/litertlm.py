"""Packages of language models for LiteRT-LM, for the pipeline."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.litertlm_engine import verify_in_engine
from keras_posenc.export.formats.litertlm_package import (
    check_metadata,
    metadata_section,
    model_section,
    plain_tokenizer,
    read_packed_tokenizer,
    read_tokenizer,
    require_builder,
    tokenizer_section,
    unpack_model,
    write_package,
)
from keras_posenc.export.formats.litertlm_template import packaged_template
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.pipeline import Step
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.tolerance import TOLERANCE
from keras_posenc.export.record import (
    make_record,
    remove_record,
    try_to_record,
)
from keras_posenc.export.report import (
    ExportedModel,
    VerificationReport,
)
from keras_posenc.publish import publish_file, staging_in, writing_to

_PREFILL = re.compile(r"prefill_(\d+)")
_GREEDY = {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
MODEL = "prefill_decode"


@dataclasses.dataclass(kw_only=True)
class LiteRTLM(LiteRT):
    """A package: a LiteRT file of `decode` and `prefill_<n>`, and the rest.

    The LiteRT file is written and verified as any other. Then it is packed, and
    the package is verified in the engine.

    Attributes:
        parts: The `EngineParts` of the generator.
        tokenizer: The packed tokenizer, as `tokenizer_section` takes it.
        texts: Further texts to verify with.
    """

    parts: Any
    tokenizer: Mapping[str, Any] | bytes
    texts: Sequence[str] = ()
    in_engine: bool = True
    writing: ClassVar[str] = "Converting to LiteRT"

    def publish(
        self,
        staged: Path,
        found: Inspection,
        reference: Reference | None,
        report: VerificationReport | None,
        step: Step,
    ) -> ExportedModel:
        """Packs the verified file, runs the package, and publishes it."""
        assert self.path is not None
        with staging_in(self.path.parent) as packed:
            step("Packing it with its tokenizer")
            write_package(
                packed,
                [
                    metadata_section(metadata_of(self.parts, self.tokenizer)),
                    tokenizer_section(self.tokenizer),
                    model_section(staged, MODEL),
                ],
            )
            record = None
            if report is not None:
                report = dataclasses.replace(
                    report,
                    path=self.path,
                    kind="litertlm",
                    size_bytes=packed.stat().st_size,
                    notes=[
                        *report.notes,
                        *notes_of(self.parts, self.tokenizer),
                    ],
                )
                report, self.kept = run_package(
                    packed,
                    self.parts,
                    self.tokenizer,
                    report,
                    self.tolerance,
                    self.texts,
                    step=step,
                )
                report.require_success()
                record = make_record(report, packed, self.weights, self.kept)
            publish_file(packed, self.path)
        if report is None:
            remove_record(self.path)
        else:
            report = try_to_record(report, record, self.path)
        return ExportedModel.published(self.path, report)


def run_package(
    path: Path,
    parts: Any,
    tokenizer: Mapping[str, Any] | bytes,
    report: VerificationReport,
    tolerance: float | None,
    texts: Sequence[str] = (),
    *,
    step: Step,
) -> tuple[VerificationReport, list[dict[str, Any]]]:
    """Runs a package in the engine; see `verify_in_engine`.

    Args:
        path: The package.
        parts: The `EngineParts` of its model.
        tokenizer: The packed tokenizer.
        report: The report of its LiteRT file.
        tolerance: That of `verify`.
        texts: Further texts to verify with.
        step: Shows the progress.

    Returns:
        The report, with what the engine did; and the cases that are kept.
    """
    engine, cases, kept = verify_in_engine(
        path,
        parts,
        spelled(tokenizer),
        stops_of(parts, tokenizer),
        is_quantized=report.quantization is not None,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        max_kl=report.max_kl,
        samples=texts,
        step=step,
    )
    report = dataclasses.replace(
        report, engine=engine, cases=[*report.cases, *cases]
    )
    if not cases:
        return report, kept
    measured = {
        each.signature
        for each in cases
        if each.likelihoods is not None and each.likelihoods.tokens
    }
    report = dataclasses.replace(
        report,
        by_likelihood=sorted(parts.models),
        unverified=[
            *report.unverified,
            *(
                f"{name} (no token to measure)"
                for name in sorted({*parts.models} - {"decode"} - measured)
            ),
        ],
    )
    return report, kept


def spelled(tokenizer: Mapping[str, Any] | bytes) -> dict[int, str]:
    """Returns how texts spell special tokens, by their ids."""
    if isinstance(tokenizer, bytes):
        return {}
    return {
        each["id"]: each["content"]
        for each in tokenizer.get("added_tokens") or []
    }


def stops_of(parts: Any, tokenizer: Mapping[str, Any] | bytes) -> list[str]:
    """Returns how tokens that end a reply are spelled, where this is known."""
    names = spelled(tokenizer)
    found = [names[each] for each in parts.end_ids if each in names]
    own = parts.special_tokens.get("eos_token")
    return [*dict.fromkeys([*found, *([own] if own else [])])]


def notes_of(parts: Any, tokenizer: Mapping[str, Any] | bytes) -> list[str]:
    """Returns what an application must know, as text."""
    found = []
    if parts.start_id is not None:
        name = spelled(tokenizer).get(parts.start_id)
        how = f"{name!r}" if name else f"the token of id {parts.start_id}"
        found.append(
            f"LiteRT-LM puts no {how} before a prompt, as the model's "
            "tokenizer does: an application begins each prompt with it, or "
            "the template of chats"
        )
    if parts.template is None:
        found.append(
            "without a template of chats, the engine's Session continues "
            "texts, and its Conversation cannot be used"
        )
    return found


def metadata_of(parts: Any, tokenizer: Mapping[str, Any] | bytes) -> Any:
    """Returns the message of a package's metadata."""
    message = require_builder().LlmMetadata()
    message.llm_model_type.generic_model.SetInParent()
    for each in parts.end_ids:
        message.stop_tokens.add().token_ids.ids.append(each)
    # Without a start token: the engine would put it before each text, also
    # before one that begins with it, as templates of chats do.
    message.max_num_tokens = parts.cache_length
    message.supports_thinking = False
    message.supports_function_calling = False
    # The engine has no other default that is greedy.
    options = {**_GREEDY, **(parts.sampling or {})}
    sampler = message.sampler_params
    sampler.type = sampler.TOP_P
    sampler.k = min(options["top_k"] or parts.vocabulary, parts.vocabulary)
    if parts.sampling is None:
        sampler.k = 1
    sampler.p = 1.0 if options["top_p"] is None else options["top_p"]
    temperature = options["temperature"]
    sampler.temperature = 1.0 if temperature is None else temperature
    if parts.template is not None:
        message.jinja_prompt_template = packaged_template(
            parts.template, parts.special_tokens, stops_of(parts, tokenizer)
        )
    return message


def tokenizer_for(parts: Any, given: Path | None) -> Any:
    """Returns the tokenizer to pack.

    Args:
        parts: The `EngineParts`.
        given: Its file or folder; None writes the model's own.

    Raises:
        ValueError: The model's own cannot be written, or there is none.
    """
    if given is None:
        return plain_tokenizer(parts.tokenizer_json(), parts.vocabulary)
    found, _ = read_tokenizer(given, parts.vocabulary)
    return found


def lengths_of(
    signatures: Mapping[str, Any], path: Path
) -> tuple[list[int], int]:
    """Returns `prefill_lengths` and `cache_length` of a package.

    Raises:
        ExportVerificationError: Its models are not those of a language model.
    """
    sizes = [
        int(found[1])
        for name in signatures
        if (found := _PREFILL.fullmatch(name))
    ]
    decode = signatures.get("decode", {}).get("inputs", {})
    cache = decode.get("kv_cache_k_0")
    shape: Sequence[int | None] = (cache and cache.shape) or ()
    length = shape[2] if len(shape) == 4 else None
    if not sizes or length is None:
        raise ExportVerificationError(
            f"'{path}' is no package of a language model that this library "
            "wrote: it has no signatures decode and prefill_<n> with caches. "
            f"It has: {', '.join(signatures) or 'none'}"
        )
    return sorted(sizes), length


def unpacked(
    found: Inspection, parts: Any, folder: Path
) -> tuple[Path, Mapping[str, Any] | bytes]:
    """Writes a package's LiteRT file to a folder; returns it and the tokenizer.

    Args:
        found: The package, inspected.
        parts: The `EngineParts` of its model.
        folder: An empty folder.

    Raises:
        ExportVerificationError: It lacks a part, has another one, or its
            metadata is not the model's.
    """
    by_kind: dict[str, dict[str, Any]] = {}
    for each in found.sections:
        if each["kind"] in by_kind:
            raise ExportVerificationError(
                f"'{found.path}' has more than one section {each['kind']}: "
                "only packages of one language model are verified"
            )
        by_kind[each["kind"]] = each
    needed = {"LlmMetadataProto", "TFLiteModel"}
    tokenizers = by_kind.keys() & {"HF_Tokenizer_Zlib", "SP_Tokenizer"}
    if by_kind.keys() - tokenizers != needed or len(tokenizers) != 1:
        raise ExportVerificationError(
            f"'{found.path}' must have a model, its metadata and a tokenizer. "
            f"It has the sections {', '.join(sorted(by_kind)) or 'of no kind'}"
        )
    (kind,) = tokenizers

    path = folder / "model.tflite"
    with writing_to(folder):
        unpack_model(found.path, by_kind["TFLiteModel"], path)
    tokenizer = read_packed_tokenizer(found.path, by_kind[kind])
    own = metadata_of(parts, tokenizer)
    check_metadata(found.path, by_kind["LlmMetadataProto"], own)
    return path, tokenizer
