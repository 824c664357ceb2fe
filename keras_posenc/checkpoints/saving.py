"""Saves a Keras model to a folder that Hugging Face's libraries load."""

import base64
import os
import re
import zlib
from pathlib import Path
from typing import Any

import keras

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.description import described
from keras_posenc.checkpoints.families.t5 import T5
from keras_posenc.checkpoints.folder import CONFIG, MODULES, Folder
from keras_posenc.checkpoints.heads import PROMPTS, SEQUENCE
from keras_posenc.checkpoints.loading import KEPT_FILES, Loading
from keras_posenc.checkpoints.parts import Parts, WrittenTensors
from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator
from keras_posenc.checkpoints.read_back import core_of, read_back, takes_texts
from keras_posenc.checkpoints.sentence_embedding import written_modules
from keras_posenc.checkpoints.writing import write_json, write_tensors
from keras_posenc.progress import progress
from keras_posenc.publish import check_free, publish, staging_in, writing_to
from keras_posenc.text.files import MOST_BYTES, shown

# What the name of a class has after that of the architecture.
_HEADS = r"(For[A-Z]\w*|LMHeadModel|EncoderModel|Model)$"
_OF_MODULE = rf"\w[\w-]*/{re.escape(CONFIG)}"
# Options of `load_hugging_face` that no folder says.
_UNSAID = ("output", "truncate_dim", "image_size")


def save_hugging_face(
    model: keras.Model,
    folder: str | os.PathLike[str],
    *,
    verify: bool = True,
    verbose: bool = True,
) -> Path:
    """Writes a folder that `transformers` loads, with the same outputs.

    >>> import keras_posenc as kp
    >>> model = kp.load_hugging_face("bert-base-uncased")  # doctest: +SKIP
    >>> kp.save_hugging_face(model, "mine")  # doctest: +SKIP
    PosixPath('mine')

    Such a folder is what vLLM, llama.cpp, MLX and PEFT begin with, or their
    converters.

    A model that `load_hugging_face` made is written as what it was: with its
    config, the files of its tokenizer, its chat template and its modules of
    sentence-transformers, and with its weights of now. A model that was built
    here is written if it computes what a known architecture does: BERT,
    ModernBERT, Llama, Mistral, Qwen 2 and 3, OLMo 2 or GPT-2.

    Weights are float32. LoRA is merged into its kernels. What our models do
    not have is not written, or without effect: poolers of encoders, and heads
    of training; embeddings of token type 0 are zeros, and part of others.

    The folder appears when it is complete, and was loaded again in another
    process, with the same outputs there; and by transformers and
    sentence-transformers, where they are installed with PyTorch.

    Args:
        model: What `load_hugging_face` returned, trained or not; or a
            `TransformerEncoderModel`, a `TransformerDecoderModel`, or a
            `PretrainedModel` of a `WordpieceTokenizer` or none, an encoder,
            and nothing or a classifier of texts or tokens.
        folder: A folder that does not exist or is empty.
        verify: Whether the folder is loaded again before it appears.
        verbose: Whether to show slow steps, and what was compared, on standard
            error.

    Returns:
        The path of the folder.

    Raises:
        ExportError: The folder cannot be written to, the disk is full, or what
            is loaded from it has other outputs.
        FileExistsError: The folder is not empty.
        ImportError: The library `safetensors` is missing.
        ValueError: Such a folder cannot hold a part of the model, which the
            message names.
    """
    named = Path(folder).expanduser()
    path = named.resolve()  # a link stays
    check_free(path)
    kept = getattr(model, "checkpoint", None)
    with progress(verbose) as step, staging_in(path.parent) as staged:
        with writing_to(path.parent):
            staged.mkdir()
        if kept:
            step(f"Writing {named}")
            _write_as_loaded(model, staged)
        else:
            saved = described(model)
            step(f"Writing {named}")
            with writing_to(path.parent):
                for name, values in saved.files.items():
                    write_json(staged / name, values)
                write_json(staged / CONFIG, saved.config)
                write_tensors(staged, saved.tensors)
        if verify:
            step("Loading it in another process")
            options = {} if takes_texts(model) else {"from_ids": True}
            options = kept["options"] if kept else options
            step(f"Compared: {read_back(model, staged, options)}")
        with writing_to(path.parent):
            try:
                publish(staged, path)
            except OSError:
                check_free(path)  # another process was faster
                raise
    return named


