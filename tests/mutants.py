"""Puts faults into the package one by one, and asks whether tests find them.

`make mutants` runs them all: `python tests/mutants.py --help` says what else it
does. A mutant that survives lacks a test. One that changes no answer is none,
and does not belong here.
"""

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 300  # seconds for the tests of one mutant
PYTEST = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly"),
    *("-p", "no:cacheprovider", "-n", "0", "-m", "not slow"),
)


class Mutant(NamedTuple):
    """A fault, and who should find it.

    Attributes:
        file: Where it is, below `keras_posenc/`.
        fault: What it is, in words.
        old: What stands there, once in the file.
        new: What stands there instead.
        tests: Tests that should fail, below `tests/`, with blanks between.
    """

    file: str
    fault: str
    old: str
    new: str
    tests: str


OPS = [
    Mutant(
        "ops/sinusoids.py",
        "a digit of a position runs to 62",
        "_MIDDLE + xp.mod(digits, _BASE)",
        "_MIDDLE + xp.mod(digits, _BASE - 1)",
        "ops/test_sinusoids.py::test_integers",
    ),
    Mutant(
        "ops/sinusoids.py",
        "cosines are added up with the wrong sign",
        "cos_a * cos_b - sin_a * sin_b",
        "cos_a * cos_b + sin_a * sin_b",
        "ops/test_sinusoids.py::test_integers",
    ),
    Mutant(
        "ops/sinusoids.py",
        "positions before 0 have the sines of those behind it",
        "high < 0, -1), -sine, sine)",
        "high < 0, -1), sine, sine)",
        "ops/test_sinusoids.py::test_integers",
    ),
    Mutant(
        "ops/sinusoids.py",
        "the last real position is out of range",
        "valid = ops.abs(positions / 4096) <= 4096",
        "valid = ops.abs(positions / 4096) < 4096",
        "ops/test_sinusoids.py::test_reals",
    ),
    Mutant(
        "ops/sinusoids.py",
        "the derivative of a range has the wrong sign",
        "laid_out(cosine, -sine, -2)",
        "laid_out(cosine, sine, -2)",
        "ops/test_sinusoids.py::test_ranges",
    ),
    Mutant(
        "ops/positional_encoding.py",
        "frequencies end at the longest wavelength, as in another paper",
        "(-2.0 * pairs / d_model)",
        "(-2.0 * pairs / max(d_model - 2, 1))",
        "ops/test_positional_encoding.py::test_frequencies_of_base_100 "
        "ops/test_positional_encoding.py::test_rounded_once",
    ),
    Mutant(
        "ops/positional_encoding.py",
        "a sine where the cosine belongs",
        "encoding[0, :, 1::2] = cosine",
        "encoding[0, :, 1::2] = sine[:, : d_model // 2]",
        "ops/test_positional_encoding.py::test_rounded_once",
    ),
    Mutant(
        "ops/rotary.py",
        "the halves of a vector are taken for one another",
        "a, b = ops.split(x, 2, axis=-1)",
        "b, a = ops.split(x, 2, axis=-1)",
        "positional/test_rotary_embedding.py::test_rotation_parity",
    ),
    Mutant(
        "ops/rotary.py",
        "a row of the original length counts as a long one",
        "lengths_seen(positions) > original_length",
        "lengths_seen(positions) >= original_length",
        "positional/test_rotary_embedding.py::test_exact_far_out "
        "positional/test_rotary_embedding.py::test_rotation_parity",
    ),
    Mutant(
        "ops/rotary_rates.py",
        "yarn slows down the pairs that it should leave",
        "rates * (1 - ramp) + rates / factor * ramp",
        "rates * ramp + rates / factor * (1 - ramp)",
        "positional/test_rotary_embedding.py::test_frequencies_parity",
    ),
    Mutant(
        "ops/rotary_rates.py",
        "longrope's factor without its square root",
        "math.sqrt(1 + growth",
        "(1 + growth",
        "positional/test_rotary_embedding.py::test_attention_factor_parity",
    ),
    Mutant(
        "ops/alibi.py",
        "slopes are counted from 0",
        "np.arange(1, power + 1) / power",
        "np.arange(power) / power",
        "positional/test_alibi_bias.py::test_slopes_parity",
    ),
    Mutant(
        "ops/relative.py",
        "a token is behind itself",
        "np.where(relative > 0, num_buckets, 0)",
        "np.where(relative >= 0, num_buckets, 0)",
        "positional/test_relative_position_bias.py::test_buckets_parity",
    ),
    Mutant(
        "ops/masks.py",
        "the causal mask is transposed",
        "_pairs(ops.greater_equal",
        "_pairs(ops.less_equal",
        "ops/test_masks.py::test_combined_against_loops",
    ),
    Mutant(
        "ops/masks.py",
        "one mask that allows is enough",
        "functools.reduce(ops.logical_and, masks)",
        "functools.reduce(ops.logical_or, masks)",
        "ops/test_masks.py::test_combined_against_loops",
    ),
    Mutant(
        "ops/attention.py",
        "an allowed key may score below a masked one",
        'any_key, float("-inf")',
        "any_key, 2 * _SCORE_OF_ALL",
        "ops/test_attention.py::test_masked_keys_weigh_nothing",
    ),
    Mutant(
        "ops/sides.py",
        "some of the queries count from 0 again",
        "index=rows if self.index is None",
        "index=None if self.index is None",
        "ops/test_masks.py::test_some_queries_are_masked_as_among_all",
    ),
    Mutant(
        "ops/attention.py",
        "large scores are told by the queries alone",
        "MAX_SCORES // max(keys, 1)",
        "MAX_SCORES // max(seq, 1)",
        "transformer/test_two_sides.py::test_blocks_of_queries_among_more_keys",
    ),
    Mutant(
        "ops/attention.py",
        "the softmax is over the queries",
        "ops.softmax(scores, axis=-1)",
        "ops.softmax(scores, axis=-2)",
        "ops/test_attention.py::test_against_the_oracle",
    ),
    Mutant(
        "ops/positions.py",
        "padding before the first token stands at -1",
        "return ops.maximum(counted - 1, 0)",
        "return counted - 1",
        "ops/test_positions.py::test_mask",
    ),
    Mutant(
        "ops/tables.py",
        "the position behind the table has a row",
        "ops.clip(whole, 0, length - 1)",
        "ops.clip(whole, 0, length)",
        "positional/test_position_embedding.py"
        "::test_in_a_graph_outside_the_table_is_nan",
    ),
    Mutant(
        "ops/turns.py",
        "the last digit of a fraction is cut off",
        "digit = ops.round(fraction) if last else ops.floor(fraction)",
        "digit = ops.floor(fraction)",
        "ops/test_turns.py::test_fractions_of_integers_are_read_to_the_nearest",
    ),
]

