"""`keras-posenc generate`: runs a generator on texts."""

import argparse
import contextlib
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import (
    check_exists,
    load_generator,
    parse_ids,
)
from keras_posenc_cli.options import Commands, add_command, add_options
from keras_posenc_cli.process import EXIT_OK, UsageError

STANDARD_INPUT = "-"

# A search returns -3.4e38, the lowest float32, if it found no sequence.
_NO_SEQUENCE = -3e38


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "generate",
        run,
        summary="generate texts with a generator, or an exported one",
        description="Generates one line for each text; the n best, the best "
        "first, if the generator has n_best. An exported generator runs in a "
        "process with limits and without Keras.",
        usage="MODEL TEXT [TEXT ...] [option ...]",
        example='keras-posenc generate serving/dates "7 March 2024" 3/7/24',
    )
    add_options(
        parser,
        "exported",
        metavar="MODEL",
        help="SavedModel folder, folder of its versions, .tflite or .onnx "
        "file, or the .keras file of a Generator",
    )
    parser.add_argument(
        "texts",
        nargs="+",
        metavar="TEXT",
        help="a text, or - for the lines of standard input",
    )
    parser.add_argument(
        "--tokenizer",
        type=arguments.path,
        metavar="FILE.keras",
        help="the generator whose tokenizers turn texts into ids and back, for "
        "an exported generator of ids",
    )
    parser.add_argument(
        "--ids",
        action="store_true",
        help="take ids, separated by spaces or commas, instead of texts",
    )
    add_options(parser, "--signature")
    parser.add_argument(
        "--seed",
        type=arguments.seed,
        metavar="N",
        help="seed of sampling (default: random)",
    )
    add_options(parser, "--allow-op", "--import")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--scores",
        action="store_true",
        help="print the score and a tab before each output",
    )
    add_options(forms, "--json")
    forms.add_argument(
        "--stream",
        action="store_true",
        help="print each piece of an output as soon as it is generated, for "
        ".keras files",
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    if options.tokenizer is not None and options.ids:
        raise UsageError("--ids are given as they are: there is no --tokenizer")
    texts, names = _read(options.texts)
    given: Sequence[Any] = texts
    if options.ids:
        given = [*map(parse_ids, texts, names)]
    if options.stream:
        _tell_cut_off(_stream(options, given, names), len(given))
        return EXIT_OK
    if options.exported.suffix == ".keras":
        outputs = _of_model(options, given, names)
    else:
        outputs = _of_exported(options, given, names)
    found = _listed(outputs)
    _check_scores(found, names, options.exported)
    if options.json:
        source = "ids" if options.ids else "text"
        pairs = zip(given, found, strict=True)
        result = [{source: each, "outputs": its} for each, its in pairs]
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return EXIT_OK
    every = [output for each in found for output in each]
    for output in every:
        score = f"{output['score']:.4f}\t" if options.scores else ""
        print(f"{score}{_line(output)}")
    cut = sum(not output.get("ended", True) for output in every)
    _tell_cut_off(cut, len(every))
    return EXIT_OK


def _tell_cut_off(cut: int, count: int) -> None:
    if cut:
        print(
            f"keras-posenc: {cut} of {count} outputs were cut off at "
            "max_length, without an end symbol",
            file=sys.stderr,
        )


def _read(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the texts, and a name for each.

    Raises:
        UsageError: There are none, or one is not UTF-8.
    """
    texts, names = [], []
    for index, text in enumerate(given, 1):
        if text == STANDARD_INPUT:
            lines = _lines()
            texts += lines
            names += [
                f"line {number} of standard input"
                for number in range(1, len(lines) + 1)
            ]
        else:
            texts.append(text)
            names.append(f"text {index}")
    if not texts:
        raise UsageError("standard input holds no line")
    for text, name in zip(texts, names, strict=True):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{name} is no UTF-8") from error
    return texts, names


def _lines() -> list[str]:
    if sys.stdin is None:  # closed by the shell: <&-
        return []
    # Not in the locale's encoding; invalid UTF-8 is reported with its line.
    content = sys.stdin.buffer.read().decode("utf-8-sig", "surrogateescape")
    lines = content.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _of_model(
    options: argparse.Namespace, given: Sequence[Any], names: Sequence[str]
) -> dict[str, Any]:
    """Returns the outputs of a .keras file, in this process."""
    generator = _load(options)
    from keras_posenc_cli.exported_generator import BATCH, draw_noise

    rows = given
    if not options.ids:
        rows = _tokenize(generator, given, options.exported)
    ids: Any = _padded(rows, generator.model.pad_id)
    generator.search.check_inputs(ids, lengths=False)
    model, checked = generator.from_ids, ids
    if generator.is_drawn:
        model = generator.offered_signatures()["from_ids"]
        length = generator.max_length
        ids = [ids, draw_noise(len(rows), length, options.seed)]
    try:
        generator.search.check_lengths(checked)
        outputs = dict(model.predict(ids, batch_size=BATCH, verbose=0))
    except Exception as error:  # of any layer that does not take them
        longest = max(range(len(rows)), key=lambda index: len(rows[index]))
        raise UsageError(
            f"'{options.exported}' fails for these texts. The longest, "
            f"{names[longest]}, has {len(rows[longest])} ids: {_said(error)}"
        ) from error
    return outputs if options.ids else _detokenized(generator, outputs)


def _said(error: Exception) -> str:
    """Returns a layer's message, which Keras prints bold, without the rest."""
    found = re.search(r"\x1b\[1m(.*?)\x1b\[0m", str(error), re.DOTALL)
    return found[1] if found else str(error)


def _stream(
    options: argparse.Namespace, given: Sequence[Any], names: Sequence[str]
) -> int:
    """Prints outputs as they are generated; returns how many were cut off."""
    if options.exported.suffix != ".keras":
        raise UsageError(
            "--stream is for .keras files: an exported file returns all at once"
        )
    generator = _load(options)
    if generator.beams > 1:
        raise UsageError(
            f"--stream: '{options.exported}' has beams: its text is known only "
            "at the end. Make a generator of the same model with beams=1"
        )
    if options.ids and generator.source_tokenizer is not None:
        raise UsageError(f"--stream: '{options.exported}' takes texts, not ids")
    if not options.ids:
        _check_tokenizer(generator, options.exported)
    from keras_posenc_cli.exported_generator import draw_noise

    noise: Any = [None] * len(given)
    if generator.is_drawn:
        noise = draw_noise(len(given), generator.max_length, options.seed)
    cut = 0
    for each, name, drawn in zip(given, names, noise, strict=True):
        with _named(options.exported, name):
            stream = generator.stream(each, noise=drawn)
        between = ""
        while True:
            with _named(options.exported, name):
                piece = next(stream, None)
            if piece is None:
                break
            if isinstance(piece, str):
                print(_line({"text": piece}), end="", flush=True)
            else:
                print(f"{between}{piece}", end="", flush=True)
                between = " "
        print()
        cut += bool(generator.end_ids) and not stream.ended
    return cut


@contextlib.contextmanager
def _named(exported: Path, name: str) -> Iterator[None]:
    """Names the text in an error."""
    try:
        yield
    except Exception as error:  # of any layer that does not take it
        raise UsageError(
            f"'{exported}' fails for {name}: {_said(error)}"
        ) from error


def _load(options: argparse.Namespace) -> Any:
    """Returns the generator of a .keras file; checks options for it."""
    for option in ("tokenizer", "signature"):
        if getattr(options, option) is not None:
            raise UsageError(
                f"--{option} is for exported files, not .keras files"
            )
    generator = load_generator(options.exported, options.imports)
    if options.seed is not None and not generator.is_drawn:
        raise UsageError(f"--seed: '{options.exported}' does not sample")
    return generator


def _of_exported(
    options: argparse.Namespace, given: Sequence[Any], names: Sequence[str]
) -> dict[str, Any]:
    """Returns the outputs of an exported file, from a separate process."""
    from keras_posenc.progress import progress
    from keras_posenc_cli.exported_generator import read_generator

    exported = read_generator(
        options.exported,
        signature=options.signature,
        allow_operators=options.allow_operators,
    )
    if exported.noise_length is None and options.seed is not None:
        raise UsageError(f"--seed: '{options.exported}' does not sample")
    generator, rows = None, given
    if options.ids and exported.takes_texts:
        raise UsageError(
            f"--ids: signature '{exported.signature}' takes texts. The "
            f"signatures of '{options.exported}': "
            f"{', '.join(exported.inspection.signatures)}"
        )
    if options.tokenizer is not None and exported.takes_texts:
        raise UsageError(f"--tokenizer: '{options.exported}' has its own")
    if not options.ids and not exported.takes_texts:
        if options.tokenizer is None:
            raise UsageError(
                f"'{options.exported}' takes ids, and has no tokenizer. Give "
                "the .keras file of the generator that it was exported from: "
                '--tokenizer FILE.keras. Or give ids: --ids "5 7 3"'
            )
        generator = load_generator(options.tokenizer, options.imports)
        rows = _tokenize(generator, given, options.tokenizer)
    with progress(True) as step:
        step(f"Running {options.exported} in a fresh process")
        outputs = exported.run(rows, names, seed=options.seed)
    if generator is None:
        return outputs
    return _detokenized(generator, outputs)


def _tokenize(
    generator: Any, texts: Sequence[str], path: Any
) -> list[list[int]]:
    """Returns the ids of each text, without padding after them."""
    _check_tokenizer(generator, path)
    import numpy as np

    ids = np.asarray(generator.source_tokenizer(list(texts)))
    is_token = ids != generator.source_tokenizer.pad_id
    lengths = (is_token * (1 + np.arange(ids.shape[1]))).max(1, initial=0)
    return [
        row[:length].tolist() for row, length in zip(ids, lengths, strict=True)
    ]


def _check_tokenizer(generator: Any, path: Any) -> None:
    if generator.source_tokenizer is None:
        raise UsageError(
            f"'{path}' has no tokenizer. Give ids instead of texts: --ids "
            '"5 7 3"'
        )


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> Any:
    import numpy as np

    shape = (len(rows), max(1, *map(len, rows)))
    ids = np.full(shape, pad_id, "int32")
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return ids


def _detokenized(generator: Any, outputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the same with texts, if the generator has a tokenizer."""
    if generator.detokenize is None:
        return outputs
    import numpy as np

    texts = np.asarray(generator.detokenize(outputs["ids"]))
    decoded = [text.decode(errors="replace") for text in texts.reshape(-1)]
    return {**outputs, "text": np.array(decoded, object).reshape(texts.shape)}


def _listed(outputs: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Returns the outputs of each text, the best first, ready for JSON."""
    kind = "text" if "text" in outputs else "ids"
    scores, values = outputs["score"], outputs[kind]
    columns = [values, scores]
    if "ended" in outputs:
        columns.append(outputs["ended"])
    if scores.ndim == 1:  # only one sequence for each text
        columns = [column[:, None] for column in columns]
    return [
        [
            {
                kind: value if kind == "text" else _tokens(value),
                "score": float(score),
                **({"ended": bool(*ended)} if ended else {}),
            }
            for value, score, *ended in zip(*row, strict=True)
            if not score < _NO_SEQUENCE
        ]
        for row in zip(*columns, strict=True)
    ]


def _tokens(row: Any) -> list[int]:
    # Padding is -1 where every id of the vocabulary is a token, else 0.
    pad_id = min(0, *map(int, row))
    return [int(each) for each in row if each != pad_id]


def _check_scores(
    found: Sequence[Sequence[dict[str, Any]]], names: Sequence[str], path: Any
) -> None:
    """Raises `UsageError` for a text longer than a model has positions.

    Beyond the last position, encodings are NaN, and so is the score of what
    follows; with beams there is no sequence then.
    """
    for name, outputs in zip(names, found, strict=True):
        scores = [output["score"] for output in outputs]
        if not scores or not all(map(math.isfinite, scores)):
            raise UsageError(
                f"{name} has no output: '{path}' gives NaN for it. It may be "
                "longer than the model has positions"
            )


def _line(output: dict[str, Any]) -> str:
    """Returns an output in one line."""
    if "ids" in output:
        return " ".join(map(str, output["ids"]))
    return output["text"].replace("\r", "\\r").replace("\n", "\\n")
