"""Loads a folder that Hugging Face's libraries saved, as a Keras model."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras

from keras_posenc.checkpoints.config import REQUIRED, Config
from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder
from keras_posenc.checkpoints.folder import CONFIG, MODULES, Folder
from keras_posenc.checkpoints.heads import (
    architecture_of,
    classification,
    is_cross_encoder,
    labels_of,
    scoring_of,
)
from keras_posenc.checkpoints.hub import fetched, is_on_hub
from keras_posenc.checkpoints.language_model import language_model
from keras_posenc.checkpoints.loading import Loading
from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator
from keras_posenc.checkpoints.pretrained_model import PretrainedModel
from keras_posenc.checkpoints.sentence_embedding import (
    check_options,
    refuse_options,
    sentence_embedding,
    with_default_prompt,
)
from keras_posenc.checkpoints.tensors import refuse_gguf
from keras_posenc.checkpoints.tokenizers import (
    padding_of_ids,
    padding_of_texts,
    pairing_of,
    tokenizer_of,
    vocabulary_of,
)
from keras_posenc.checks import (
    check_bool,
    check_names,
    check_positive_int,
    is_number,
)
from keras_posenc.keras_internals import without_collections
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
    revision: str | None = None,
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

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.load_hugging_face("all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> texts = np.array(["A text."], "object")
    >>> model.predict(texts).shape  # doctest: +SKIP
    (1, 384)

    The model takes strings or images, and returns what the checkpoint was
    trained for:

    - a folder with `modules.json` (sentence-transformers): one vector for each
      text, `(batch, dim)`, pooled and normalized as it says;
    - `...ForSequenceClassification` and `...ForImageClassification`: scores of
      `labels`, `(batch, labels)`, after softmax (sigmoid for several labels at
      once, or for one label);
    - `...ForTokenClassification`: scores of `labels` for each token,
      `(batch, seq, labels)`;
    - a decoder, `...ForCausalLM`: texts that continue texts, and the next
      message of a chat; an encoder and a decoder: texts made of texts, such as
      translations. See `PretrainedGenerator`;
    - any other encoder: contextual embeddings, `(batch, seq, dim)`; for images
      those of class tokens, then of patches.

    Images are `(batch, height, width, channels)`, float32, neither scaled nor
    cropped; pixels are numbers from 0 to 255 where a `preprocessor_config.json`
    says how they are normalized, else as in the encoder's training.

    Nothing is downloaded unless a model is named, and no code of the folder is
    run. Every key of its
    config and every tensor is used, or known not to affect the outputs; any
    other one is an error that names it. Dropout has one rate: that of the
    hidden states.

    Args:
        folder: A local folder with `config.json`, `*.safetensors` and the
            files of its tokenizer, or a revision in Hugging Face's cache; or
            the name of a model on the hub, such as
            `"HuggingFaceTB/SmolLM2-135M-Instruct"`, which the library
            `huggingface_hub` fetches into that cache, never pickled weights.
        revision: The commit, tag or branch of a model on the hub; the newest
            by default.
        from_ids: Whether the model takes ids, `(batch, seq)`, int32, instead
            of texts, and needs no tokenizer. Pairs for BERT and its
            descendants still need one, to find the second text.
        pad_id: The id of padding, for a model that takes ids. By default that
            of the folder's tokenizer, or of the config where the tokenizer's
            files do not say.
        pairs: Whether an example is two texts, `(batch, 2)`, as cross-encoders
            and entailment models take them, framed and cut as by the
            checkpoint's tokenizer. A cross-encoder of sentence-transformers
            scores a pair as its `CrossEncoder.predict` does.
        encoder_only: Whether to leave out the layers after the encoder.
        max_length: The most ids of a text, or of a pair, special tokens
            included; at most as many as the checkpoint has positions for. By
            default the length in the checkpoint.
        image_size: Height and width of the images, or a pair of them, for a
            model of images: multiples of its patch size, for which positions
            are interpolated as in transformers. By default the checkpoint's.
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
        ImportError: The library `safetensors` is missing, or, for a name on
            the hub, `huggingface_hub`.
        ValueError: A `model_type`, a key, a tensor or a tokenizer is not
            supported; a file is damaged; `ignore_keys` names a key that is
            absent or that outputs depend on; or, with `from_ids`, the id of
            padding is also that of a token.

    Warns:
        UserWarning: Weights are not finite; names their tensors. Or the start
            or an end symbol of a language model is not in its vocabulary, and
            is ignored.

    References:
        - [Wolf et al., 2019](https://arxiv.org/abs/1910.03771)
        - [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084)
    """
    check_bool("from_ids", from_ids)
    check_bool("pairs", pairs)
    check_bool("encoder_only", encoder_only)
    options_of_vectors = check_options(prompts, truncate_dim, output)
    _check_dtype(dtype)
    ignored = check_names("ignore_keys", ignore_keys)
    given = {
        "from_ids": from_ids,
        "pad_id": pad_id,
        "pairs": pairs,
        "encoder_only": encoder_only,
        "max_length": max_length,
        "image_size": image_size,
        "ignore_keys": ignored,
        "prompts": prompts,
        "truncate_dim": truncate_dim,
        "output": output,
        "dtype": keras.dtype_policies.get(
            keras.config.dtype_policy() if dtype is None else dtype
        ).name,
    }
    named = str(folder) if is_on_hub(folder) else ""
    if str(folder).endswith(".gguf"):
        refuse_gguf(Path(folder))
    opened = Folder(fetched(folder, revision, verbose))
    _check_is_checkpoint(opened)
    name = name or _name_of(opened)
    with progress(verbose) as step, without_collections():
        step(f"Loading {opened.path}")
        loading = Loading(opened, encoder_only)
        if loading.generates:
            refuse_options(options_of_vectors)
            _refuse(
                "is an option of encoders, and this checkpoint generates text: "
                "leave it out",
                pad_id=pad_id,
                pairs=pairs or None,
                max_length=max_length,
                image_size=image_size,
            )
            return language_model(
                loading,
                given=given,
                named=named,
                from_ids=from_ids,
                ignore_keys=ignored,
                dtype=dtype,
                name=name,
            )
        is_of_images = loading.family.model is VisionTransformerModel
        of_images = "must be False for a model of images"
        if is_of_images:
            _refuse(of_images, pairs=pairs or None)
        else:
            _refuse("must be None for a model of texts", image_size=image_size)
        if from_ids or is_of_images:
            why = "must be None for a model that takes no texts"
            _refuse(why, max_length=max_length)
        if not from_ids:
            why = "must be None for a model that takes no ids"
            _refuse(why, pad_id=pad_id)
        loading.read(ignored)
        if is_of_images:
            _refuse(of_images, from_ids=from_ids or None)
        options = dict(loading.reading.options)
        if image_size is not None:
            options["image_size"] = image_size
        if not is_of_images:
            options |= _padding(loading, options, from_ids, pad_id)
        tokenizer = None
        tells_apart = loading.reading.tells_texts_apart
        if pairs and (tells_apart or not from_ids):
            if from_ids and not vocabulary_of(opened):
                raise FileNotFoundError(
                    f"'{opened.path}' has no tokenizer, which says where the "
                    "second text of a pair begins: copy its files, such as "
                    "tokenizer.json, into the folder"
                )
            count, is_typed = pairing_of(opened)
            tokenizer = tokenizer_of(
                opened, SimpleNamespace(**options), num_separators=count
            )
            if is_typed and tells_apart:
                options["separator_id"] = tokenizer.end_id
        encoder = loading.filled(**options, dtype=dtype, name="encoder")
        after, said = _after(loading, encoder, encoder_only, options_of_vectors)
        origin = loading.finish(*[".*"] * encoder_only)
        front: list[Any] = []
        shape: tuple[int | None, ...]
        if is_of_images:
            shape, kind, takes = encoder.input_shape[1:], "float32", "images"
            front = preprocessing(opened)
        elif from_ids:
            shape, kind, takes = (None,), "int32", "ids"
        else:
            shape, kind, takes = (), "string", "text"
            if pairs:
                shape, takes = (2,), "pairs"
            front = [tokenizer or tokenizer_of(opened, encoder)]
            _limit(front[0], max_length, encoder)
        inputs = keras.Input(shape, dtype=kind, name=takes)
        model = PretrainedModel(
            [inputs, *front, encoder, *after],
            **said,
            origin=origin,
            checkpoint=loading.kept(given, named),
            name=name,
        )
        return with_default_prompt(model, opened)


