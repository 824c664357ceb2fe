"""Packages of language models for LiteRT-LM, for the pipeline."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.litertlm_engine import EngineTest
from keras_posenc.export.formats.litertlm_package import (
    packaged_template,
    write_package,
)
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.pipeline import Step
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.tolerance import TOLERANCE
from keras_posenc.export.regular_files import open_regular
from keras_posenc.export.report import VerificationReport
from keras_posenc.publish import working_folder, writing_to

# The engine has no other default that is greedy.
_GREEDY = {"temperature": 1.0, "top_k": 1, "top_p": 1.0}


@dataclasses.dataclass(kw_only=True)
class LiteRTLM(LiteRT):
    """A package, whose LiteRT file is verified as any other, then the whole."""

    parts: Any  # `EngineParts` of the generator, whose models are `given`
    tokenizer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    texts: Sequence[str] = ()  # further ones to verify with
    in_engine: bool = True

    def write(self, path: Path) -> None:
        """Converts the models, and packs them."""
        with working_folder() as folder:
            file = folder / "model.tflite"
            super().write(file)
            metadata = metadata_of(self.parts, self.tokenizer)
            write_package(
                path, metadata, self.tokenizer, {"prefill_decode": file}
            )

    def run(self, reference: Reference, found: Inspection) -> dict[str, Any]:
        """Returns the outputs of the LiteRT file."""
        (model,) = (x for x in found.sections if x["kind"] == "TFLiteModel")
        with working_folder() as folder:
            path = folder / "model.tflite"
            with writing_to(folder), open_regular(found.path) as file:
                file.seek(model["begin"])
                path.write_bytes(file.read(model["end"] - model["begin"]))
            unpacked = dataclasses.replace(found, path=path, kind="litert")
            return super().run(reference, unpacked)

    def run_further(
        self, report: VerificationReport, reference: Reference, step: Step
    ) -> VerificationReport:
        """Runs the package in the engine."""
        names, start = spelled(self.tokenizer), self.parts.start_id
        test = EngineTest(
            self.parts,
            names,
            stops_of(self.parts, names),
            is_quantized=report.quantization is not None,
            tolerance=TOLERANCE if self.tolerance is None else self.tolerance,
            samples=self.texts,
        )
        engine, cases, self.kept = test.run(report.path, step)
        unmeasured = {*self.parts.models} if test.is_quantized else set()
        known = (x for x in cases if x.likelihoods and x.likelihoods.tokens)
        unmeasured -= {"decode", *(each.signature for each in known)}
        if start is not None:
            how = repr(names[start]) if start in names else f"token {start}"
            report = report.with_notes(
                f"LiteRT-LM puts no {how} before a prompt, as the model's "
                "tokenizer does: an application begins each prompt with it, or "
                "the template of chats"
            )
        missing = [f"{x} (no token to measure)" for x in sorted(unmeasured)]
        report = dataclasses.replace(
            report,
            notes=[*report.notes, engine],
            cases=[*report.cases, *cases],
            unverified=[*report.unverified, *missing],
        )
        report.require_success()
        return report


def spelled(tokenizer: Mapping[str, Any]) -> dict[int, str]:
    """Returns how texts spell special tokens, by their ids."""
    return {
        each["id"]: each["content"]
        for each in tokenizer.get("added_tokens") or []
    }


def stops_of(parts: Any, names: Mapping[int, str]) -> list[str]:
    """Returns how tokens that end a reply are spelled, where this is known."""
    found = [names[each] for each in parts.end_ids if each in names]
    own = parts.special_tokens.get("eos_token")
    return [*dict.fromkeys([*found, *([own] if own else [])])]


def metadata_of(parts: Any, tokenizer: Mapping[str, Any]) -> Any:
    """Returns the message of a package's metadata."""
    from litert_lm_builder.runtime.proto import llm_metadata_pb2

    message = llm_metadata_pb2.LlmMetadata()
    message.llm_model_type.generic_model.SetInParent()
    for each in parts.end_ids:
        message.stop_tokens.add().token_ids.ids.append(each)
    # Without a start token: the engine would put it before each text, also
    # before one that begins with it, as templates of chats do.
    message.max_num_tokens = parts.cache_length
    message.supports_thinking = False
    message.supports_function_calling = False
    options = {**_GREEDY, **(parts.sampling or {})}
    sampler = message.sampler_params
    sampler.type = sampler.TOP_P
    sampler.k = min(options["top_k"] or parts.vocabulary, parts.vocabulary)
    sampler.p = 1.0 if options["top_p"] is None else options["top_p"]
    temperature = options["temperature"]
    sampler.temperature = 1.0 if temperature is None else temperature
    if parts.template is not None:
        message.jinja_prompt_template = packaged_template(
            parts.template,
            parts.special_tokens,
            stops_of(parts, spelled(tokenizer)),
        )
    return message
