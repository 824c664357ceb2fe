"""The model's own outputs for each probe."""

import contextlib
import dataclasses
import functools
import hashlib
import math
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.compare import (
    Difference,
    Retrace,
    difference,
    retrace_of,
    scales_of,
)
from keras_posenc.export.probes.generate import (
    LONGEST,
    Probe,
    Probes,
    has_many_weights,
    large_integers,
    make_probes,
    side_of,
)
from keras_posenc.export.probes.graphs import Call, Graphs
from keras_posenc.export.probes.graphs import call as _called
from keras_posenc.export.probes.likelihoods import (
    Rescore,
    in_graph,
    rescore_of,
    scores_targets,
)
from keras_posenc.export.probes.quality import kinds_of
from keras_posenc.export.probes.samples import Inputs, describe
from keras_posenc.export.probes.tolerance import (
    BY_KERAS,
    TOLERANCE,
    limits_of,
)
from keras_posenc.export.signatures.lengths import IDS, LENGTHS
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within


class Memory:
    """Cache of models' outputs, for signatures that run one model.

    Args:
        functions: Graph functions of signatures, by the ids of these.

    Attributes:
        seconds: Processor time of all outputs, cached ones included.
    """

    def __init__(self, functions: Mapping[int, Any] | None = None) -> None:
        self.seconds = 0.0
        self._functions = functions or {}
        self._graphs: dict[Any, Graphs] = {}
        self._known: dict[Any, tuple[dict[str, Any], float]] = {}

    def graphs(self, signature: Signature) -> Graphs:
        """Returns the graphs of the model that a signature runs."""
        signature = signature.innermost
        traced = self._functions.get(id(signature))
        model = _what_runs(signature)
        if model not in self._graphs:
            self._graphs[model] = Graphs(signature, traced)
        return self._graphs[model]

    def run(self, signature: Signature, inputs: Inputs) -> dict[str, Any]:
        """Returns a model's outputs; runs it once for the same inputs."""
        call = self.graphs(signature)
        key = id(call), hashlib.sha256(pickle.dumps(inputs)).digest()
        if key not in self._known:
            began = time.process_time()
            outputs = call(inputs)
            self._known[key] = outputs, time.process_time() - began
        outputs, seconds = self._known[key]
        self.seconds += seconds
        return outputs

    def apart(self) -> "Memory":
        """Returns an empty cache for the same models."""
        other = Memory()
        other._graphs = self._graphs
        return other


def _what_runs(signature: Signature) -> tuple[Any, ...]:
    """Returns what is equal for signatures that run one model unchanged."""
    if signature != dataclasses.replace(
        signature, oracle=None, cut_at=None, strings=None, add=dict
    ):
        return (id(signature),)
    specs = [(name, x.shape, x.dtype) for name, x in signature.specs.items()]
    names = *specs, *signature.own_names.items()
    return id(signature.model), signature.call, *names


def runner_of(signature: Signature, memory: Memory) -> Call:
    """Returns a function that runs the model's graph.

    What a signature adds to its model is computed in NumPy; see `Oracle`.
    """
    oracle = signature.oracle
    if oracle is not None:
        run = runner_of(oracle.base, memory)
        return lambda inputs: oracle.from_base(run(oracle.to_base(inputs)))
    return functools.partial(memory.run, signature)


