"""A report in words."""

import math
from collections.abc import Iterator
from typing import Any

from keras_posenc.artifacts.expectations.kinds import LOGITS, VECTORS
from keras_posenc.artifacts.ground import units

_LINES = 8  # of samples of one signature, in a report
_RUNTIMES = {"litert": "LiteRT", "onnx": "ONNX Runtime"}
_LOST = {
    VECTORS: "The file's vectors point elsewhere than the model's",
    LOGITS: "The file's logits give other probabilities than the model's",
}
_OTHER_WRITER = (
    "If other versions, or another converter, wrote it, export it anew, or let "
    "its answers and the weights found in it suffice: other_writer=True "
    "(--other-writer)"
)


def failure(report: Any) -> str | None:
    """Why a report has not passed, with the worst case; None if it has."""
    if report.passed:
        return None
    is_within = report.worst_difference <= report.tolerance
    if is_within and report.altered:
        return (
            "The artifact gives the model's answers, but not from the "
            f"model's numbers: {'; '.join(report.altered)}. If another version "
            "of Keras, or of the model's code, wrote it, export it anew"
        )
    if is_within and report.rewritten and not report.other_writer:
        return (
            "The artifact gives the model's answers, but is not as "
            f"written here: {'; '.join(report.rewritten)}. "
            f"{_OTHER_WRITER}"
        )
    return _wrong_answers(report)


def _wrong_answers(report: Any) -> str | None:
    """What is wrong with an artifact's answers, with the worst case."""
    worst = report.worst
    if worst.worst_difference <= report.tolerance:
        if not report.agrees:
            return (
                "The file's largest score is not the model's too often: "
                f"{_decisions(report)}. If that is often enough for "
                "you, allow it by `agreement` (--agreement)"
            )
        if report.lost_too_much:
            found = ". ".join(
                f"{_LOST[kind]}: {_loss(report, kind)}"
                for kind in report.lost_too_much
            )
            return (
                f"{found}. That is more than {report.quantization} should do "
                "to this model; if it is little enough for you, allow it by "
                "`tolerance` (--tolerance), which then decides alone"
            )
        if all(case.is_nan for case in report.cases):
            return "The model answers nothing but NaN, which verifies nothing"
        return None
    failed = sum(
        not case.worst_difference <= report.tolerance for case in report.judged
    )
    reason = worst.error or (
        f"{worst.worst_output} differs by {worst.worst_difference:.3g} of the "
        f"output's size, and {report.tolerance:.3g} is allowed"
    )
    if worst.error is None and worst.is_extreme and report.kind in _RUNTIMES:
        reason += (
            f". {_RUNTIMES[report.kind]} computes an operator of the model "
            "differently for such inputs. Use export_saved_model, which keeps "
            "the model's own operators; or keep such numbers from it: "
            "keras.ops.clip(x, -30, 30) ahead of it if they are large, "
            "keras.ops.maximum(x, 1e-6) if it divides by x"
        )
    elif worst.error is None and report.quantization:
        reason += (
            f". That is more than {report.quantization} should do to this "
            "model; if it is little enough for you, allow it by "
            "`tolerance` (--tolerance)"
        )
    elif worst.error is None and worst.worst_difference < 1e-3:
        enough = 10.0 ** math.ceil(math.log10(worst.worst_difference))
        reason += (
            ". If that is rounding, which grows with the length and where "
            "many tokens are the same, allow it by "
            f"`tolerance={enough:.0e}` (--tolerance {enough:.0e})"
        )
    return (
        f"The artifact does not give the model's answers in {failed:,} of "
        f"{units.count(len(report.cases), 'case')}. The largest difference: "
        "signature "
        f"'{worst.signature}', {worst.inputs}: {reason}"
    )


def details(report: Any) -> str:
    """All of it: what `str` says, how it was asked, and each case."""
    lines = [str(report), f"loaded in {units.time(report.load_seconds)}"]
    if report.in_float32:
        lines.append(
            "compared with the model in float32, as the file computes; "
            "the model's mixed precision rounds differently"
        )
    if report.refused:
        lines.append(
            f"not tried, as the model does not take it: "
            f"{'; '.join(report.refused)}"
        )
    if report.warmup:
        requests = units.count(report.warmup, "warm-up request")
        lines.append(f"replayed {requests}")
    if report.mediapipe is not None:
        lines.append(
            "MediaPipe itself gave the model's answers to "
            f"{units.count(report.mediapipe, 'text')}"
        )
    lines.append("signature, inputs: largest difference, time of a call")
    for name in dict.fromkeys(case.signature for case in report.cases):
        samples = [
            case
            for case in report.cases
            if case.is_sample and case.signature == name
        ]
        lines += [f"  {case}" for case in samples[:_LINES]]
        if len(samples) > _LINES:
            worst = max(samples, key=lambda case: case.worst_difference)
            more = units.count(len(samples) - _LINES, "more case")
            lines.append(
                f"  {name}, {more} of samples; the largest difference of all: "
                f"{worst}"
            )
    lines += [f"  {case}" for case in report.cases if not case.is_sample]
    return "\n".join(lines)