LAYERS = [
    Mutant(
        "transformer/self_attention.py",
        "scores are divided by the width, without its square root",
        "query * head_dim**-0.5",
        "query * head_dim**-1.0",
        "transformer/test_against_reference.py::test_attention_and_its_masks",
    ),
    Mutant(
        "transformer/self_attention.py",
        "keys and values are taken for one another",
        "query, key, value = ops.split(",
        "query, value, key = ops.split(",
        "transformer/test_against_reference.py::test_attention_and_its_masks",
    ),
    Mutant(
        "transformer/_attending.py",
        "all blocks of queries drop the same",
        "ops.stack([rows[0], 0])",
        "ops.stack([0, 0])",
        "transformer/test_padding_and_length.py::"
        "test_dropout_is_recomputed_as_it_was",
    ),
    Mutant(
        "transformer/_attending.py",
        "the dropout of attention drops nothing",
        "weighted_values(dropped, value)",
        "weighted_values(weights, value)",
        "test_layer_contract.py::test_dropout_drops_in_training_alone",
    ),
    Mutant(
        "transformer/_attention_layer.py",
        "the padding mask is forgotten",
        "(mask, padding_mask)",
        "(mask, None)",
        "transformer/test_self_attention.py"
        "::test_padding_mask_and_implicit_mask_add_up",
    ),
    Mutant(
        "transformer/_context.py",
        "the attention mask is forgotten",
        "keys=keys,\n            attention_mask=attention_mask,",
        "keys=keys,\n            attention_mask=None,",
        "transformer/test_against_reference.py::test_attention_and_its_masks",
    ),
    Mutant(
        "transformer/_attention_layer.py",
        "packed texts see one another",
        "Side(seq, tokens, positions, segment_ids)",
        "Side(seq, tokens, positions)",
        "transformer/test_self_attention.py"
        "::test_packed_segments_are_separate_rows",
    ),
    Mutant(
        "transformer/_context.py",
        "padding is skipped where tokens attend to it",
        "and self.attention_mask is None",
        "and True",
        "transformer/test_padding_and_length.py"
        "::test_a_token_that_may_attend_to_nothing_is_answered_alike",
    ),
    Mutant(
        "transformer/_block.py",
        "dropout in inference",
        "self.dropout_layer(part(outputs), training=training)",
        "self.dropout_layer(part(outputs), training=True)",
        "transformer/test_transformer_encoder_model.py"
        "::test_dropout_in_training_alone",
    ),
    Mutant(
        "transformer/_block.py",
        "the residual is left out",
        "norm(x + outputs)",
        "norm(outputs)",
        "transformer/test_against_reference.py::test_block",
    ),
    Mutant(
        "transformer/_sublayers.py",
        "epsilon x 10",
        "ops.rsqrt(variance + self.epsilon)",
        "ops.rsqrt(variance + 10 * self.epsilon)",
        "transformer/test_against_reference.py::test_block",
    ),
    Mutant(
        "transformer/_sublayers.py",
        "the mean of a norm is over the tokens",
        "ops.mean(x, axis=-1, keepdims=True)",
        "ops.mean(x, axis=-2, keepdims=True)",
        "transformer/test_against_reference.py::test_block",
    ),
    Mutant(
        "transformer/_stack.py",
        "no norm at the end",
        "x = self.final_norm(x)",
        "self.final_norm(x)",
        "transformer/test_against_reference.py::test_stack_is_its_blocks",
    ),
    Mutant(
        "transformer/masked_average_pooling.py",
        "the mean divides by all tokens, padding included",
        "ops.cast(mask, x.dtype), axis=1",
        "ops.ones_like(mask, dtype=x.dtype), axis=1",
        "transformer/test_against_reference.py::test_pooling",
    ),
    Mutant(
        "transformer/_id_embedding.py",
        "the padding's id is a token",
        "ops.not_equal(inputs, self.pad_id)",
        "ops.not_equal(inputs, -1)",
        "transformer/test_transformer_encoder_model.py::test_padding_is_masked",
    ),
    Mutant(
        "positional/positional_encoding.py",
        "inputs are scaled without the square root",
        "math.sqrt(dim) if self.scale_inputs",
        "float(dim) if self.scale_inputs",
        "positional/test_positional_encoding.py"
        "::test_concat_scales_the_inputs_alone",
    ),
    Mutant(
        "positional/_merged_encoding.py",
        "dropout in inference",
        "self.dropout_layer(outputs, training=training)",
        "self.dropout_layer(outputs, training=True)",
        "positional/test_positional_encoding.py"
        "::test_dropout_is_active_in_training_alone",
    ),
    Mutant(
        "positional/_token_encoding.py",
        "padding before a text moves its tokens",
        "counted = mask if self.skip_masked else None",
        "counted = None",
        "positional/test_positional_encoding.py"
        "::test_left_padding_changes_nothing",
    ),
    Mutant(
        "positional/position_embedding.py",
        "the position behind the table is let through",
        "values.max() >= self.sequence_length",
        "values.max() > self.sequence_length",
        "positional/test_position_embedding.py"
        "::test_outside_the_table_is_an_error",
    ),
    Mutant(
        "positional/axial_positional_encoding.py",
        "the widths of the axes come in the wrong order",
        "widths[::-1] if self.last_axis_first else widths",
        "widths",
        "positional/test_axial_positional_encoding.py::test_any_grid",
    ),
    Mutant(
        "positional/time_encoding.py",
        "periods end one step before the longest",
        "ratio ** (i / max(count - 1, 1))",
        "ratio ** (i / count)",
        "positional/test_time_encoding.py::test_geometric_periods",
    ),
]