@dataclasses.dataclass
class Reference:
    """The model's outputs, which an exported model must reproduce.

    Attributes:
        signatures: The signatures that were run.
        tolerance: The largest difference allowed in a file of float32.
        in_float32: Whether a model of mixed precision was run in float32.
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
        skipped: Batches, as text, that the model itself rejects.
        seconds: Processor time that the outputs took.
        padding_matters: Whether zeros after the ids change their outputs.
        notes: What the test inputs could not cover, as text.
        eager_differences: Where the model's eager code gives other outputs
            than its graph, as text.
        memory: What runs the models once more, where rounding is measured.
    """

    signatures: Sequence[Signature]
    tolerance: float = TOLERANCE
    in_float32: bool = False
    quantization: str | None = None
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    retraces: Mapping[str, Retrace] = dataclasses.field(default_factory=dict)
    rescores: Mapping[str, Rescore] = dataclasses.field(default_factory=dict)
    in_engine: bool = False
    probes: list[Probe] = dataclasses.field(default_factory=list)
    scales: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    skipped: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    padding_matters: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)
    eager_differences: list[str] = dataclasses.field(default_factory=list)
    memory: Memory = dataclasses.field(default_factory=Memory)

    def rounding_of(self, probe: Probe) -> dict[str, np.ndarray]:
        """Returns how far rounding may move outputs, by their names.

        Of each number of a vector, in each example; none of integers, and 0 of
        what is not finite. Of extreme numbers each example is taken as a whole:
        infinity where it has another integer or text, or is no longer finite.
        """
        (signature,) = (
            each for each in self.signatures if each.name == probe.signature
        )
        step, count = _MOVED, len(probe.extremes)
        if count:
            sizes = [value.shape[1:-1] for value in probe.inputs.values()]
            step = max(step, max(map(math.prod, sizes)) * _ROUNDING)
        try:
            with restored(self.signatures):
                outputs, *others = _moved_outputs(
                    signature, probe.inputs, self.memory, step
                )
        except ValueError:  # the model refuses moved inputs
            return {}
        return {
            name: _ALLOWED
            * functools.reduce(
                np.maximum,
                [_movement_of(value, x[name], count) for x in others],
            )
            for name, value in outputs.items()
            if (count or "float" in value.dtype.name)
            and all(x[name].shape == value.shape for x in others)
        }

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
        """For each signature of a quantized file what its outputs hold.

        Read it once all probes are there.
        """
        if self.quantization is None:
            return {}
        return {
            signature.name: kinds_of(
                signature,
                [
                    probe.outputs
                    for probe in self.held
                    if probe.signature == signature.name
                ],
            )
            for signature in self.signatures
            if signature.name not in self.by_likelihood
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
        known = {
            f"{signature.name}/{name}"
            for signature in self.signatures
            for name in Offers.of(signature.model).constant_outputs
        }
        return [
            name
            for name, most in self._spreads()
            if most < 10 * self.tolerance and name not in known
        ]

    def _spreads(self) -> Iterator[tuple[str, float]]:
        """Yields each output and the largest difference between examples."""
        rows: dict[tuple[str, str], list[np.ndarray]] = {}
        for probe in self.usual if self.quantization is None else self.held:
            for name, value in probe.outputs.items():
                if (
                    "float" in value.dtype.name
                    and value.ndim > 1
                    and value.shape[-1]
                ):
                    rows.setdefault((probe.signature, name), []).append(
                        value.astype("float64").reshape(-1, value.shape[-1])
                    )
        for (signature, name), values in rows.items():
            if len({value.shape[1] for value in values}) > 1:
                continue
            all_rows = np.concatenate(values)
            all_rows = all_rows[np.isfinite(all_rows).all(axis=1)]
            if len(all_rows) > 2:
                sizes = np.max(np.abs(all_rows), axis=0)
                spreads = np.ptp(all_rows, axis=0) / np.maximum(
                    sizes, self.scales[signature][name]
                )
                yield f"{signature}/{name}", float(np.max(spreads, initial=0))


def compute_reference(
    probes: Probes,
    in_float32: bool = False,
    quantization: str | None = None,
    functions: Mapping[str, Any] | None = None,
) -> Reference:
    """Runs the model itself; the exported model gets the same inputs later.

    Args:
        probes: The test inputs.
        in_float32: Whether the model is in float32 instead of its own mixed
            precision.
        quantization: The exported model's mode of quantization, or None.
        functions: Graph functions of signatures by name, as far as they have
            been traced and read the model's variables.

    Raises:
        ValueError: A limit that such a file does not have, or inputs that the
            model itself rejects.
        ExportVerificationError: The model's outputs change from run to run.
    """
    signatures = probes.signatures

    def by_name(make: Callable[[Signature], Any]) -> dict[str, Any]:
        found = {each.name: make(each) for each in signatures}
        return {name: x for name, x in found.items() if x is not None}

    reference = Reference(
        signatures,
        TOLERANCE if probes.tolerance is None else float(probes.tolerance),
        in_float32,
        quantization,
        limits_of(quantization, probes.limits, probes.tolerance),
        by_name(retrace_of),
        {} if quantization is None else by_name(rescore_of),
        probes.in_engine,
    )
    memory = Memory(
        {
            id(each): functions[each.name]
            for each in signatures
            if functions and each.name in functions
        }
    )
    with restored(signatures):  # a run may change variables
        for signature in signatures:
            _run(signature, probes, reference, memory)
            if scores_targets(signature):
                _run_pairs(signature, probes, reference, memory)
        check_repeatable(
            signatures, reference.probes, reference.tolerance, memory
        )
        reference.eager_differences.extend(_in_eager_code(reference, memory))
        began = time.process_time()
        reference.probes.extend(probes.extra)
        reference.seconds = memory.seconds + time.process_time() - began
        reference.scales = _scales(reference)
        reference.padding_matters = any(
            _padding_matters(signature, reference, memory)
            for signature in signatures
        )
    reference.memory = memory.apart()
    return reference


def _scales(reference: Reference) -> dict[str, dict[str, float]]:
    """Returns `Reference.scales`, which may run the model."""
    scales = {}
    known: dict[int, dict[str, float]] = {}  # each runs the model
    for signature in reference.signatures:
        own_scales = Offers.of(signature.model).output_scales
        if id(own_scales) not in known:
            known[id(own_scales)] = dict(own_scales.items())
        least = known[id(own_scales)]
        found = scales_of(
            [
                probe.outputs
                for probe in reference.usual
                if probe.signature == signature.name
            ]
        )
        own = signature.own_names
        scales[signature.name] = {
            name: max(scale, least.get(own.get(name, name), scale))
            for name, scale in found.items()
        }
    return scales


def _run(
    signature: Signature, probes: Probes, reference: Reference, memory: Memory
) -> None:
    call = runner_of(signature, memory)
    takes = functools.partial(_accepts, call)
    given, is_noted = probes.given[signature.name], False
    smallest, longest = _sizes(signature, probes, reference, memory)
    for probe in make_probes(signature, given, longest, takes, smallest):
        if probe.is_nan:
            with contextlib.suppress(ValueError):
                outputs = call(probe.inputs)
                reference.probes.append(
                    dataclasses.replace(probe, outputs=outputs)
                )
            continue
        if probe.extremes:
            extreme = _with_extremes(probe, call)
            if extreme is not None:
                reference.probes.append(extreme)
            continue
        try:
            probe, outputs = _run_texts(probe, call)
        except ValueError as refusal:
            if probe.is_sample:
                raise
            if probe.is_required and not given:
                raise ValueError(
                    f"{refusal}\n{_advice(signature, longest, memory)}"
                ) from refusal
            if probe.is_required and not is_noted:
                is_noted = True
                reference.notes.append(
                    "the model refuses generated inputs, so that the samples "
                    f"alone show how it computes: {_first_line(refusal)}"
                )
            reference.skipped.append(f"{signature.name}, {probe}")
        else:
            reference.probes.append(dataclasses.replace(probe, outputs=outputs))
    if not given or signature.oracle is not None:
        return
    graphs = memory.graphs(signature)
    integers = [
        name
        for name, spec in signature.specs.items()
        if "int" in spec.dtype and graphs.takes_any_integer(name)
    ]
    for probe in large_integers(signature, given[0], integers):
        with contextlib.suppress(ValueError):
            outputs = call(probe.inputs)
            reference.probes.append(dataclasses.replace(probe, outputs=outputs))


def _accepts(call: Call, inputs: Inputs) -> bool:
    try:
        call(inputs)
    except ValueError:
        return False
    return True


def _sizes(
    signature: Signature, probes: Probes, reference: Reference, memory: Memory
) -> tuple[int, int]:
    """Returns the smallest and the largest size of test inputs.

    It is the size of each dynamic axis except the batch. Of a length that was
    not given, it is the largest that the model takes. Of images it is at first
    `side_of`: some models leave no pixels of such, then it is twice the first
    double of it that they take; others take whole patches of 14 pixels, then it
    is the first smaller one.
    """
    most, base = probes.max_length, signature.innermost
    if all(None not in spec.shape[1:] for spec in base.specs.values()):
        return 1, most
    takes = _taking(signature, most, memory)
    longest = most
    if not probes.is_given:
        is_seen = memory.graphs(signature).has_sizes
        found = _largest_taken(base, most, takes, is_seen)
        longest = found or side_of(base, most)
    smallest = 1
    if memory.graphs(signature).has_sizes and takes(longest):
        refused = 0
        while not takes(smallest):
            refused, smallest = smallest, min(2 * smallest, longest)
        while smallest - refused > 1:
            middle = (smallest + refused) // 2
            if takes(middle):
                smallest = middle
            else:
                refused = middle
    limits = []
    if smallest > 1:
        limits.append("no smaller ones")
    if longest < most and not base.grid_axes:
        limits.append("no longer ones")
    if limits:
        reference.notes.append(
            f"{signature.name} was run on inputs of {smallest} to {longest} "
            f"steps along an axis: the model takes {' and '.join(limits)}"
        )
    return smallest, longest


def _largest_taken(
    signature: Signature, most: int, takes: Callable[[int], bool], is_seen: bool
) -> int | None:
    """Returns the largest size of test inputs that the model takes, or None.

    Args:
        signature: The signature.
        most: The largest size to try first.
        takes: Whether the model takes a size.
        is_seen: Whether `takes` does not run the model.
    """
    side = side_of(signature, most)
    if takes(side):
        return side
    if signature.grid_axes:
        larger = side
        while larger < most:
            larger = min(2 * larger, most)
            if takes(larger):
                return min(2 * larger, most)
        return next(filter(takes, range(side - 1, side // 2, -1)), None)
    taken, refused = side // 2, side
    while taken and not takes(taken):
        taken, refused = taken // 2, taken
    while taken and refused - taken > 1:
        middle = (taken + refused) // 2
        if takes(middle):
            taken = middle
        else:
            refused = middle
    # Sounds are longer than any text. Only graphs tell that without a run.
    longer = [side << k for k in range(1, 8)] if is_seen else []
    return taken or next(filter(takes, longer), None)


def _taking(
    signature: Signature, most: int, memory: Memory
) -> Callable[[int], bool]:
    """Returns a function that tells whether a model takes inputs of a size.

    If its graphs show that, the model is not run. Tensors without numbers, as
    of images that are smaller than what is cut off, show that a size is too
    small, unless the largest size has them too.
    """
    base, graphs = signature.innermost, memory.graphs(signature)
    call = runner_of(signature, memory)

    @functools.cache
    def empty(size: int) -> float:
        try:
            return graphs.empty_tensors(base.shapes(1, size))
        except ValueError:
            return math.inf

    def fits(size: int) -> bool:
        found = empty(size)
        return math.isfinite(found) and (not found or found <= empty(most))

    @functools.cache
    def runs(size: int) -> bool:
        try:
            first = next(
                probe
                for probe in make_probes(
                    signature, [], size, functools.partial(_accepts, call)
                )
                if probe.is_required
            )
        except (StopIteration, ValueError):
            return True  # only samples can be its inputs
        try:
            _run_texts(first, call)
        except ValueError:
            return False
        return True

    return fits if graphs.has_sizes else runs


def _advice(signature: Signature, longest: int, memory: Memory) -> str:
    """Returns what to do if a model refuses a test input, as text."""
    base = signature.innermost
    if any(None in spec.shape[1:] for spec in base.specs.values()):
        takes = _taking(signature, longest, memory)
        is_seen = memory.graphs(signature).has_sizes
        taken = _largest_taken(base, longest, takes, is_seen)
        if taken is not None and taken != longest:
            return (
                f"The longest test input has {longest} steps, and the model "
                f"takes {taken}: give `max_length={taken}` (--max-length "
                f"{taken})"
            )
        larger = 2 * longest
        while taken is None and larger <= LONGEST and not takes(larger):
            larger *= 2
        if taken is None and larger <= LONGEST:
            return (
                f"The model takes no inputs of {longest} steps: give "
                f"`max_length={larger}` (--max-length {larger})"
            )
    return (
        "These inputs were generated. If the model takes only some values, "
        "give real inputs as `samples` (--samples)"
    )


def _first_line(error: object) -> str:
    """Returns an error on one line."""
    return " ".join(f"{error}".split())[:300]


def _run_texts(
    probe: Probe, call: Callable[[Inputs], Any]
) -> tuple[Probe, Any]:
    """Runs a model on inputs; invented texts are cut to what it takes.

    Only the model's layers know how many tokens a text has, and how many of
    them have positions. A graph gives NaN for those beyond.

    Raises:
        ValueError: The model refuses the inputs, with empty texts too.
    """
    refusal: ValueError | None = None
    first: tuple[Probe, Any] | None = None
    tried: Probe | None = probe
    while tried is not None:
        try:
            outputs = call(tried.inputs)
        except ValueError as error:
            refusal = refusal or error
        else:
            if not _is_too_long(tried, outputs):
                return tried, outputs
            first = first or (tried, outputs)
        tried = tried.shorter
    if first is not None:
        return first
    assert refusal is not None
    raise refusal


def _is_too_long(probe: Probe, outputs: Mapping[str, Any]) -> bool:
    """Returns whether an output of the longest text is NaN."""
    row = probe.longest_text
    return row is not None and any(
        bool(np.isnan(value[row].astype("float64")).any())
        for value in outputs.values()
        if "float" in value.dtype.name and len(value.shape) and len(value) > row
    )


def _run_pairs(
    signature: Signature, probes: Probes, reference: Reference, memory: Memory
) -> None:
    """Adds texts to measure the likelihoods of: see `Offers.drawn_pairs`.

    The model samples some only for a quantized file. Any other file gives the
    same log-likelihoods as the model.
    """
    prompts = [
        inputs[IDS]
        for name, samples in probes.given.items()
        if name in {each.name for each in probes.signatures}
        for inputs in samples
        if {*inputs} == {IDS}
    ]
    if reference.quantization is None and not prompts:
        return
    pairs = Offers.of(signature.model).drawn_pairs
    assert pairs is not None
    call = runner_of(signature, memory)
    for inputs, is_drawn in pairs(prompts, in_graph):
        if is_drawn and reference.quantization is None:
            continue
        reference.probes.append(
            Probe(
                signature.name,
                inputs,
                call(inputs),
                is_sample=True,
                is_drawn=is_drawn,
            )
        )


_PADDING = 8  # zeros added to see whether they change outputs
_SHORT = 32  # ids of examples that are padded besides the shortest


def _padding_matters(
    signature: Signature, reference: Reference, memory: Memory
) -> bool:
    """Returns whether further padding changes outputs of a model of lengths."""
    if (
        not {IDS, LENGTHS} <= {*signature.specs}
        or signature.specs[IDS].shape[1]
    ):
        return False
    call = runner_of(signature, memory)
    alone = [
        probe
        for probe in reference.usual
        if probe.signature == signature.name and len(probe.inputs[IDS]) == 1
    ]
    scales = reference.scales[signature.name]
    # The same padding changes short examples most.
    alone = sorted(alone, key=lambda probe: probe.inputs[IDS].size)[:3]
    alone = [x for x in alone if x is alone[0] or x.inputs[IDS].size <= _SHORT]
    # All at once; one by one if other inputs differ in shape, or the longest is
    # too long for the model.
    for probes in [alone, *([probe] for probe in alone)]:
        if not probes:
            break
        width = max(each.inputs[IDS].shape[1] for each in probes) + _PADDING
        try:
            together = call(_in_one_batch(probes, width))
        except ValueError:
            continue
        for index, probe in enumerate(probes):
            rows = {
                name: output[index : index + 1]
                for name, output in together.items()
                if output.shape[:1] == (len(probes),)
            }
            if _is_moved(probe, rows, width, scales, reference.tolerance):
                return True
        if probes is alone:
            break
    return False


def _is_moved(
    probe: Probe,
    padded: Mapping[str, np.ndarray],
    width: int,
    scales: Mapping[str, float],
    tolerance: float,
) -> bool:
    """Whether an example has other outputs when its ids are padded to a width.

    Outputs that are no batch of one are left out.
    """
    length = probe.inputs[IDS].shape[1]
    for name, output in probe.outputs.items():
        if (
            "float" not in output.dtype.name
            or output.shape[:1] != (1,)
            or name not in padded
        ):
            continue
        other = padded[name]
        # Of outputs for each token, window or pair of tokens, only those of
        # real tokens count.
        real = int(np.clip(probe.inputs[LENGTHS][0], 0, length))
        for axis in range(1, output.ndim):
            if other.shape[axis] == output.shape[axis] + width - length:
                end = max(output.shape[axis] - (length - real), 0)
                output = np.take(output, range(end), axis)
                other = np.take(other, range(end), axis)
        found = difference({name: output}, {name: other}, scales)
        if found.largest_difference > 10 * tolerance:
            return True
    return False


def _in_one_batch(probes: Sequence[Probe], width: int) -> Inputs:
    """The examples of several probes, with zeros after the ids up to a width.

    Raises:
        ValueError: Other inputs differ in shape.
    """
    padded = [
        {
            **probe.inputs,
            IDS: np.pad(
                probe.inputs[IDS],
                [(0, 0), (0, width - probe.inputs[IDS].shape[1])],
            ),
        }
        for probe in probes
    ]
    return {
        name: np.concatenate([inputs[name] for inputs in padded])
        for name in padded[0]
    }


_REMEDY = (
    "An exported model must give the same outputs for the same inputs. Build "
    "recurrent layers with stateful=False, draw random numbers and change "
    "variables only if `training` is true, or make the state or the noise an "
    "input"
)

# Added to a variable to see whether outputs depend on it; 1 in 8 bits.
_FAR = 2**20 + 1


@contextlib.contextmanager
def restored(signatures: Sequence[Signature]) -> Iterator[None]:
    """Restores variables after the models have been run.

    Some of Keras's augmentation layers count draws that they do not use, and a
    file holds the values from before.
    """
    variables = list(
        {
            id(variable): variable
            for signature in signatures
            for variable in _variables(signature.model)
        }.values()
    )
    before = _values(variables)
    try:
        yield
    finally:
        for variable, old, new in zip(
            variables, before, _values(variables), strict=True
        ):
            if not _same(old, new):
                variable.assign(old)


def check_repeatable(
    signatures: Sequence[Signature],
    probes: Sequence[Probe],
    tolerance: float,
    memory: Memory,
) -> None:
    """Runs each model again, on the smallest of its probes.

    The outputs of a model that counts its calls, keeps a state or draws random
    numbers change, and its file would be blamed for that.

    Args:
        signatures: The models' signatures.
        probes: The probes that they were run with.
        tolerance: The largest difference allowed.
        memory: The cache that has run the models.

    Raises:
        ExportVerificationError: Outputs differ, or a variable changed that they
            depend on.
    """
    by_name = {each.name: each for each in signatures}
    smallest: dict[int, tuple[Signature, Inputs]] = {}
    for probe in sorted(probes, key=_size):
        if probe.is_nan:
            continue
        inputs, signature = probe.inputs, by_name[probe.signature]
        while signature.oracle is not None:
            inputs = signature.oracle.to_base(inputs)
            signature = signature.oracle.base
        smallest.setdefault(id(signature), (signature, inputs))
    # Several threads may add in another order, so even with a tolerance of 0
    # two runs of the model may differ by rounding.
    tolerance = max(tolerance, TOLERANCE)
    layers = {key: _layers(each) for key, (each, _) in smallest.items()}
    checked: set[int] = set()
    for key in sorted(layers, key=lambda key: -len(layers[key])):
        if not layers[key] or not layers[key] <= checked:
            checked |= layers[key]  # a part of a checked model needs no check
            _check_repeats(*smallest[key], memory, tolerance)


def _layers(signature: Signature) -> set[int]:
    """Returns the ids of a model's layers, without functional models."""
    return {
        id(layer)
        for layer in layers_within(signature.model)
        if not getattr(layer, "inputs", None)
    }


def _check_repeats(
    signature: Signature, inputs: Inputs, memory: Memory, tolerance: float
) -> None:
    first = memory.run(signature, inputs)
    model: Any = signature.model
    variables = _variables(model)
    before = _values(variables)
    second = memory.graphs(signature)(inputs)
    changed = [
        variable
        for variable, old, new in zip(
            variables, before, _values(variables), strict=True
        )
        if not _same(old, new)
    ]
    found = _apart(first, second)
    if found.largest_difference <= tolerance:
        # Outputs agree, so they do not depend on the seeds.
        seeds = _seeds(model)
        changed = [each for each in changed if id(each) not in seeds]
        if not changed:
            return
        if not _depends(signature, inputs, memory, first, changed, tolerance):
            return
    outputs = (
        f"{found.where} differs by {found.largest_difference:.3g}"
        if found.largest_difference > tolerance
        else "a variable that outputs depend on has changed"
    )
    raise ExportVerificationError(
        f"Model '{model.name}' changes from run to run: for the same "
        f"{describe(inputs)}, {outputs} in the second run. "
        f"{_cause(model, changed)}. {_REMEDY}"
    )


def _apart(first: Mapping[str, Any], other: Mapping[str, Any]) -> Difference:
    """Returns how far outputs are from the first where these are finite."""
    if any(first[name].shape != other[name].shape for name in first):
        return difference(first, other, scales_of([first, other]))
    kept = {}
    for name, value in other.items():
        is_lost = np.zeros(value.shape, bool)
        if "float" in value.dtype.name:
            is_lost = ~np.isfinite(first[name].astype("float64"))
        kept[name] = np.where(is_lost, first[name], value)
    return difference(first, kept, scales_of([first, kept]))


def _in_eager_code(reference: Reference, memory: Memory) -> Iterator[str]:
    """Yields where eager code gives other outputs than the graph, as text.

    It is run once for each model, on its largest inputs. Not of large models,
    whose eager code takes long, nor of those that round or choose: there one
    rounding more or less decides.
    """
    seen: set[int] = set()
    by_name = {each.name: each for each in reference.signatures}
    for probe in sorted(reference.usual, key=_size, reverse=True):
        signature = by_name[probe.signature]
        if (
            probe.signature in reference.retraces
            or reference.quantization == BY_KERAS
            or has_many_weights(signature)
            or any(
                layer.compute_dtype in ("float16", "bfloat16")
                for layer in layers_within(signature.model)
            )
        ):
            continue
        inputs = probe.inputs
        while signature.oracle is not None:
            inputs = signature.oracle.to_base(inputs)
            signature = signature.oracle.base
        if id(memory.graphs(signature)) in seen:
            continue
        seen.add(id(memory.graphs(signature)))
        begin = f"Model '{signature.model.name}' called directly, `model(x)`, "
        end = (
            "than its graph, which `model.predict(x)` and the file run: "
            f"{describe(inputs)}"
        )
        try:
            found = _called(signature, signature.call, inputs)
        except ValueError as error:
            yield f"{begin}takes other inputs {end}: {_first_line(error)}"
            continue
        floats = {
            name: value
            for name, value in memory.run(signature, inputs).items()
            if "float" in value.dtype.name  # choices may be ties
        }
        apart = _apart(floats, {name: found[name] for name in floats})
        # Graphs of deep models round differently.
        if apart.largest_difference > max(reference.tolerance, 100 * TOLERANCE):
            yield (
                f"{begin}gives other outputs {end}: {apart.where} differs by "
                f"{apart.largest_difference:.3g}"
            )


def _depends(
    signature: Signature,
    inputs: Inputs,
    memory: Memory,
    first: dict[str, Any],
    variables: Sequence[Any],
    tolerance: float,
) -> bool:
    """Returns whether outputs depend on the values of the variables.

    After one more run a variable may move outputs by little, or not at all
    until it has counted further, so a large number is added.
    """
    kept = _values(variables)
    for variable, value in zip(variables, map(np.asarray, kept), strict=True):
        variable.assign(value + np.asarray(_FAR).astype(value.dtype))
    try:
        other = memory.graphs(signature)(inputs)
    except ValueError:  # the model does not take such values
        return True
    finally:
        for variable, value in zip(variables, kept, strict=True):
            variable.assign(value)
    return _apart(first, other).largest_difference > tolerance


def _size(probe: Probe) -> float:
    """Returns how many numbers it has; infinity if none, to be the last."""
    return sum(array.size for array in probe.inputs.values()) or math.inf


def _variables(model: Any) -> list[Any]:
    """Returns all variables of a model once, those of metrics included."""
    metrics = [
        variable
        for layer in layers_within(model)
        for variable in layer.metrics_variables
    ]
    return list({id(each): each for each in model.variables + metrics}.values())


def _seeds(model: Any) -> set[int]:
    """Returns the ids of seed generators' states: variables, but no weights."""
    return set(map(id, model.variables)) - set(map(id, model.weights))


def _values(variables: Sequence[Any]) -> list[Any]:
    return [variable.value.read_value() for variable in variables]


def _same(old: Any, new: Any) -> bool:
    one, other = np.asarray(old), np.asarray(new)
    # Shared memory shows that nothing was written, without a long comparison.
    return np.may_share_memory(one, other) or np.array_equal(one, other)


def _cause(model: Any, changed: Sequence[Any]) -> str:
    # `model.variables` has no states of recurrent layers.
    stateful = [
        f"layer '{layer.name}' ({type(layer).__name__}) is stateful"
        for layer in layers_within(model)
        if getattr(layer, "stateful", False)
    ]
    if not changed and not stateful:
        return (
            "None of its variables changed: the code of a layer draws random "
            "numbers, or keeps something in Python"
        )
    names = stateful
    for variable in changed:
        owners = [
            layer
            for layer in layers_within(model)
            if any(variable is each for each in _variables(layer))
        ]
        owner = min(owners, key=lambda layer: len(_variables(layer)))
        names.append(
            f"layer '{owner.name}' ({type(owner).__name__}) changes its "
            f"variable '{variable.name}'"
        )
    text = ", ".join(dict.fromkeys(names))
    return text[0].upper() + text[1:]


# Each operator rounds by up to 2**-24 of its numbers, and the error grows where
# large numbers cancel. To measure it, inputs and weights are moved at random by
# 16 times as much; rounding may move outputs four times as far as that does.
_MOVED = 2.0**-20
_ALLOWED = 4
# A sum of n equal numbers, such as the mean of an image of one colour, may be
# off by n roundings in one direction. Moving the weights by as much measures
# this, and also rounding where all inputs are zeros.
_ROUNDING = 2.0**-24
# A single draw may by chance hardly move an output.
_DRAWS = 3
# The length is prime, so that no two rows of a kernel have the same signs.
_SIGNS = np.random.default_rng(0).choice([-1.0, 1.0], 65_521)


def _with_extremes(probe: Probe, call: Call) -> Probe | None:
    """Returns a probe of extreme numbers with the model's outputs.

    An example without a finite output is replaced by another one.

    Returns:
        The probe, or None if no example has a finite output, or examples depend
        on each other.
    """
    kinds = np.array(probe.extremes)
    try:
        outputs = call(probe.inputs)
        finite = _finite(outputs, len(kinds))
        if not np.any(finite):
            return None
        if not np.all(finite):
            chosen = np.resize(np.flatnonzero(finite), len(kinds))
            probe = dataclasses.replace(
                probe,
                inputs={name: x[chosen] for name, x in probe.inputs.items()},
                extremes=tuple(map(str, kinds[chosen])),
            )
            outputs = call(probe.inputs)
    except ValueError:  # the model refuses them
        return None
    if not np.all(_finite(outputs, len(kinds))):
        return None
    return dataclasses.replace(probe, outputs=outputs)


def _movement_of(
    value: np.ndarray, moved: np.ndarray, count: int = 0
) -> np.ndarray:
    """Returns how far each number of vectors has moved, at most.

    The vectors of an example are taken together, as few draws may hardly move
    one of them.

    Args:
        value: The output.
        moved: The output of moved inputs and weights.
        count: Number of examples that are taken as a whole, or 0.
    """
    if "float" in value.dtype.name:
        value, moved = value.astype("float64"), moved.astype("float64")
        with np.errstate(invalid="ignore"):  # an infinity less itself
            apart = np.abs(moved - value)
        is_lost = bool(count) & np.isfinite(value) & ~np.isfinite(moved)
        apart = np.where(np.isfinite(apart), apart, 0.0)
        apart = np.where(is_lost, np.inf, apart)
    else:
        apart = np.where(value != moved, np.inf, 0.0)
    if not count:
        axes = range(1, apart.ndim - 1)
    else:
        axes = range(int(apart.shape[:1] == (count,)), apart.ndim)
    return np.max(apart, axis=tuple(axes), keepdims=True, initial=0.0)


def _moved_outputs(
    signature: Signature, inputs: Inputs, memory: Memory, step: float
) -> list[dict[str, Any]]:
    """Returns the model's outputs, and those of moved inputs and weights."""
    rng = np.random.default_rng(0)
    found = [runner_of(signature, memory)(inputs)]
    for draw in range(_DRAWS):
        moved = {name: _moved(value, rng) for name, value in inputs.items()}
        with _moved_weights(signature, step, draw):
            found.append(runner_of(signature, memory.apart())(moved))
    return found


@contextlib.contextmanager
def _moved_weights(
    signature: Signature, step: float, draw: int
) -> Iterator[None]:
    """Makes each frozen weight larger or smaller by a share of it."""
    signature = signature.innermost
    kept = [
        (variable, variable.value.read_value())
        for variable in signature.model.variables
        if "float" in variable.dtype
    ]
    try:
        for variable, value in kept:
            array = keras.ops.convert_to_numpy(value)
            signs = np.roll(_SIGNS, 7_919 * draw)  # different in each draw
            factors = 1 + step * np.resize(signs, array.shape)
            variable.assign(array * factors.astype(array.dtype))
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)


def _moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns floats moved slightly at random; other values unchanged."""
    if "float" not in value.dtype.name:
        return value
    factors = 1 + _MOVED * rng.choice([-1, 1], value.shape)
    return value * factors.astype(value.dtype)


def _finite(outputs: Mapping[str, Any], count: int) -> np.ndarray:
    finite = np.zeros(count, bool)
    for value in outputs.values():
        found = np.ones(value.shape, bool)
        if "float" in value.dtype.name:
            found = np.isfinite(value.astype("float64"))
        if value.shape[:1] != (count,):
            found = np.broadcast_to(np.all(found), (count,))
        finite |= np.all(found.reshape(count, -1), axis=1)
    return finite
