"""`keras-posenc generate`: runs a generator on texts."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, load_generator
from keras_posenc_cli.options import Commands, add_command
from keras_posenc_cli.process import EXIT_OK, UsageError

STANDARD_INPUT = "-"

# A search returns -3.4e38, the lowest float32, if it found no sequence.
_NO_SEQUENCE = -3e38


def add(commands: Commands) -> None:
    add_command(
        commands,
        "generate",
        run,
        (
            "model MODEL.keras",
            "file of a generator, or a Hugging Face checkpoint",
            arguments.path,
        ),
        (
            "texts TEXT",
            "a text, or - for the lines of standard input",
            {"nargs": "+"},
        ),
        (
            "--ids",
            "take ids, separated by spaces or commas, instead of texts",
        ),
        "--seed",
        "--import",
        [
            ("--scores", "print the score and a tab before each output"),
            "--json",
        ],
        summary="generate texts with a generator",
        description="Generates one line for each text; the n best, the best "
        "first, if the generator has n_best. To run an exported generator on "
        "files of texts use `keras-posenc score`.",
        example='generate dates.keras "7 March 2024" 3/7/24',
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.model)
    given: Sequence[Any] = _read(options.texts)
    if options.ids:
        given = [*map(_ids, given)]
    found = _listed(_outputs(options, given))
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
    if cut := sum(not output.get("ended", True) for output in every):
        print(
            f"keras-posenc: {cut} of {len(every)} outputs were cut off at "
            "max_length, without an end symbol",
            file=sys.stderr,
        )
    return EXIT_OK


def _read(given: Sequence[str]) -> list[str]:
    """Returns the texts, with those of standard input."""
    texts: list[str] = []
    for text in given:
        texts += _lines() if text == STANDARD_INPUT else [text]
    if not texts:
        raise UsageError("standard input holds no line")
    for number, text in enumerate(texts, 1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"text {number} is no UTF-8") from error
    return texts


def _ids(text: str) -> list[int]:
    try:
        return arguments.ids(text)
    except ValueError as error:
        raise UsageError(
            "with --ids a text must be ids, integers above 0 separated by "
            f"spaces or commas. Received: '{text}'"
        ) from error


def _lines() -> list[str]:
    if sys.stdin is None:  # closed by the shell: <&-
        return []
    # Not in the locale's encoding; invalid UTF-8 is reported with its line.
    content = sys.stdin.buffer.read().decode("utf-8-sig", "surrogateescape")
    lines = content.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _outputs(
    options: argparse.Namespace, given: Sequence[Any]
) -> dict[str, Any]:
    """Returns the outputs for texts, or for ids, by name."""
    generator = load_generator(options.model, options.imports)
    if options.seed is not None and not generator.is_drawn:
        raise UsageError(f"--seed: '{options.model}' does not sample")
    import keras
    import numpy as np

    tokenizer, pad_id = generator.source_tokenizer, generator.model.pad_id
    if options.ids:
        ids = keras.utils.pad_sequences(given, padding="post", value=pad_id)
    elif tokenizer is None:
        raise UsageError(
            f"'{options.model}' has no tokenizer. Give ids instead of texts: "
            '--ids "5 7 3"'
        )
    else:
        ids = np.asarray(tokenizer([*given]))
    generator.search.check_inputs(ids)
    model, inputs = generator.offered_signatures()["from_ids"], ids
    if generator.is_drawn:
        # Equal on all machines, and in exported files.
        rng = np.random.default_rng(options.seed)
        shape = len(ids), generator.max_length
        inputs = [ids, rng.random(shape, "float32")]
    found = dict(model.predict(inputs, verbose=0))
    generator.search.check_scores(found["score"], of_beams=generator.beams > 1)
    if generator.detokenize is not None and not options.ids:
        texts = np.asarray(generator.detokenize(found["ids"]))
        decoded = [text.decode(errors="replace") for text in texts.ravel()]
        found["text"] = np.array(decoded, object).reshape(texts.shape)
    return found


def _listed(outputs: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Returns the outputs of each text, the best first, ready for JSON."""
    kind = "text" if "text" in outputs else "ids"
    names = [x for x in (kind, "score", "ended") if x in outputs]
    columns = [outputs[name] for name in names]
    if outputs["score"].ndim == 1:  # only one sequence for each text
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


def _line(output: dict[str, Any]) -> str:
    """Returns an output in one line."""
    if "ids" in output:
        return " ".join(map(str, output["ids"]))
    return output["text"].replace("\r", "\\r").replace("\n", "\\n")