VERIFICATION = [
    Mutant(
        "export/probes/compare.py",
        "NaN equals any number",
        "np.isnan(wanted) & np.isnan(got)",
        "np.isnan(wanted) | np.isnan(got)",
        "export/verification/test_verification.py"
        "::test_difference_of_two_outputs",
    ),
    Mutant(
        "export/probes/compare.py",
        "an infinite difference is none",
        "np.where(np.isnan(distances), np.inf, distances)",
        "np.where(np.isfinite(distances), distances, 0.0)",
        "export/verification/test_verification.py"
        "::test_difference_of_two_outputs",
    ),
    Mutant(
        "export/probes/compare.py",
        "differences are relative to what the artifact says",
        "np.maximum(scale, np.abs(wanted))",
        "np.maximum(scale, np.abs(got))",
        "export/verification/test_verification.py"
        "::test_difference_of_two_outputs",
    ),
    Mutant(
        "export/probes/tolerance.py",
        "tolerance x 100",
        "TOLERANCE = 1e-5",
        "TOLERANCE = 1e-3",
        "export/verification/test_verification.py"
        "::test_changed_weight_and_where",
    ),
    Mutant(
        "export/probes/reference.py",
        "refusals are not told",
        "reference.skipped.append(",
        "[].append(",
        "export/verification/test_verification.py"
        "::test_lengths_that_the_model_does_not_take_are_told",
    ),
    Mutant(
        "export/probes/generate.py",
        "no batch but of one is asked",
        "_BATCHES = (1, 3)",
        "_BATCHES = (1,)",
        "export/probes/test_samples.py::test_batches_and_lengths",
    ),
    Mutant(
        "export/probes/generate.py",
        "the longest is one shorter",
        "lengths.append(max_length)",
        "lengths.append(max_length - 1)",
        "export/probes/test_samples.py::test_batches_and_lengths",
    ),
    Mutant(
        "export/probes/generate.py",
        "no row of nothing but padding is invented",
        "values[2:3] = 0",
        "values[2:3, 1:] = 0",
        "export/probes/test_samples.py"
        "::test_rows_with_padding_at_their_end_and_of_nothing_else",
    ),
    Mutant(
        "export/probes/generate.py",
        "the highest id is not asked",
        "flat[0, 0], flat[0, -1] = limit - 1, 0",
        "flat[0, 0], flat[0, -1] = 1, 0",
        "export/probes/test_samples.py"
        "::test_lowest_and_highest_id_of_the_smallest_embedding",
    ),
    Mutant(
        "export/probes/generate.py",
        "the lowest id is not asked",
        "flat[0, 0], flat[0, -1] = limit - 1, 0",
        "flat[0, 0], flat[0, -1] = limit - 1, 1",
        "export/probes/test_samples.py"
        "::test_lowest_and_highest_id_of_the_smallest_embedding",
    ),
    Mutant(
        "export/signatures/lengths.py",
        "a row has one id more than its length",
        "ops.less(places,",
        "ops.less_equal(places,",
        "export/signatures/test_lengths.py::test_what_is_past_a_length_is_0",
    ),
    Mutant(
        "export/signatures/lengths.py",
        "rows are not padded as a server pads them",
        "row[length:] = inputs[name].flat[0]",
        "row[length:] = 0",
        "export/signatures/test_lengths.py"
        "::test_verification_pads_as_servers_do",
    ),
    Mutant(
        "export/signatures/labels.py",
        "labels that repeat are taken",
        "if names.count(name) > 1",
        "if names.count(name) > 2",
        "export/signatures/test_labels.py::test_labels_that_are_none",
    ),
    Mutant(
        "export/report.py",
        "nothing but NaN is a proof",
        "case.is_nan for case in self.cases",
        "False for case in self.cases",
        "export/verification/test_verification.py"
        "::test_nothing_but_nan_proves_nothing",
    ),
    Mutant(
        "export/report.py",
        "the best case is judged instead of the worst",
        "return max(\n            self.required_cases, key=",
        "return min(\n            self.required_cases, key=",
        "export/verification/test_verification.py"
        "::test_report_of_a_failure_is_still_json",
    ),
    Mutant(
        "export/inspect.py",
        "an unsafe operator is let through",
        'raise ExportVerificationError(\n            "An exported model',
        'ExportVerificationError(\n            "An exported model',
        "export/inspection/test_hostile.py"
        "::test_graph_that_does_more_than_compute_is_not_run",
    ),
    Mutant(
        "../keras_posenc_worker/read_saved_model.py",
        "an asset may be above its folder",
        'or ".." in name.parts',
        'or ".." in name.name[:0]',
        "export/inspection/test_hostile.py::test_folder",
    ),
    Mutant(
        "export/check.py",
        "an output beside the model's is not told",
        "names != set(expected)",
        "not names >= set(expected)",
        "export/verification/test_verification.py::test_fault_in_a_saved_model",
    ),
    Mutant(
        "../keras_posenc_worker/__main__.py",
        "a worker may import Keras",
        'process.forbid("keras", "tf_keras")',
        'process.forbid("tf_keras")',
        "export/worker/test_run.py::test_keras_and_the_package_cannot_be_imported",
    ),
    Mutant(
        "../keras_posenc_worker/fingerprint.py",
        "two operators of a kind are taken for one",
        'source.kind + number * (number != " 1")',
        "source.kind",
        "export/worker/test_compare_files.py"
        "::test_numbers_that_onnx_draws_once",
    ),
    Mutant(
        "../keras_posenc_worker/litert_graph.py",
        "operators on a state may run in any order",
        "or any(map(self._is_state, read))",
        "or not read",
        "export/worker/test_compare_files.py"
        "::test_order_of_operators_that_change_what_others_read",
    ),
    Mutant(
        "../keras_posenc_worker/compare_files.py",
        "a constant may differ by far more than rounding",
        "_ROUNDING = 4 ",
        "_ROUNDING = 4096 ",
        "export/worker/test_compare_files.py"
        "::test_what_another_processor_folds_is_named",
    ),
    Mutant(
        "../keras_posenc_worker/session.py",
        "servers may restore other values than Python",
        "if value != wanted[weight]:",
        "if value is None:",
        "export/worker/test_readers.py::test_verify_refuses",
    ),
    Mutant(
        "../keras_posenc_worker/saved_model_contents.py",
        "servers may compute other outputs than Python",
        '**{f"output {key}": x for key, x in each.results.items()},',
        "",
        "export/worker/test_readers.py::test_verify_refuses",
    ),
    Mutant(
        "../keras_posenc_worker/graph_digests.py",
        "what an operator waits for does not matter",
        'parts += ["after", *sorted(done[name])]',
        'parts += ["after"]',
        "export/worker/test_graph_digests.py::test_edit_changes_the_digest",
    ),
    Mutant(
        "export/graphs/contents.py",
        "a graph that computes otherwise passes",
        "if wrong is None and different:",
        "if wrong is None and different is None:",
        "export/worker/test_readers.py::test_edit_of_the_graph_is_refused",
    ),
    Mutant(
        "export/probes/tolerance.py",
        "a weight's rounding is taken for as large as the weight",
        "half_step = largest / 127 / 2",
        "half_step = largest / 2",
        "export/litert/test_quantization.py"
        "::test_a_right_file_of_one_number_is_not_refused",
    ),
]