def remarks(report: Any) -> list[str]:
    """What needs attention, or was not verified."""
    wrong = _wrong_answers(report)
    lines = [*filter(None, [wrong]), *report.narrower, *report.notes]
    lines += [f"not the model's own: {each}" for each in report.altered]
    lines += [f"not as written here: {x}" for x in report.rewritten]
    if report.rewritten and not report.other_writer:
        lines.append(_OTHER_WRITER)
    if report.folded:
        lines.append(f"not compared: {'; '.join(report.folded)}")
    if ties := sum(case.near_ties for case in report.cases):
        lines.append(
            f"near-ties: in {units.count(ties, 'example')} it chose otherwise "
            "where the model's choice leads by no more than the tolerance; "
            "what it chose has the scores that the model gives to it"
        )
    if report.foreign_operators:
        lines.append(
            f"needs operators beyond the plain runtime: "
            f"{', '.join(report.foreign_operators)}"
        )
    if report.quantization:
        accuracy = report.accuracy
        inputs = "the samples" if accuracy.on_samples else "invented inputs"
        lines.append(
            f"{report.quantization}, compared with the model on {inputs}: "
            f"largest difference {accuracy.worst_difference:.2g} (allowed "
            f"{report.tolerance:.2g}), mean {accuracy.mean_difference:.2g}"
        )
        lines += _judged(report)
    if report.quantization == "int8-static" and not report.accuracy.on_samples:
        lines.append(
            "right only for inputs like those that it was calibrated with: "
            "give some as `samples` (--samples) to verify it"
        )
    hint = (
        ""
        if report.accuracy.on_samples
        else ". Give inputs like those that it is for as `samples` (--samples)"
    )
    if report.constant:
        lines.append(
            "weak check: over these inputs the model's answers hardly vary "
            f"in {', '.join(report.constant)}{hint}"
        )
    elif report.blurred:
        lines.append(
            "weak check: over these inputs the model's answers vary no "
            "more than rounding may move them in "
            f"{', '.join(report.blurred)}{hint}"
        )
    if report.unseen:
        lines.append(
            "columns too small to be seen beside the others: "
            f"{', '.join(report.unseen)}"
        )
    if report.unvaried:
        lines.append(
            "lengths and batches were not varied beyond the samples: "
            f"{', '.join(report.unvaried)}"
        )
    if report.padding_matters:
        lines.append(
            "padding changes its answers: no server should batch rows of "
            "different lengths"
        )
    if report.warmup is None:
        lines.append(
            "its warm-up requests were not replayed: pip install "
            "'keras-posenc[serving]'"
        )
    if report.unverified:
        line = f"not verified: {', '.join(report.unverified)}"
        if any("/" in each for each in report.unverified):
            line += ". Give those of the export as `labels` (--labels)"
        lines.append(line)
    return lines


def _judged(report: Any) -> Iterator[str]:
    """What each kind of output was judged by, and what came of it."""
    for kind in dict.fromkeys(
        each.split()[0] for each in report.kinds.values()
    ):
        names = ", ".join(
            f"{name}{why.removeprefix(kind)}"
            for name, why in report.kinds.items()
            if why.split()[0] == kind
        )
        measures = []
        if kind in report.lost and kind not in report.lost_too_much:
            measures.append(_loss(report, kind))
        if kind != VECTORS and report.agrees:
            measures.append(_decisions(report))
        yield ": ".join(
            filter(None, [f"judged as {kind}: {names}", "; ".join(measures)])
        )


def _loss(report: Any, kind: str) -> str:
    """What rows of a kind have lost, and what they may."""
    loss, allowed = report.lost[kind], report.allowed_losses.get(kind)
    mean = loss.total / max(loss.rows, 1)
    if kind == VECTORS:
        limit = "" if allowed is None else f" (required {_cosine(allowed)})"
        return (
            f"cosine with the model's vector at least {_cosine(loss.most)}"
            f"{limit}, {_cosine(mean)} on average, over "
            f"{units.count(loss.rows, 'vector')}"
        )
    limit = "" if allowed is None else f" (allowed {allowed:.2g})"
    return (
        f"KL divergence from the model's probabilities at most {loss.most:.2g}"
        f"{limit}, {mean:.2g} on average"
    )


def _cosine(loss: float) -> str:
    """1 less a loss, with two digits of the loss."""
    if loss < 1e-7:  # which float32 cannot tell from 0
        return "1"
    digits = max(1 - math.floor(math.log10(loss)), 2)
    return f"{1 - loss:.{digits}f}"


def _decisions(report: Any) -> str:
    """How often the largest score is kept, and how often it must be."""
    kept, decided = report.decided
    agreeing, rows = (
        sum(getattr(case, name) for case in report.judged)
        for name in ("agreeing", "rows")
    )
    text = (
        f"the largest is the model's in {agreeing:,} of {rows:,}; where it "
        f"leads by more than {report.lead:.2g}, "
    )
    if not decided:
        return f"{text}which it never does, so this was not checked"
    return (
        f"{text}in {kept:,} of {decided:,} ({100 * report.agreement:.4g}% "
        "required)"
    )


def summary(report: Any) -> str:
    """What was verified, in one line."""
    count, judged = len(report.cases), len(report.judged)
    on_samples = ""
    # All others must be finite, and no more.
    if judged < count and report.judged[0].is_sample:
        examples = sum(case.examples for case in report.judged)
        on_samples = f" on the {units.count(examples, 'sample')}"
    verdict = "verified" if report.passed else "WRONG"
    if report.passed and report.rewritten:
        verdict += " by answers and weights alone, not its graph"
    return (
        f"{report.path}: {verdict}: {units.count(count, 'case')}, largest "
        f"difference {report.worst_difference:.2g} (allowed "
        f"{report.tolerance:.2g}){on_samples}, {units.size(report.size_bytes)}"
    )