def _padding(
    loading: Loading, options: Any, from_ids: bool, pad_id: int | None
) -> dict[str, Any]:
    """Returns the options of an encoder of ids that say what is padding."""
    folder, family = loading.folder, loading.family
    if isinstance(family, DecoderFamily):
        # Every id is a token: no other padding is masked by mistake.
        if pad_id is None:
            return {}
        size = options["vocabulary_size"]
        return {"pad_id": check_pad_id("pad_id", pad_id, size)}
    if from_ids:
        found = padding_of_ids(folder, options, loading.values, pad_id)
        return {"pad_id": found}
    found = padding_of_texts(folder, options)
    if isinstance(family, EncoderDecoder) and (
        family.model is not TransformerEncoderModel
    ):
        return {"pad_id": NO_ID}  # and so is "<pad>" of a text
    # A tokenizer pads at the end; a text may spell "[PAD]".
    return {"pad_id": found, "keep_inner_padding": True}


def _after(
    loading: Loading, encoder: Any, encoder_only: bool, options: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the layers after the encoder, and what is kept of them."""
    folder, values, family = loading.folder, loading.values, loading.family
    architecture = labels = None
    if not (encoder_only or isinstance(family, DecoderFamily)):
        architecture = architecture_of(values)
        labels = labels_of(architecture, values)
    is_of_sentences = folder.has(MODULES) and not (
        labels is not None and is_cross_encoder(folder)
    )
    if is_of_sentences and not encoder_only:
        return sentence_embedding(folder, encoder.d_model, **options)
    refuse_options(options)
    if architecture is None or labels is None:
        return [], {}
    scoring = scoring_of(folder, values)
    layers = classification(
        architecture, labels, loading, encoder.d_model, scoring
    )
    return layers, {"labels": labels}


def _refuse(why: str, **options: Any) -> None:
    """Raises `ValueError` for options that a kind of model does not have."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"`{name}` {why}. Received: {name}={value!r}")


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


def _check_is_checkpoint(folder: Folder) -> None:
    """Says what kind of folder it is where there is no config."""
    if folder.has(CONFIG):
        return
    refuse_gguf(folder.path)
    if folder.has("adapter_config.json"):
        raise ValueError(
            f"'{folder.path}' is an adapter, such as LoRA's, without its "
            "model. Load the model, and then the adapter: "
            "kp.training.load_lora(model, folder)"
        )
    raise FileNotFoundError(
        f"'{folder.path}' is no checkpoint of Hugging Face: it has no file "
        f"'{CONFIG}'"
    )


def _limit(tokenizer: Any, max_length: int | None, encoder: Any) -> None:
    empty = sum(tokenizer.frame) + (tokenizer.num_separators or 0)
    if max_length is not None:
        check_positive_int("max_length", max_length)
        position = encoder.input_position
        if (
            isinstance(position, PositionEmbedding)
            and max_length > position.sequence_length
        ):
            raise ValueError(
                f"`max_length` must be at most {position.sequence_length}, as "
                "many as the checkpoint has positions for. "
                f"Received: max_length={max_length}"
            )
        tokenizer.max_length = tokenizer._check_length("max_length", max_length)
    if tokenizer.max_length == empty:
        raise ValueError(
            f"`max_length` must be at least {empty + 1}: {empty} ids are "
            "special tokens, and nothing would be left of any text. "
            f"Received: max_length={empty}, given or the checkpoint's own"
        )


def _name_of(folder: Folder) -> str:
    path = folder.path.resolve()
    if folder.revision is not None:  # models--who--name/snapshots/revision
        path = path.parent.parent
    name = path.name.rpartition("--")[2].lower()
    name = "".join(c if c.isalnum() else "_" for c in name)
    return name.strip("_") or "model"


PREPROCESSOR = "preprocessor_config.json"


def preprocessing(folder: Folder) -> list[Any]:
    """Returns the layer that normalizes pixels, in a list, or none."""
    if not folder.has(PREPROCESSOR):
        return []
    config = Config(folder.mapping(PREPROCESSOR), folder.path / PREPROCESSOR)
    scale, offset = [1.0], [0.0]
    if config.expect("do_rescale", True, False):
        scale = [config.positive("rescale_factor", 1 / 255)]
    if config.expect("do_normalize", True, False):
        mean, deviation = (
            config.take(f"image_{of}", REQUIRED, list) for of in ("mean", "std")
        )
        for each in (*mean, *deviation):
            if not is_number(each):
                raise config.wrong("image_mean", "it must be of numbers")
        if len(mean) != len(deviation) or 0 in deviation:
            raise config.wrong(
                "image_std", "it must have a number above 0 for each channel"
            )
        offset = [-m / d for m, d in zip(mean, deviation, strict=True)]
        scale = [scale[0] / d for d in deviation]
    config.expect("do_flip_channel_order", False)
    return [keras.layers.Rescaling(scale, offset, name="preprocessing")]