MUTANTS = [*OPS, *LAYERS, *VERIFICATION]


def main() -> int:
    """Returns 1 if a mutant survives, or cannot be asked about."""
    options = parse()
    tree = options.tree.resolve()
    chosen = [
        mutant
        for mutant in MUTANTS
        if options.only in f"{mutant.file}: {mutant.fault}"
    ]
    if not chosen:
        print(f"No mutant is of {options.only!r}.")
        return 1
    there, elsewhere, wrong = find(chosen, tree)
    for mutant in elsewhere:
        print(f"not there: {mutant.file}: {mutant.fault}")
    for line in wrong:
        print(line)
    if options.check or wrong:
        print(f"{len(there)} mutants, {len(elsewhere)} not there")
        return bool(wrong or (elsewhere and tree == ROOT))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return run_all(there, elsewhere, tree, Path(folder), options.jobs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="those whose file or fault contains it",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="how many at the same time"
    )
    parser.add_argument(
        "--tree",
        type=Path,
        default=ROOT,
        help="another checkout of the project, to be asked with its own tests",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run nothing; say whether each mutant and its tests are there",
    )
    return parser.parse_args()


def find(
    mutants: list[Mutant], tree: Path
) -> tuple[list[Mutant], list[Mutant], list[str]]:
    """Mutants that the tree has, those that it has not, and what is wrong."""
    there, elsewhere, wrong = [], [], []
    for mutant in mutants:
        file = tree / "keras_posenc" / mutant.file
        count = file.read_text().count(mutant.old) if file.exists() else 0
        (there if count == 1 else elsewhere).append(mutant)
        if count > 1:
            wrong.append(f"{mutant.file} has {count} times: {mutant.old}")
        if tree == ROOT and present_tests(mutant, tree) != wanted_tests(mutant):
            wrong.append(f"{mutant.file}: no such tests: {mutant.tests}")
    return there, elsewhere, wrong


