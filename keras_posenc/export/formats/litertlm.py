"""Packages of language models for LiteRT-LM, for the pipeline."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.litertlm_engine import EngineTest
from keras_posenc.export.formats.litertlm_package import (
    check_metadata,
    metadata_section,
    model_section,
    plain_tokenizer,
    read_packed_tokenizer,
    read_tokenizer,
    require_builder,
    section_content,
    sections_of,
    tokenizer_section,
    write_package,
)
from keras_posenc.export.formats.litertlm_template import packaged_template
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.pipeline import Step
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.tolerance import TOLERANCE
from keras_posenc.export.report import VerificationReport
from keras_posenc.publish import working_folder, writing_to

_PREFILL = re.compile(r"prefill_(\d+)")
_GREEDY = {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
_MODEL = "prefill_decode"
_SECTIONS = ("LlmMetadataProto", "Tokenizer", f"TFLiteModel tf_lite_{_MODEL}")


@dataclasses.dataclass(kw_only=True)
class LiteRTLM(LiteRT):
    """A package: a LiteRT file of `decode` and `prefill_<n>`, and the rest.

    The LiteRT file in it is verified as any other. Then the package is run in
    the engine.

    Attributes:
        parts: The `EngineParts` of the generator, whose models are `given`.
        tokenizer: The packed tokenizer, as `tokenizer_section` takes it; of a
            package to verify its own.
        texts: Further texts to verify with.
    """

    parts: Any
    tokenizer: Mapping[str, Any] | bytes = b""
    texts: Sequence[str] = ()
    in_engine: bool = True

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signatures, and reads the frame of a package to verify."""
        if found is None:
            super().resolve(model, None)
            return
        metadata, tokenizer, _ = sections_of(
            found.path, found.sections, *_SECTIONS
        )
        self.tokenizer = read_packed_tokenizer(found.path, tokenizer)
        own = metadata_of(self.parts, self.tokenizer)
        check_metadata(found.path, metadata, own)
        with _unpacked(found) as file:
            super().resolve(model, file)

    def write(self, path: Path) -> None:
        """Converts the models, and packs them."""
        with working_folder() as folder:
            file = folder / "model.tflite"
            super().write(file)
            metadata = metadata_of(self.parts, self.tokenizer)
            write_package(
                path,
                [
                    metadata_section(metadata),
                    tokenizer_section(self.tokenizer),
                    model_section(file, _MODEL),
                ],
            )

    def run(self, reference: Reference, found: Inspection) -> dict[str, Any]:
        """Returns the outputs of the LiteRT file."""
        with _unpacked(found) as file:
            return super().run(reference, file)

    def run_further(
        self, report: VerificationReport, reference: Reference, step: Step
    ) -> VerificationReport:
        """Runs the package in the engine."""
        test = EngineTest(
            self.parts,
            spelled(self.tokenizer),
            stops_of(self.parts, self.tokenizer),
            is_quantized=report.quantization is not None,
            tolerance=TOLERANCE if self.tolerance is None else self.tolerance,
            samples=self.texts,
        )
        engine, cases, self.kept = test.run(report.path, step)
        measured = {
            each.signature
            for each in cases
            if each.likelihoods is not None and each.likelihoods.tokens
        }
        unmeasured = {*self.parts.models} - {"decode"} - measured
        report = dataclasses.replace(
            report,
            cases=[*report.cases, *cases],
            notes=[*report.notes, engine, *self._notes()],
            unverified=[
                *report.unverified,
                *(
                    f"{name} (no token to measure)"
                    for name in sorted(unmeasured)
                    if report.quantization is not None
                ),
            ],
        )
        if self.path is not None:
            report.require_success()
        return report

    def _notes(self) -> Iterator[str]:
        """Yields what an application must know, as text."""
        start = self.parts.start_id
        if start is not None:
            name = spelled(self.tokenizer).get(start)
            how = f"{name!r}" if name else f"the token of id {start}"
            yield (
                f"LiteRT-LM puts no {how} before a prompt, as the model's "
                "tokenizer does: an application begins each prompt with it, or "
                "the template of chats"
            )
        if self.parts.template is None:
            yield (
                "without a template of chats, the engine's Session continues "
                "texts, and its Conversation cannot be used"
            )


@contextlib.contextmanager
def _unpacked(found: Inspection) -> Iterator[Inspection]:
    """Yields the LiteRT file in a package as a file of its own."""
    *_, model = sections_of(found.path, found.sections, *_SECTIONS)
    with working_folder() as folder:
        path = folder / "model.tflite"
        with writing_to(folder):
            path.write_bytes(section_content(found.path, model))
        yield dataclasses.replace(found, path=path, kind="litert")


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
    return read_tokenizer(given, parts.vocabulary)


def lengths_of(found: Inspection) -> tuple[list[int], int]:
    """Returns `prefill_lengths` and `cache_length` of a package.

    Raises:
        ExportVerificationError: Its models are not those of a language model.
    """
    sizes = [
        int(each[1])
        for name in found.signatures
        if (each := _PREFILL.fullmatch(name))
    ]
    decode = found.signatures.get("decode", {}).get("inputs", {})
    cache = decode.get("kv_cache_k_0")
    shape: Sequence[int | None] = (cache and cache.shape) or ()
    length = shape[2] if len(shape) == 4 else None
    if not sizes or length is None:
        raise ExportVerificationError(
            f"'{found.path}' is no package of a language model that this "
            "library wrote: it has no signatures decode and prefill_<n> with "
            f"caches. It has: {', '.join(found.signatures) or 'none'}"
        )
    return sorted(sizes), length
