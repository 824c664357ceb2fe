"""Loading of a Hugging Face folder as an encoder, a decoder, or both."""

import base64
import importlib
import pkgutil
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import keras

from keras_posenc.checkpoints import families as _families
from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder
from keras_posenc.checkpoints.families.jina_bert import JinaBert
from keras_posenc.checkpoints.family import Family
from keras_posenc.checkpoints.folder import (
    ADDED,
    CONFIG,
    MERGES,
    MODULES,
    PAIRED,
    SETTINGS,
    SPECIAL,
    VOCABULARY,
    WHOLE,
    Folder,
)
from keras_posenc.checkpoints.heads import PROMPTS, SEQUENCE
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.checkpoints.tokenizers import LENGTHS
from keras_posenc.keras_internals import layers_within
from keras_posenc.text.files import read_bytes, shown
from keras_posenc.transformer.transformer import Transformer
from keras_posenc.transformer.transformer_decoder_model import (
    TransformerDecoderModel,
)

# The families by `model_type`, of the files of `families/`.
TYPES: dict[str, type[Family]] = {
    kind: value
    for module in pkgutil.iter_modules(_families.__path__)
    for value in vars(
        importlib.import_module(f"{_families.__name__}.{module.name}")
    ).values()
    if isinstance(value, type) and issubclass(value, Family)
    for kind in vars(value).get("types", ())
}
# Families under the type of another one, by `position_embedding_type`.
VARIANTS: dict[tuple[str, str], type[Family]] = {("bert", "alibi"): JinaBert}


def family_of(values: Mapping[str, Any], folder: Folder) -> tuple[str, Family]:
    """Returns a checkpoint's `model_type`, and a new object of its family."""
    path = folder.path / CONFIG
    config = Config(values, path)
    kind = config.take("model_type", None, str, type(None))
    types = ", ".join(sorted(TYPES))
    if kind is None:
        raise ValueError(
            f"'{path}' has no key 'model_type'. Write the type into the file, "
            'such as "model_type": "bert", if the model is of one of these: '
            f"{types}"
        )
    if kind not in TYPES:
        raise config.wrong(
            "model_type", f"'{kind}' is not supported, only {types}"
        )
    variant = kind, str(values.get("position_embedding_type"))
    return kind, VARIANTS.get(variant, TYPES[kind])()


# The initializers of models, by default.
_INITIALIZERS = {
    "kernel_initializer": "glorot_uniform",
    "embeddings_initializer": "uniform",
}
# What a folder has besides its config and its weights.
KEPT_FILES = (
    *(ADDED, MERGES, MODULES, PAIRED, SETTINGS, SPECIAL, VOCABULARY, WHOLE),
    *LENGTHS,
    *("chat_template.jinja", "chat_template.json", "generation_config.json"),
    *("preprocessor_config.json", PROMPTS, "target_vocab.json"),
    *("sentencepiece.bpe.model", "source.spm", "spiece.model", "target.spm"),
    "tokenizer.model",
)
_GENERATING = ("ForCausalLM", "LMHeadModel", "Model")


class _Awaited(keras.initializers.Zeros):
    """Zeros, until the checkpoint's numbers are assigned."""


def _begun(function: Callable[[], Any]) -> Future[Any]:
    """Runs a function in a thread, for which no process that ends waits."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


class Loading:
    """A checkpoint on its way to a model: `read`, `filled`, then `finish`."""

    def __init__(self, folder: Folder, encoder_only: bool = False) -> None:
        self.folder = folder
        self.values: Mapping[str, Any] = folder.mapping(CONFIG)
        kind, self.family = family_of(self.values, folder)
        self.values = self.family.values_of(self.values, self.path)
        self.kind = self.values.get("model_type", kind)
        names = self.values.get("architectures")
        name = str(names[0]) if isinstance(names, list) and names else ""
        if isinstance(self.family, EncoderDecoder):
            if encoder_only or name.endswith("EncoderModel"):
                self.family = self.family.as_encoder()
            elif name.endswith(SEQUENCE):
                self.family = self.family.as_classifier()
        elif isinstance(self.family, DecoderFamily):
            if encoder_only or folder.has(MODULES):
                self.family = self.family.as_encoder()
            elif names and not name.endswith(_GENERATING):
                raise ValueError(
                    f"'{self.path}', key 'architectures': {shown(names)} is "
                    "not supported: a decoder must be one that generates "
                    'text, such as ["LlamaForCausalLM"]'
                )
        models = (Transformer, TransformerDecoderModel)
        self.generates = self.family.model in models

    @property
    def path(self) -> Any:
        """The path of the config."""
        return self.folder.path / CONFIG

    def read(self, ignore_keys: Sequence[str]) -> None:
        """Reads the config, of which the tensors must be."""
        self.tensors = Tensors(self.folder)
        # Blocks may share their tensors, but at most a few do.
        config = Config(self.values, self.path, 4 * len(self.tensors.names))
        config.refuse_features()
        reading = self.family.read(config)
        config.finish(ignore_keys)
        self.family.check(reading, self.tensors, self.path)
        self.reading = self.family.settle(reading, self.tensors)

    def filled(self, **options: Any) -> Any:
        """Returns the model with these options and the weights."""
        awaited = dict.fromkeys(_INITIALIZERS, _Awaited())
        try:
            model = self.family.model(**options, **awaited)
        except ValueError as error:
            raise ValueError(
                f"'{self.path}' makes no model: {error}"
            ) from error
        self._digests = _begun(self.tensors.digests)
        for layer in layers_within(model):
            for key, usual in _INITIALIZERS.items():
                if isinstance(getattr(layer, key, None), _Awaited):
                    setattr(layer, key, keras.initializers.get(usual))
        prefix = self.family.prefix_in(self.tensors)
        parts = Parts(self.family, self.reading, self.tensors, prefix)
        self.family.match(model, parts)
        return model

    def finish(self, *unused: str) -> dict[str, Any]:
        """Returns where the model is from; all other tensors must be used."""
        self.tensors.finish([*self.family.unused, *unused])
        return {
            "model_type": self.kind,
            "revision": self.folder.revision,
            "sha256": self._digests.result(),
        }

    def kept(self, options: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Returns what `save_hugging_face` writes again, as JSON has it.

        `options` are the arguments of `load_hugging_face`; `name`, the name on
        the hub, or "".
        """
        folder, names = self.folder, [*KEPT_FILES]
        modules = folder.json(MODULES) if folder.has(MODULES) else []
        for each in modules if isinstance(modules, list) else []:
            path = each.get("path") if isinstance(each, dict) else None
            if path and isinstance(path, str):
                names.append(f"{path}/{CONFIG}")
        return {
            "config": {**self.values, "model_type": self.kind},
            "name": name,
            "files": {
                file: base64.b85encode(
                    zlib.compress(read_bytes(folder.file(file)))
                ).decode()
                for file in names
                if (folder.path / file).is_file()
            },
            "tensors": sorted(self.tensors.names),
            "options": {
                name: value
                for name, value in options.items()
                if value is not None
                and value is not False
                and value not in ([], "float32")
            },
        }