def wanted_tests(mutant: Mutant) -> list[str]:
    return [f"tests/{test}" for test in mutant.tests.split()]


def present_tests(mutant: Mutant, tree: Path) -> list[str]:
    """Its tests; where a tree has not got one of them, the whole file."""
    found = []
    for test in wanted_tests(mutant):
        file, _, name = test.partition("::")
        if (tree / file).exists():
            text = (tree / file).read_text()
            found.append(test if f"def {name}(" in text or not name else file)
    return list(dict.fromkeys(found))


def run_all(
    mutants: list[Mutant],
    elsewhere: list[Mutant],
    tree: Path,
    folder: Path,
    jobs: int,
) -> int:
    places = [copy(tree, folder / str(job)) for job in range(jobs)]
    every = [test for mutant in mutants for test in present_tests(mutant, tree)]
    code, seconds, output = run(list(dict.fromkeys(every)), places[0])
    if code != 0:
        print(f"{output}\nThe tests fail without a mutant.")
        return 1
    print(f"Without a mutant the tests pass, in {seconds:.0f} s", flush=True)
    copies: queue.Queue[Path] = queue.Queue()
    for place in places:
        copies.put(place)
    done = []

    def try_one(mutant: Mutant) -> tuple[Mutant, str]:
        place = copies.get()
        file = place / "keras_posenc" / mutant.file
        text = file.read_text()
        try:
            file.write_text(text.replace(mutant.old, mutant.new))
            code, seconds, output = run(
                present_tests(mutant, tree), place, TIMEOUT
            )
        finally:
            file.write_text(text)
            copies.put(place)
        verdict = in_words(code, output)
        done.append(mutant)
        print(
            f"{len(done):3}/{len(mutants)} {mutant.file}: {mutant.fault}: "
            f"{verdict} in {seconds:.0f} s",
            flush=True,
        )
        if not verdict.startswith(("killed", "survived")):
            print(output)
        return mutant, verdict

    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(try_one, mutants))
    alive = [each for each in verdicts if not each[1].startswith("killed")]
    print(
        f"{len(mutants) - len(alive)} killed, {len(alive)} survived"
        + f", {len(elsewhere)} not there" * bool(elsewhere)
    )
    for mutant, verdict in alive:
        print(
            f"{verdict}: {mutant.file}: {mutant.fault}\n"
            f"  - {mutant.old}\n  + {mutant.new}\n  {mutant.tests}"
        )
    return bool(alive)


