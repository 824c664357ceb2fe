"""The model's own outputs for each probe."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes import fitting
from keras_posenc.export.probes.compare import is_finite, is_float, scales_of
from keras_posenc.export.probes.extremes import large_integers
from keras_posenc.export.probes.generate import Probe, Probes, make_probes
from keras_posenc.export.probes.graphs import Call, Graphs
from keras_posenc.export.probes.likelihoods import (
    Rescore,
    rescore_of,
    traced_once,
)
from keras_posenc.export.probes.repeats import (
    check_repeats,
    difference_in_eager_code,
    moved_outputs,
    restored,
)
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.probes.tolerance import TOLERANCE, limits_of
from keras_posenc.export.signatures.lengths import IDS
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

_GENERATED = (
    "These inputs were generated. Give the longest sequence that the model "
    "takes as `max_length`, or real inputs as `samples`"
)


def runner_of(signature: Signature, graphs: Graphs) -> Call:
    """Returns what runs the graph, and an `Oracle` if there is one."""
    oracle = signature.oracle
    if oracle is None:
        return graphs.cached
    run = runner_of(oracle.base, graphs)
    return lambda inputs: oracle.from_base(run(oracle.to_base(inputs)))


@dataclasses.dataclass(frozen=True)
class Reference:
    """The model's outputs, which an exported model must reproduce."""

    signatures: Sequence[Signature]
    tolerance: float = TOLERANCE
    quantization: str | None = None
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # How likely models find a quantized file's choices.
    rescores: Mapping[str, Rescore] = dataclasses.field(default_factory=dict)
    in_engine: bool = False  # likelihoods are measured later, see `Format`
    by_likelihood: Sequence[str] = ()  # signatures that are compared by it
    probes: list[Probe] = dataclasses.field(default_factory=list)
    # Of outputs by signature, not below the model's `output_scales`.
    scales: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    seconds: float = 0.0  # of a processor, that the outputs took
    notes: list[str] = dataclasses.field(default_factory=list)
    rounded: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    eager_differences: list[str] = dataclasses.field(default_factory=list)
    graphs: Mapping[str, Graphs] = dataclasses.field(default_factory=dict)

    def signature_of(self, probe: Probe) -> Signature:
        """Returns the signature that a probe is for."""
        (found,) = (x for x in self.signatures if x.name == probe.signature)
        return found

    def moved(self, probe: Probe) -> list[dict[str, np.ndarray]]:
        """Returns outputs of moved inputs and weights: see `repeats.py`."""
        signature = self.signature_of(probe)
        graphs = self.graphs[probe.signature]
        call = runner_of(signature, graphs)

        def run(inputs: Inputs) -> dict[str, Any]:
            graphs.forget()  # what other weights gave
            return call(inputs)

        return moved_outputs(probe, signature.innermost.model, run)

    @property
    def usual(self) -> list[Probe]:
        """The probes without extreme numbers."""
        return [probe for probe in self.probes if not probe.extremes]


def compute_reference(
    probes: Probes,
    quantization: str | None = None,
    step: Callable[[str], object] = str,
    ahead: Callable[..., object] = lambda *case: None,
) -> Reference:
    """Runs the model itself; the exported model gets the same inputs later.

    Or meanwhile: `ahead` takes a signature's name and inputs that it may get.
    """
    signatures, tolerance = probes.signatures, probes.tolerance
    limits = limits_of(quantization, probes.limits, tolerance)
    tolerance = TOLERANCE if tolerance is None else float(tolerance)

    rescores = {}
    for each in signatures if quantization is not None else ():
        if (rescore := rescore_of(each)) is not None:
            rescores[each.name] = rescore
    models = {id(x.innermost): Graphs(x.innermost, step) for x in signatures}
    graphs = {each.name: models[id(each.innermost)] for each in signatures}
    cases: list[Probe] = []
    notes: list[str] = []
    eager: list[str] = []
    with restored([x.model for x in signatures]):  # a run may change variables
        for each in signatures:
            own = graphs[each.name]
            cases += _cases(each, probes, own, notes, ahead)
            cases += _pairs(each, probes, own, quantization is not None)
        known: set[int] = set()
        # Parts of a large model that have repeated do so in all of it: those
        # first that take the least time.
        for run in sorted(
            models.values(), key=lambda x: x.signature.is_large and x.seconds
        ):
            model = run.signature.model
            parts = {*_parts(model)}
            is_known = run.signature.is_large and parts <= known
            is_known |= id(model) in known
            for case in () if is_known else run.smallest():
                known |= {id(model), *parts}
                check_repeats(run, *case, tolerance)
                if not _is_rounding(run.signature):
                    found = difference_in_eager_code(run, *case, tolerance)
                    eager += filter(None, [found])
        scales = _scales(signatures, cases)
    for model in models.values():
        model.forget()
    by_likelihood = [
        each.name
        for each in signatures
        if probes.in_engine
        or each.name in rescores
        or Offers.of(each.model).drawn_pairs is not None
    ]
    return Reference(
        signatures=signatures,
        tolerance=tolerance,
        quantization=quantization,
        limits=limits,
        rescores=rescores,
        in_engine=probes.in_engine,
        by_likelihood=[] if quantization is None else by_likelihood,
        probes=cases,
        scales=scales,
        seconds=sum(model.seconds for model in models.values()),
        notes=notes,
        eager_differences=eager,
        graphs=graphs,
    )


