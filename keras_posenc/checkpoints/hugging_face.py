"""Loads a folder that Hugging Face's libraries saved, as a Keras model."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras

from keras_posenc.checkpoints.blank import blank
from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder, as_read
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.heads import (
    architecture_of,
    classification,
    is_cross_encoder,
    labels_of,
    scoring_of,
)
from keras_posenc.checkpoints.images import preprocessing
from keras_posenc.checkpoints.language_model import generates, language_model
from keras_posenc.checkpoints.model_types import family_of
from keras_posenc.checkpoints.padding import (
    padding_of_ids,
    padding_of_texts,
)
from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator
from keras_posenc.checkpoints.pretrained_model import PretrainedModel
from keras_posenc.checkpoints.sentence_embedding import (
    check_options,
    refuse_options,
    sentence_embedding,
    with_default_prompt,
)
from keras_posenc.checkpoints.tensors import Tensors, refuse_gguf
from keras_posenc.checkpoints.tokenizers import (
    CONFIG,
    MODULES,
    pairing_of,
    tokenizer_of,
    vocabulary_of,
)
from keras_posenc.checks import check_bool, check_positive_int
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.progress import printable_errors, progress
from keras_posenc.transformer._embeddings import NO_ID, check_pad_id
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)
from keras_posenc.transformer.vision_transformer_model import (
    VisionTransformerModel,
)


@printable_errors()
def load_hugging_face(
    folder: str | os.PathLike[str],
    *,
    from_ids: bool = False,
    pad_id: int | None = None,
    pairs: bool = False,
    encoder_only: bool = False,
    max_length: int | None = None,
    image_size: int | Sequence[int] | None = None,
    ignore_keys: Sequence[str] = (),
    prompts: Mapping[str, str] | None = None,
    truncate_dim: int | None = None,
    output: str = "float32",
    dtype: Any = None,
    name: str | None = None,
    verbose: bool = True,
) -> PretrainedModel | PretrainedGenerator:
    """Returns a Keras model from a checkpoint of Hugging Face.

    The model takes strings or images, and returns what the checkpoint was
    trained for:

    - a folder with `modules.json` (sentence-transformers): one vector for each
      text, `(batch, dim)`, pooled and normalised as it says;
    - `...ForSequenceClassification`: scores of `labels`, `(batch, labels)`,
      after softmax (sigmoid for several labels at once, or for one label);
    - `...ForTokenClassification`: scores of `labels` for each token,
      `(batch, seq, labels)`;
    - `...ForImageClassification`: scores of `labels` of an image,
      `(batch, labels)`;
    - a decoder, `...ForCausalLM`: texts that continue texts, and the next
      message of a chat; an encoder and a decoder: texts made of texts, such as
      translations. See `PretrainedGenerator`;
    - any other encoder: contextual embeddings, `(batch, seq, dim)`; for images
      those of class tokens, then of patches.

    Texts are cut at the length in the checkpoint, or at `max_length`.

    Images are `(batch, height, width, channels)`, float32, of the size that
    the checkpoint has positions for, or of `image_size`: then the positions
    are interpolated once, as transformers does (`interpolate_pos_encoding`).
    Images are neither scaled nor cropped. With a `preprocessor_config.json`
    pixels are numbers from 0 to 255, which the model normalises as it says;
    without one, pixels must be as in the encoder's training.

    Nothing is downloaded and no code of the folder is run. Every key of its
    config and every tensor is used, or known not to affect the outputs; any
    other one is an error that names it. Dropout has one rate: that of the
    hidden states.

    With `pairs` an example is two texts, `(batch, 2)`, as cross-encoders and
    entailment models take them, framed and cut as the checkpoint's tokenizer
    does; tokens after the first end token have type 1, in models with token
    types. A cross-encoder of sentence-transformers scores a pair as its
    `CrossEncoder.predict` does, with the activation that the folder names.

    Args:
        folder: A local folder with `config.json`, `*.safetensors` and the
            files of its tokenizer, or a revision in Hugging Face's cache.
        from_ids: Whether the model takes ids, `(batch, seq)`, int32, instead
            of texts, and needs no tokenizer. Pairs for BERT and its
            descendants still need one, to find the second text.
        pad_id: The id of padding, for a model that takes ids. By default that
            of the folder's tokenizer, or of the config where the tokenizer's
            files do not say.
        pairs: Whether the model takes pairs of texts instead of single ones.
        encoder_only: Whether to leave out the layers after the encoder.
        max_length: The most ids of a text, or of a pair, special tokens
            included; at most as many as the checkpoint has positions for. By
            default the length in the checkpoint.
        image_size: Height and width of the images, or a pair of them, for a
            model of images: multiples of its patch size. By default the
            checkpoint's own.
        ignore_keys: Keys of `config.json` that are not known here and that no
            output depends on, such as notes of whoever wrote the file. Without
            this, such keys are an error.
        prompts: Texts that come before others, by name, of a sentence
            encoder: `encode_query` takes "query", `encode_document` takes
            "document", or else "passage" or "corpus". They come before those
            of the checkpoint.
        truncate_dim: How many numbers of each vector of a sentence encoder are
            kept. If the checkpoint makes its vectors of length 1, these are
            made so again. Only a model that was trained for this (Matryoshka)
            finds nearly as much by shorter vectors. Most checkpoints do not
            say whether they were: see the model card.
        output: "float32", or how the vectors of a sentence encoder are rounded:
            "int8", to compare by cosine only, see `Int8Quantization`, or
            "binary", see `BinaryQuantization`.
        dtype: Dtype or dtype policy of the encoder; Keras's by default.
        name: Name of the model; the folder's by default.
        verbose: Whether to show slow steps on standard error.

    Returns:
        A `PretrainedModel`, a `Sequential` with the attributes `encoder`,
        `labels` and `origin`; for a language model a `PretrainedGenerator`.

    Raises:
        FileNotFoundError: The folder, or a file that it must have, is missing.
        ImportError: The library `safetensors` is missing.
        ValueError: A `model_type`, a key, a tensor or a tokenizer is not
            supported; a file is damaged; `ignore_keys` names a key that is
            absent or that outputs depend on; or, with `from_ids`, the id of
            padding is also that of a token.

    Warns:
        UserWarning: Weights are not finite; names their tensors. Or the
            checkpoint does not list `truncate_dim` among the sizes that its
            vectors may be cut to (`matryoshka_dims` of `config.json` or of
            `config_sentence_transformers.json`). Or the start or an end symbol
            of a language model is not in its vocabulary, and is ignored.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.load_hugging_face("all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> texts = np.array(["A text."], "object")
    >>> model.predict(texts).shape  # doctest: +SKIP
    (1, 384)

    References:
        - [Wolf et al., 2019](https://arxiv.org/abs/1910.03771)
        - [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084)
    """
    check_bool("from_ids", from_ids)
    check_bool("pairs", pairs)
    check_bool("encoder_only", encoder_only)
    options_of_vectors = check_options(prompts, truncate_dim, output)
    _check_dtype(dtype)
    ignored = _check_names("ignore_keys", ignore_keys)
    if str(folder).endswith(".gguf"):
        refuse_gguf(Path(folder))
    opened = Folder(folder)
    _check_is_checkpoint(opened)
    values = opened.mapping(CONFIG)
    kind, family = family_of(values, opened)
    family = as_read(family, values, encoder_only)
    is_of_images = family.model is VisionTransformerModel
    with progress(verbose) as step:
        step(f"Loading {opened.path}")
        if not encoder_only and generates(family, opened):
            refuse_options(options_of_vectors)
            _refuse_of_encoders(
                pad_id=pad_id,
                pairs=pairs or None,
                max_length=max_length,
                image_size=image_size,
            )
            return language_model(
                family,
                opened,
                from_ids=from_ids,
                ignore_keys=ignored,
                dtype=dtype,
                name=name or _name_of(opened),
            )
        if isinstance(family, DecoderFamily):
            family = family.as_encoder()
        tensors = Tensors(opened)
        path = opened.path / CONFIG
        # Blocks may share their tensors, but at most a few do.
        config = Config(values, path, 4 * len(tensors.names))
        config.refuse_features()
        options = family.options(config)
        config.finish(ignored)
        family.check(options, tensors, path)
        options = family.settle(options, tensors)
        if image_size is not None:
            if not is_of_images:
                raise ValueError(
                    "`image_size` must be None for a model of texts. "
                    f"Received: image_size={image_size!r}"
                )
            options["image_size"] = image_size
        is_of_texts = not (from_ids or is_of_images)
        if max_length is not None and not is_of_texts:
            raise ValueError(
                "`max_length` must be None for a model that takes no texts. "
                f"Received: max_length={max_length!r}"
            )
        if pad_id is not None and not from_ids:
            raise ValueError(
                "`pad_id` must be None for a model that takes no ids. "
                f"Received: pad_id={pad_id!r}"
            )
        if isinstance(family, DecoderFamily):
            # Every id is a token: no other padding is masked by mistake.
            if pad_id is not None:
                options["pad_id"] = check_pad_id(
                    "pad_id", pad_id, options["vocabulary_size"]
                )
        elif is_of_texts:
            options["pad_id"] = padding_of_texts(opened, options)
            if family.model is TransformerEncoderModel:
                # A tokenizer pads at the end; a text may spell "[PAD]".
                options["keep_inner_padding"] = True
            elif isinstance(family, EncoderDecoder):
                options["pad_id"] = NO_ID  # and so is "<pad>" of a text
        elif not is_of_images:
            options["pad_id"] = padding_of_ids(opened, options, values, pad_id)
        tokenizer = None
        if pairs and is_of_images:
            raise ValueError(
                "`pairs` must be False for a model of images. "
                "Received: pairs=True"
            )
        needs_tokenizer = family.tells_texts_apart or not from_ids
        if pairs and needs_tokenizer:
            if from_ids and not vocabulary_of(opened):
                raise FileNotFoundError(
                    f"'{opened.path}' has no tokenizer, which says where the "
                    "second text of a pair begins: copy its files, such as "
                    "tokenizer.json, into the folder"
                )
            count, is_typed = pairing_of(opened)
            tokenizer = tokenizer_of(
                opened,
                SimpleNamespace(**options),
                num_separators=count,
            )
            if is_typed and family.tells_texts_apart:
                options["separator_id"] = tokenizer.end_id
        try:
            encoder = blank(family, **options, dtype=dtype, name="encoder")
        except ValueError as error:
            raise ValueError(f"'{path}' makes no model: {error}") from error
        family.fill(encoder, tensors)
        unused = list(family.unused)
        after: list[Any] = []
        architecture = labels = None
        said: dict[str, Any] = {}
        if not encoder_only and not isinstance(family, DecoderFamily):
            architecture = architecture_of(values)
            labels = labels_of(architecture, values)
        if encoder_only:
            unused.append(".*")
        elif opened.has(MODULES) and not (
            labels is not None and is_cross_encoder(opened)
        ):
            after, said = sentence_embedding(
                opened, encoder.d_model, values, **options_of_vectors
            )
            labels, options_of_vectors = None, {}
        elif labels is not None:
            assert architecture is not None
            after = classification(
                architecture,
                labels,
                values,
                family,
                tensors,
                encoder.d_model,
                scoring_of(opened, values),
            )
        refuse_options(options_of_vectors)
        tensors.finish(unused)
        front = _front(opened, encoder, from_ids, tokenizer)
        if max_length is not None:
            _limit(front[-1], max_length, encoder)
        if is_of_texts:
            _check_room(front[-1])
        origin = {
            "model_type": kind,
            "revision": opened.revision,
            "sha256": tensors.digests(),
        }
        named: Any = {"origin": origin, "name": name or _name_of(opened)}
        model = PretrainedModel(
            [*front, encoder, *after], labels=labels, **said, **named
        )
        return with_default_prompt(model, opened)


def _refuse_of_encoders(**options: Any) -> None:
    """Raises `ValueError` for options that a language model does not have."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"`{name}` is an option of encoders, and this checkpoint "
                f"generates text: leave it out. Received: {name}={value!r}"
            )


def _check_dtype(dtype: Any) -> None:
    try:
        policy = keras.dtype_policies.get(dtype)
        if "float" in policy.compute_dtype:
            return
    except (TypeError, ValueError):
        pass
    raise ValueError(
        "`dtype` must be a dtype of floats, or a dtype policy, such as "
        f"'float32' or 'mixed_bfloat16'. Received: dtype={dtype!r}"
    )


def _check_names(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not (
        isinstance(value, Sequence)
        and all(isinstance(each, str) for each in value)
    ):
        raise ValueError(
            f"`{name}` must be a list of strings. Received: {name}={value!r}"
        )
    return list(value)


def _check_is_checkpoint(folder: Folder) -> None:
    """Says what kind of folder it is where there is no config."""
    if folder.has(CONFIG):
        return
    refuse_gguf(folder.path)
    saved = "saved_model.pb"
    if folder.has(saved) or any(folder.path.glob(f"*/{saved}")):
        raise ValueError(
            f"'{folder.path}' is a SavedModel, or a folder of its versions, "
            "and `folder` must be a checkpoint of Hugging Face"
        )
    if folder.has("adapter_config.json"):
        raise ValueError(
            f"'{folder.path}' is an adapter, such as LoRA's, without its "
            "model. Merge the two with the library peft: "
            "AutoPeftModel.from_pretrained(folder).merge_and_unload()"
            ".save_pretrained(merged)"
        )
    raise FileNotFoundError(
        f"'{folder.path}' is no checkpoint of Hugging Face: it has no file "
        f"'{CONFIG}'"
    )


def _limit(tokenizer: Any, max_length: int, encoder: Any) -> None:
    """Sets another `max_length` of a tokenizer that was not called yet."""
    check_positive_int("max_length", max_length)
    position = encoder.input_position
    if (
        isinstance(position, PositionEmbedding)
        and max_length > position.sequence_length
    ):
        raise ValueError(
            f"`max_length` must be at most {position.sequence_length}, as many "
            "as the checkpoint has positions for. "
            f"Received: max_length={max_length}"
        )
    tokenizer.max_length = tokenizer._check_length("max_length", max_length)


def _check_room(tokenizer: Any) -> None:
    """Raises `ValueError` if only special tokens have place."""
    empty = sum(tokenizer.frame) + (tokenizer.num_separators or 0)
    if tokenizer.max_length == empty:
        raise ValueError(
            f"`max_length` must be at least {empty + 1}: {empty} ids are "
            "special tokens, and nothing would be left of any text. "
            f"Received: max_length={empty}, given or the checkpoint's own"
        )


def _front(
    folder: Folder, encoder: Any, from_ids: bool, of_pairs: Any
) -> list[Any]:
    """Returns the input, and the layers between it and the encoder.

    `of_pairs` is the tokenizer of a model of pairs of texts.
    """
    if isinstance(encoder, VisionTransformerModel):
        if from_ids:
            raise ValueError(
                "`from_ids` must be False for a model of images. "
                "Received: from_ids=True"
            )
        images = keras.Input(
            encoder.input_shape[1:], dtype="float32", name="images"
        )
        return [images, *preprocessing(folder)]
    if from_ids:
        return [keras.Input((None,), dtype="int32", name="ids")]
    if of_pairs is not None:
        return [keras.Input((2,), dtype="string", name="pairs"), of_pairs]
    text = keras.Input((), dtype="string", name="text")
    return [text, tokenizer_of(folder, encoder)]


def _name_of(folder: Folder) -> str:
    path = folder.path.resolve()
    if folder.revision is not None:  # models--who--name/snapshots/revision
        path = path.parent.parent
    name = "".join(c if c.isalnum() else "_" for c in path.name.lower())
    return name.strip("_") or "model"