def _write_as_loaded(model: Any, staged: Path) -> None:
    """Writes the folder of a checkpoint, with the weights of now."""
    options = model.checkpoint["options"]
    for name in _UNSAID:
        if name in options:
            raise ValueError(
                f"The model was loaded with {name}={options[name]!r}, which no "
                "folder says: load it without, train it, and save it"
            )
    with writing_to(staged.parent):
        parts, values = parts_of(model, staged, Parts)
    opened, tensors = Folder(staged), parts.tensors
    is_generator = isinstance(model, PretrainedGenerator)
    core = core_of(model)
    parts.family.match(core, parts)
    values["torch_dtype" if "torch_dtype" in values else "dtype"] = "float32"
    if not is_generator:
        after = model.layers[model.layers.index(core) + 1 :]
        architecture = (values.get("architectures") or [""])[0]
        if model.labels is None and architecture:
            of_encoder = (
                "EncoderModel" if isinstance(parts.family, T5) else "Model"
            )
            base = re.sub(_HEADS, "", architecture)
            values["architectures"] = [base + of_encoder]
        if model.labels is not None:
            _write_head(after, architecture, parts)
            values["id2label"] = dict(enumerate(model.labels))
            values["label2id"] = {x: i for i, x in enumerate(model.labels)}
    with writing_to(staged.parent):
        write_json(staged / CONFIG, values)
        write_tensors(staged, tensors.values)
        if opened.has(MODULES) and not is_generator and model.labels is None:
            written_modules(opened, after, options.get("prompts"))


def parts_of(model: Any, folder: Path, kind: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the parts of what was loaded, of this kind, and its config.

    Its files but the weights are written to the folder.
    """
    kept = model.checkpoint
    options = kept["options"]
    is_alone = options.get("encoder_only", False)
    for name, packed in kept["files"].items():
        # A `.keras` file may be a stranger's.
        is_module = re.fullmatch(_OF_MODULE, name) is not None
        if name not in KEPT_FILES and not is_module:
            raise ValueError(
                f"The model was saved with a file {shown(name)}, which no "
                "checkpoint has"
            )
        if is_alone and (is_module or name in (MODULES, PROMPTS)):
            continue
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(_unpacked(packed))
    write_json(folder / CONFIG, kept["config"])
    loading = Loading(Folder(folder), is_alone)
    tensors = WrittenTensors(kept["tensors"])
    family = loading.family
    values = {**kept["config"], **family.written(model)}
    config = Config(values, loading.path, 4 * len(tensors.names))
    prefix = family.prefix_in(tensors)
    return kind(family, family.read(config), tensors, prefix), values


def _unpacked(packed: str) -> bytes:
    reader = zlib.decompressobj()
    content = reader.decompress(base64.b85decode(packed), MOST_BYTES)
    if reader.unconsumed_tail:
        raise ValueError(
            "The model was saved with a file of more than "
            f"{MOST_BYTES / 2**20:.0f} MiB, which no checkpoint has"
        )
    return content


def _write_head(layers: Any, architecture: str, parts: Parts) -> None:
    """Writes the layers after an encoder, as `classification` named them."""
    family, pooler = parts.family, parts.reading.pooler
    is_sequence = architecture.endswith(SEQUENCE)
    classifier = family.classifier if is_sequence else "classifier"
    for layer in layers:
        match layer.name:
            case "pooler":
                prefix = family.prefix_in(parts.tensors)
                parts.projection(layer, pooler.part.format(prefix=prefix))
            case "pooler_norm":
                parts.norm_called(layer, pooler.norm)
            case "logits":
                parts.projection(layer, classifier)