def copy(tree: Path, place: Path) -> Path:
    """What git knows of a checkout, or would, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=tree,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (tree / name).is_file():  # and not deleted
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, place / name)
    return place


def run(
    tests: list[str], place: Path, timeout: float | None = None
) -> tuple[int | None, float, str]:
    """Pytest's exit code, None after a time-out; seconds; what it printed."""
    if not tests:
        return 0, 0.0, ""
    environment = {
        **os.environ,
        "PYTHONPATH": str(place),
        # A module that is changed back within a second looks unchanged.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    began = time.monotonic()
    with subprocess.Popen(
        # Temporary folders of its own: pytest sweeps those of others.
        [*PYTEST, f"--basetemp={place}-tmp", *tests],
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None, time.monotonic() - began, ""
    return process.returncode, time.monotonic() - began, output


def in_words(code: int | None, output: str) -> str:
    """What pytest's exit code, and what it printed, say of a mutant."""
    if code is None:
        return f"killed by the time-out of {TIMEOUT} s"
    if code < 0:
        return f"killed by signal {-code}"
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\w+)", output, re.MULTILINE)
    if code == 1 and failed:
        return f"killed by {failed[1]}"
    known = {0: "survived", 5: "no test ran"}
    return known.get(code, f"pytest failed ({code})")


if __name__ == "__main__":
    sys.exit(main())
