"""The model's own outputs for each probe."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes import fitting, rounding
from keras_posenc.export.probes.compare import (
    Retrace,
    difference,
    kinds_of,
    retrace_of,
    scales_of,
)
from keras_posenc.export.probes.extremes import large_integers
from keras_posenc.export.probes.generate import (
    Probe,
    Probes,
    has_many_weights,
    make_probes,
)
from keras_posenc.export.probes.graphs import Call, Graphs
from keras_posenc.export.probes.likelihoods import (
    Rescore,
    in_graph,
    rescore_of,
    scores_targets,
)
from keras_posenc.export.probes.repeats import (
    check_repeats,
    difference_in_eager_code,
    restored,
)
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.probes.tolerance import (
    TOLERANCE,
    limits_of,
)
from keras_posenc.export.signatures.lengths import IDS, LENGTHS
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

PADDING_MATTERS = (
    "padding changes the outputs: do not let a server batch examples of "
    "different lengths"
)
_PADDING = 4  # ids that are added to see that


def runner_of(signature: Signature, graphs: Graphs) -> Call:
    """Returns a function that runs the model's graph, once for the same inputs.

    What a signature adds to its model is computed in NumPy; see `Oracle`.
    """
    oracle = signature.oracle
    if oracle is None:
        return graphs.cached
    run = runner_of(oracle.base, graphs)
    return lambda inputs: oracle.from_base(run(oracle.to_base(inputs)))


@dataclasses.dataclass(frozen=True)
class Reference:
    """The model's outputs, which an exported model must reproduce.

    Attributes:
        signatures: The signatures that were run.
        tolerance: The largest difference allowed in a file of float32.
        quantization: The exported model's mode of quantization, or None.
        limits: The limits of a quantized file, by name: see `limits_of`.
        retraces: How models of choices are run again, by the names of their
            signatures.
        rescores: How likely models find a quantized file's choices, by the
            names of their signatures.
        in_engine: Whether likelihoods are measured later: see `Format`.
        probes: The batches of inputs, with the model's outputs.
        scales: For each signature the size of each output's numbers, not below
            the model's `output_scales`.
        seconds: Processor time that the outputs took.
        notes: What the test inputs could not cover, as text.
        eager_differences: Where the models' eager code gives other outputs
            than their graphs, as text.
        graphs: Those of the models, by the names of the signatures.
    """

    signatures: Sequence[Signature]
    tolerance: float = TOLERANCE
    quantization: str | None = None
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    retraces: Mapping[str, Retrace] = dataclasses.field(default_factory=dict)
    rescores: Mapping[str, Rescore] = dataclasses.field(default_factory=dict)
    in_engine: bool = False
    probes: list[Probe] = dataclasses.field(default_factory=list)
    scales: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    seconds: float = 0.0
    notes: list[str] = dataclasses.field(default_factory=list)
    eager_differences: list[str] = dataclasses.field(default_factory=list)
    graphs: Mapping[str, Graphs] = dataclasses.field(default_factory=dict)

    def rounding_of(self, probe: Probe) -> dict[str, np.ndarray]:
        """Returns how far rounding may move outputs: see `rounding.py`."""
        (signature,) = (
            each for each in self.signatures if each.name == probe.signature
        )
        graphs = self.graphs[probe.signature]
        call = runner_of(signature, graphs)

        def run(inputs: Inputs) -> dict[str, Any]:
            graphs.forget()  # what other weights gave
            return call(inputs)

        return rounding.rounding_of(probe, signature.innermost.model, run)

    @functools.cached_property
    def by_likelihood(self) -> set[str]:
        """Signatures of a quantized file whose likelihoods are compared."""
        if self.quantization is None:
            return set()
        return {
            each.name
            for each in self.signatures
            if self.in_engine
            or each.name in self.rescores
            or scores_targets(each)
        }

    def target_tokens(self, probe: Probe) -> np.ndarray | None:
        """Returns `Offers.target_tokens` of a probe; None without any."""
        for signature in self.signatures:
            tokens = Offers.of(signature.model).target_tokens
            if signature.name == probe.signature and tokens is not None:
                return np.asarray(tokens(probe.inputs))
        return None

    @property
    def usual(self) -> list[Probe]:
        """The probes without extreme numbers.

        Only these define the size and the variation of outputs.
        """
        return [probe for probe in self.probes if not probe.extremes]

    @functools.cached_property
    def kinds(self) -> dict[str, dict[str, str]]:
        """For each signature of a quantized file what its outputs hold."""
        if self.quantization is None:
            return {}
        return {
            each.name: kinds_of(
                each,
                [x.outputs for x in self.held if x.signature == each.name],
            )
            for each in self.signatures
            if each.name not in self.by_likelihood
        }

    @property
    def held(self) -> list[Probe]:
        """The probes that a quantized file is compared on: samples, if any.

        Of each signature; not of those whose likelihoods are compared.
        """
        sampled = {each.signature for each in self.probes if each.is_sample}
        return [
            each
            for each in self.usual
            if each.is_sample or each.signature not in sampled
            if each.signature not in self.by_likelihood
        ]

    @property
    def constant_outputs(self) -> list[str]:
        """Outputs that hardly differ between examples.

        Those in the model's own `constant_outputs` are left out.
        """
        rows: dict[tuple[str, str], list[np.ndarray]] = {}
        for probe in self.usual if self.quantization is None else self.held:
            for name, value in probe.outputs.items():
                if "float" in value.dtype.name and value.ndim > 1:
                    numbers = value.astype("float64")
                    rows.setdefault((probe.signature, name), []).append(
                        numbers.reshape(
                            math.prod(value.shape[:-1]), value.shape[-1]
                        )
                    )
        models = {each.name: each.model for each in self.signatures}
        return [
            f"{signature}/{name}"
            for (signature, name), values in rows.items()
            if name not in Offers.of(models[signature]).constant_outputs
            and _spread(values, self.scales[signature][name])
            < 10 * self.tolerance
        ]


def _spread(values: Sequence[np.ndarray], scale: float) -> float:
    """Returns the largest difference between examples; infinity if unknown."""
    if len({value.shape[1] for value in values}) > 1 or not values[0].shape[1]:
        return math.inf
    rows = np.concatenate(values)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < 3:
        return math.inf
    sizes = np.maximum(np.max(np.abs(rows), axis=0), scale)
    return float(np.max(np.ptp(rows, axis=0) / sizes))


def compute_reference(
    probes: Probes,
    quantization: str | None = None,
    functions: Mapping[str, Any] | None = None,
) -> Reference:
    """Runs the model itself; the exported model gets the same inputs later."""
    signatures, tolerance = probes.signatures, probes.tolerance
    limits = limits_of(quantization, probes.limits, tolerance)
    tolerance = TOLERANCE if tolerance is None else float(tolerance)

    def by_name(make: Callable[[Signature], Any]) -> dict[str, Any]:
        found = {each.name: make(each) for each in signatures}
        return {name: x for name, x in found.items() if x is not None}

    retraces = by_name(retrace_of)
    traced = {id(x): (functions or {}).get(x.name) for x in signatures}
    models: dict[int, Graphs] = {}
    for each in signatures:
        base = each.innermost
        models.setdefault(id(base), Graphs(base, traced.get(id(base))))
    graphs = {each.name: models[id(each.innermost)] for each in signatures}
    cases: list[Probe] = []
    notes: list[str] = []
    eager: list[str] = []
    with restored([x.model for x in signatures]):  # a run may change variables
        for each in signatures:
            own = graphs[each.name]
            cases += _cases(each, probes, own, notes)
            cases += _pairs(each, probes, own, quantization is not None)
        for run, inputs in _smallest(signatures, cases, graphs):
            case = inputs, run.cached(inputs)
            check_repeats(run, *case, tolerance)
            if not _is_rounding(run.signature):
                found = difference_in_eager_code(run, *case, tolerance)
                eager += filter(None, [found])
        seconds = 0.0
        scales = _scales(signatures, cases)
        if any(
            _is_moved(x, cases, scales[x.name], graphs[x.name], tolerance)
            for x in signatures
        ):
            notes.append(PADDING_MATTERS)
    for model in models.values():
        seconds += model.seconds
        model.forget()
    return Reference(
        signatures,
        tolerance,
        quantization,
        limits,
        retraces,
        {} if quantization is None else by_name(rescore_of),
        probes.in_engine,
        cases,
        scales,
        seconds,
        notes,
        eager,
        graphs,
    )


def _is_moved(
    signature: Signature,
    cases: Sequence[Probe],
    scales: Mapping[str, float],
    graphs: Graphs,
    tolerance: float,
) -> bool:
    """Returns whether padding changes the outputs of a model of lengths.

    It is tried on its shortest example, which padding changes most.
    """
    specs = signature.specs
    if not {IDS, LENGTHS} <= {*specs} or specs[IDS].shape[1] is not None:
        return False
    alone = [
        each
        for each in cases
        if each.signature == signature.name
        and not each.extremes
        and len(each.inputs[IDS]) == 1
        and each.inputs[LENGTHS][0] > 0
    ]
    if not alone:
        return False
    probe = min(alone, key=lambda each: each.inputs[IDS].size)
    ids = np.pad(probe.inputs[IDS], ((0, 0), (0, _PADDING)))
    try:
        run = runner_of(signature, graphs)
        found = {**run({**probe.inputs, IDS: ids})}
    except ValueError:  # too long for the model
        return False
    real = int(probe.inputs[LENGTHS][0])
    wanted = {
        name: value
        for name, value in probe.outputs.items()
        if "float" in value.dtype.name
    }
    for name, value in wanted.items():
        if value.shape != found[name].shape:  # a vector for each token
            wanted[name], found[name] = value[:, :real], found[name][:, :real]
    apart = difference(wanted, found, scales)
    return apart.largest_difference > max(tolerance, TOLERANCE)


def _scales(
    signatures: Sequence[Signature], cases: Sequence[Probe]
) -> dict[str, dict[str, float]]:
    """Returns `Reference.scales`, which may run the model."""
    scales = {}
    known: dict[int, dict[str, float]] = {}  # each runs the model
    for signature in signatures:
        own_scales = Offers.of(signature.model).output_scales
        if id(own_scales) not in known:
            known[id(own_scales)] = dict(own_scales())
        least, own = known[id(own_scales)], signature.own_names
        found = scales_of(
            [
                case.outputs
                for case in cases
                if case.signature == signature.name and not case.extremes
            ]
        )
        scales[signature.name] = {
            name: max(scale, least.get(own.get(name, name), scale))
            for name, scale in found.items()
        }
    return scales


def _cases(
    signature: Signature,
    probes: Probes,
    graphs: Graphs,
    notes: list[str],
) -> Iterator[Probe]:
    """Yields a signature's probes, with the model's outputs."""
    call = runner_of(signature, graphs)
    given, most = probes.given[signature.name], probes.max_length
    smallest, longest = fitting.sizes_of(
        signature, most, probes.is_given, graphs, call
    )
    is_limited = longest < most and not signature.innermost.grid_axes
    limits = ["no smaller ones"] * (smallest > 1) + [
        "no longer ones"
    ] * is_limited
    if limits:
        notes.append(
            f"{signature.name} was run on inputs of {smallest} to {longest} "
            f"steps along an axis: the model takes {' and '.join(limits)}"
        )
    takes = functools.partial(fitting.accepts, call)
    is_noted = False
    for probe in make_probes(signature, given, longest, takes, smallest):
        inputs = probe.inputs
        try:
            if probe.is_sample or probe.extremes:
                outputs = call(inputs)
            else:
                inputs, outputs = fitting.run_texts(inputs, call)
        except ValueError as refusal:
            if probe.extremes:
                continue
            if probe.is_sample:
                raise
            if probe.is_required and not given:
                advice = fitting.advice(signature, longest, graphs, call)
                raise ValueError(f"{refusal}\n{advice}") from refusal
            if probe.is_required and not is_noted:
                is_noted = True
                reason = " ".join(f"{refusal}".split())[:300]
                notes.append(
                    "the model refuses generated inputs, so that the samples "
                    f"alone show how it computes: {reason}"
                )
            continue
        if not probe.extremes or probe.is_nan or _is_finite(outputs):
            yield dataclasses.replace(probe, inputs=inputs, outputs=outputs)
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


def _is_rounding(signature: Signature) -> bool:
    """Returns whether eager code may well differ, or would take seconds."""
    dtypes = {each.compute_dtype for each in layers_within(signature.model)}
    return (
        retrace_of(signature) is not None  # a choice may be a tie
        or bool(dtypes & {"float16", "bfloat16"})
        or has_many_weights(signature)
    )


def _is_finite(outputs: Mapping[str, Any]) -> bool:
    """Returns whether some number is finite: only such are compared."""
    return any(
        bool(np.isfinite(value.astype("float64")).any())
        if "float" in value.dtype.name
        else value.size > 0
        for value in outputs.values()
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
    for inputs, is_own in pairs(prompts, in_graph):
        if is_drawn or not is_own:
            yield Probe(
                signature.name,
                inputs,
                call(inputs),
                is_sample=True,
                is_drawn=is_own,
            )


def _smallest(
    signatures: Sequence[Signature],
    cases: Sequence[Probe],
    graphs: Mapping[str, Graphs],
) -> list[tuple[Graphs, Inputs]]:
    """Returns each model's graphs, with the smallest inputs that it took."""
    by_name = {each.name: each for each in signatures}
    found: dict[int, tuple[Graphs, Inputs]] = {}
    for case in sorted(cases, key=lambda x: x.size or math.inf):
        if case.extremes:
            continue
        inputs, signature = case.inputs, by_name[case.signature]
        while signature.oracle is not None:
            inputs = signature.oracle.to_base(inputs)
            signature = signature.oracle.base
        model = graphs[case.signature]
        found.setdefault(id(model), (model, inputs))
    return [*found.values()]
