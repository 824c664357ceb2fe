"""`keras-posenc import`: a Hugging Face checkpoint as a .keras model."""

import argparse
import json
from pathlib import Path

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, check_out, load_checkpoint
from keras_posenc_cli.options import Commands, add_command
from keras_posenc_cli.process import EXIT_OK

_OF_PYTHON = (
    *("from_ids", "pad_id", "pairs", "encoder_only", "max_length"),
    *("ignore_keys", "prompts", "truncate_dim", "output", "dtype"),
)
_DTYPES = ("float32", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16")


def add(commands: Commands) -> None:
    add_command(
        commands,
        "import",
        run,
        (
            "folder FOLDER",
            "local folder with config.json, *.safetensors and the files of the "
            "tokenizer",
            arguments.path,
        ),
        (
            "--out FILE.keras",
            "the file (default: the folder's name and .keras, in the working "
            "directory)",
            arguments.path,
        ),
        ("--from-ids", "a model that takes ids and needs no tokenizer"),
        (
            "--pad-id N",
            "the id that ids are padded with, for --from-ids (default: the "
            "tokenizer's)",
            int,
        ),
        (
            "--pairs",
            "a model that takes pairs of texts, as cross-encoders do",
        ),
        (
            "--encoder-only",
            "leave out the layers after the encoder: pooling, or a classifier",
        ),
        (
            "--max-length N",
            "the most ids of a text (default: as the checkpoint says)",
            arguments.length,
        ),
        (
            "--prompt NAME=TEXT",
            "text before others, of a sentence encoder: 'query=query: ' or "
            "'document=passage: '; may be repeated (default: the folder's)",
            arguments.by_name(arguments.prompt, "prompts"),
        ),
        (
            "--truncate-dim N",
            "keep the first N numbers of each vector",
            arguments.length,
        ),
        (
            "--output KIND",
            "vectors as float32, int8 (compare them by cosine) or binary "
            "(default: float32)",
            {"choices": ("float32", "int8", "binary"), "default": "float32"},
        ),
        (
            "--ignore-keys KEY",
            "keys of config.json that are not known, and that no output "
            "depends on",
            {"nargs": "+", "action": "extend", "default": []},
        ),
        (
            "--dtype POLICY",
            f"dtype policy of the encoder: {', '.join(_DTYPES)} (default: "
            "float32)",
            {"choices": _DTYPES},
        ),
        "--json",
        summary="write a Hugging Face checkpoint as a .keras model",
        description="Writes an encoder or a language model that Hugging Face's "
        "transformers, or sentence-transformers, saved as a .keras model. "
        "A name such as org/name is fetched from the hub, with the extra hub. "
        "No code of the folder is run. Needs "
        "keras-posenc[checkpoints].",
        example="import all-MiniLM-L6-v2 --out minilm.keras",
    )


def run(options: argparse.Namespace) -> int:
    if options.folder.parent.exists():  # else "org/name", of the hub
        check_exists(options.folder)
    out = options.out or Path(f"{_name(options.folder)}.keras")
    check_out(out, ".keras")
    given = {name: getattr(options, name) for name in _OF_PYTHON}
    model = load_checkpoint(options.folder, **given)
    from keras_posenc.export import units
    from keras_posenc.publish import publish_keras

    publish_keras(model, out)
    result = {
        "path": str(out),
        "labels": getattr(model, "labels", None),
        **model.origin,
    }
    size = units.size(out.stat().st_size)
    print(
        json.dumps(result, indent=2)
        if options.json
        else f"{out}: {result['model_type']}, {size}"
    )
    return EXIT_OK


def _name(folder: Path) -> str:
    """Returns the folder's name, or in a cache that of the model."""
    path = folder.resolve()
    if path.parent.name == "snapshots":
        return path.parent.parent.name.split("--")[-1]
    return path.name
