"""The format SavedModel, for the pipeline."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras

from keras_posenc.export.formats.savedmodel_card import CARD_FILE, model_card
from keras_posenc.export.formats.savedmodel_serving import (
    check_warmup,
    resolve_batching,
    warmup_requests,
    write_batching,
    write_warmup,
)
from keras_posenc.export.frozen import once
from keras_posenc.export.graphs.writing import write_saved_model
from keras_posenc.export.inspect import Inspection, size_of
from keras_posenc.export.pipeline import Format, Step
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import Inputs, fit_samples
from keras_posenc.export.record import make_record, write_record
from keras_posenc.export.report import ExportedModel, VerificationReport
from keras_posenc.export.signatures.resolve import resolve_serving_signatures
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.export.versions import publish_version
from keras_posenc.export.worker_client import keep_spare
from keras_posenc.publish import writing_to
from keras_posenc_worker import run


@dataclasses.dataclass(kw_only=True)
class SavedModel(Format):
    """The folder of a version, for TensorFlow Serving and for Python."""

    version: int | None = None
    keep: int | None = None
    labels: Any = None
    warmup: Any = None
    batching: Any = None
    requests: Sequence[tuple[str, Inputs]] = ()
    writing: ClassVar[str] = "Writing the SavedModel"

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signatures for a server, and its warm-up and batching."""
        self.signatures = resolve_serving_signatures(
            model, self.given, self.labels
        )
        if self.verify:
            keep_spare(run.__name__, "saved_model")
        if found is None:
            check_warmup(self.warmup, self.verify)
            if self.verify:
                given = None if self.warmup is True else self.warmup or None
                self.fitted = fit_samples(self.signatures, given, "warmup")
            self.batching = resolve_batching(self.batching, self.signatures)
            return
        if self.given is None:
            # It may have been exported with the caller's signatures instead.
            first, *others = self.signatures
            self.signatures = [first]
            for each in others:
                sides = found.signatures.get(each.name, {"inputs": {}})
                if {*sides["inputs"]} == {*each.specs}:
                    self.signatures.append(each)

    def write(self, path: Path) -> None:
        """Traces the model, and lets TensorFlow write its graph and weights."""
        write_saved_model(self.signatures, path, has_serve=True)

    def complete(
        self, path: Path, reference: Reference | None, found: Inspection
    ) -> Inspection:
        """Adds warm-up requests and the parameters of batching."""
        if reference is not None:
            self.requests = warmup_requests(
                self.warmup, self.fitted, reference, self.batching
            )
        write_warmup(self.requests, path, self.name)
        if self.batching is not None:
            write_batching(self.batching, path)
        return dataclasses.replace(found, size_bytes=size_of(path))

    @property
    def name(self) -> str:
        """The model's name on a server."""
        assert self.path is not None
        return self.path.resolve().name

    def different_weights(self, response: Mapping[str, Any]) -> list[str]:
        """Returns the variables whose values the file does not store."""
        stored = {*response.get("weights", [])}
        functions = [trace(each) for each in self.signatures]
        return [
            each.name.partition(":")[0]
            for each in once(x for f in functions for x in f.variables)
            if self.frozen.digest(each.ref()) not in stored
        ]

    def publish(
        self,
        staged: Path,
        found: Inspection,
        reference: Reference | None,
        report: VerificationReport | None,
        step: Step,
    ) -> ExportedModel:
        """Publishes the version, with its model card and its record."""
        assert self.path is not None
        card = model_card(self, found, reference, report)
        with writing_to(self.path):
            (staged / CARD_FILE).write_text(card, encoding="utf-8")
        if report is not None:
            record = make_record(report, staged, self.weights, self.kept)
            write_record(record, staged)
            report = dataclasses.replace(report, size_bytes=size_of(staged))
        path = publish_version(staged, self.path, self.version, self.keep, step)
        if report is not None:
            report = dataclasses.replace(report, path=path)
        return ExportedModel(path, report)