def _scales(
    signatures: Sequence[Signature], cases: Sequence[Probe]
) -> dict[str, dict[str, float]]:
    """Returns `Reference.scales`, which may run the model."""
    scales = {}
    least_of = functools.cache(lambda method: dict(method()))  # runs the model
    for signature in signatures:
        least = least_of(Offers.of(signature.model).output_scales)
        own, name = signature.own_names, signature.name
        usual = [x for x in cases if x.signature == name and not x.extremes]
        scales[name] = {
            output: max(scale, least.get(own.get(output, output), scale))
            for output, scale in scales_of([x.outputs for x in usual]).items()
        }
    return scales


def _cases(
    signature: Signature,
    probes: Probes,
    graphs: Graphs,
    notes: list[str],
    ahead: Callable[..., object],
) -> Iterator[Probe]:
    run = runner_of(signature, graphs)

    def call(inputs: Inputs) -> dict[str, Any]:
        # What the model then refuses is an error there too, which is not kept;
        # but where it has windows, the file may end its process.
        if not graphs.has_sizes:
            ahead(signature.name, inputs)
        return run(inputs)

    given, most = probes.given[signature.name], probes.max_length
    smallest, longest = fitting.sizes_of(
        signature, most, probes.is_given, graphs, call
    )
    is_limited = longest < most and not signature.innermost.grid_axes
    limits = ["no smaller ones"] * (smallest > 1)
    limits += ["no longer ones"] * is_limited
    takes = functools.partial(fitting.accepts, call)
    refusal, is_generated = "", False
    for probe in make_probes(
        signature, given, longest, takes, smallest, graphs
    ):
        inputs = probe.inputs
        try:
            if probe.is_sample or probe.extremes:
                outputs = call(inputs)
            else:
                inputs, outputs = fitting.run_texts(inputs, call)
        except ValueError as error:
            if probe.is_sample:
                raise
            if probe.is_required and not given:
                raise ValueError(f"{error}\n{_GENERATED}") from error
            refusal = refusal or f". {' '.join(str(error).split())[:300]}"
            continue
        is_generated |= not (probe.is_sample or probe.extremes)
        has_numbers = any(  # which alone are compared
            bool(is_finite(x).any()) if is_float(x) else x.size > 0
            for x in outputs.values()
        )
        if not probe.extremes or probe.is_nan or has_numbers:
            yield dataclasses.replace(probe, inputs=inputs, outputs=outputs)
    if not is_generated:
        notes.append(
            "run only on the samples, without other lengths and batch sizes: "
            f"{signature.name}{refusal}"
        )
    elif limits:
        notes.append(
            f"{signature.name} was run on generated inputs of {smallest} to "
            f"{longest} steps or pixels: the model takes "
            f"{' and '.join(limits)}"
        )
    if not given or signature.oracle is not None:
        return
    integers = [
        name
        for name, spec in signature.specs.items()
        if "int" in spec.dtype and graphs.takes_any_integer(name)
    ]
    for inputs, kinds in large_integers(signature, given[0], integers):
        with contextlib.suppress(ValueError):
            yield Probe(signature.name, inputs, call(inputs), extremes=kinds)


def _parts(model: keras.Model) -> Iterator[int]:
    """Yields the `id` of all that computes, but does not only call others."""
    containers = keras.Model | keras.layers.InputLayer
    for each in layers_within(model):
        is_own = type(each).__module__.startswith("keras.")
        is_loop = type(each).__module__.startswith("keras_posenc.generation.")
        if not (is_loop or (is_own and isinstance(each, containers))):
            yield id(each)


def _is_rounding(signature: Signature) -> bool:
    """Returns whether eager code may well differ, or would take seconds."""
    dtypes = {each.compute_dtype for each in layers_within(signature.model)}
    return (
        Offers.of(signature.model).rescore is not None  # a choice may be a tie
        or bool(dtypes & {"float16", "bfloat16"})
        or signature.is_large
    )


def _pairs(
    signature: Signature, probes: Probes, graphs: Graphs, is_drawn: bool
) -> Iterator[Probe]:
    """Yields texts to measure the likelihoods of: see `Offers.drawn_pairs`."""
    prompts = [
        inputs[IDS]
        for each in probes.signatures
        for inputs in probes.given[each.name]
        if {*inputs} == {IDS}
    ]
    pairs = Offers.of(signature.model).drawn_pairs
    if pairs is None or not (is_drawn or prompts):
        return
    call = runner_of(signature, graphs)
    for inputs, is_own in pairs(prompts, lambda f, *x: traced_once(f)(*x)):
        if is_drawn or not is_own:
            yield Probe(
                signature.name,
                inputs,
                call(inputs),
                is_sample=True,
                is_drawn=is_own,
            )
