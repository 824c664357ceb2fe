"""The family of a checkpoint, by its `model_type` or without one."""

import importlib
import pkgutil
import re
from collections.abc import Mapping
from typing import Any

from keras_posenc.checkpoints import families as _families
from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder
from keras_posenc.checkpoints.families.jina_bert import JinaBert
from keras_posenc.checkpoints.family import Family
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.checkpoints.tokenizers import CONFIG

# Each file of `families/` has some, with the types that are read by them.
_ALL: list[type[Family]] = [
    value
    for module in pkgutil.iter_modules(_families.__path__)
    for value in vars(
        importlib.import_module(f"{_families.__name__}.{module.name}")
    ).values()
    if isinstance(value, type) and "types" in vars(value)
]


def _by_type(base: type[Family]) -> dict[str, type[Family]]:
    return {
        kind: family
        for family in _ALL
        if issubclass(family, base)
        for kind in vars(family)["types"]
    }


# Decoders, which generate text; some are sentence encoders too.
DECODERS = _by_type(DecoderFamily)
# Encoders with decoders, which write other texts, such as translations.
ENCODER_DECODERS = _by_type(EncoderDecoder)
FAMILIES = {
    kind: family
    for kind, family in _by_type(Family).items()
    if kind not in {**DECODERS, **ENCODER_DECODERS}
}
# Families under the type of another one, by `position_embedding_type`.
VARIANTS: dict[tuple[str, str], type[Family]] = {("bert", "alibi"): JinaBert}

# What class names of `architectures` begin with, before "Model" or "For...".
_CLASSES = {
    name: kind
    for family in _ALL
    for kind, name in vars(family)["types"].items()
}
_CLASS = re.compile(r"(\w+?)(MTModel|Model|LMHeadModel|For[A-Z]\w*)")

# Types that are no encoders, or none that is supported: what they are.
_DECODER = "a decoder"
_BOTH = "an encoder and a decoder"
_OTHERS: dict[str, str] = {
    **dict.fromkeys(
        """
        bloom codegen cohere cohere2 ctrl deepseek_v2 deepseek_v3 exaone4 falcon
        falcon_mamba gemma gemma2 gemma3 gemma3n gemma4 gemma4_text glm glm4
        gpt_bigcode gpt_neo gpt_neox gpt_oss gptj internlm3 llama4 llama4_text
        mamba mamba2 ministral ministral3 mistral3 mixtral modernbert-decoder
        mpt nemotron olmo olmo3 openai-gpt opt phi phimoe qwen2_moe
        qwen3_5 qwen3_5_text qwen3_moe qwen3_next recurrent_gemma rwkv stablelm
        starcoder2 xglm
        """.split(),
        _DECODER,
    ),
    **dict.fromkeys(
        """
        bigbird_pegasus blenderbot blenderbot-small encoder-decoder fsmt
        led longt5 m2m_100 mvp nllb-moe pegasus pegasus_x plbart prophetnet
        switch_transformers t5gemma t5gemma2 umt5 vision-encoder-decoder
        whisper
        """.split(),
        _BOTH,
    ),
    "deberta": "DeBERTa of version 1, whose attention differs from that of "
    "versions 2 and 3",
    "dinov2_with_registers": "DINOv2 with register tokens",
    "jina_embeddings_v3": "an encoder with an adapter for each task",
    "xlm-roberta-xl": "XLM-R with norms before attention, not after it",
}


def family_of(values: Mapping[str, Any], folder: Folder) -> tuple[str, Family]:
    """Returns a checkpoint's `model_type`, and a new object of its family.

    Args:
        values: The config.
        folder: With the tensors, whose names tell the family if the config
            does not.

    Raises:
        ValueError: The type is not supported, or cannot be told.
    """
    path = folder.path / CONFIG
    config = Config(values, path)
    kind = config.take("model_type", None, str, type(None))
    types = ", ".join(sorted({**FAMILIES, **DECODERS, **ENCODER_DECODERS}))
    if kind is None:
        kind = _by_class(values) or _by_tensors(Tensors(folder))
        if kind is None:
            raise ValueError(
                f"'{path}' has no key 'model_type', and neither its "
                "'architectures' nor the names of the tensors tell it. Write "
                f'the type into the file, such as "model_type": "bert", if '
                f"the model is of one of these: {types}"
            )
    if kind in _OTHERS:
        more = "; keras-hub has decoders" * ("decoder" in _OTHERS[kind])
        raise config.wrong(
            "model_type",
            f"'{kind}' is {_OTHERS[kind]}, which is not supported. "
            f"load_hugging_face reads models of the types {types}{more}",
        )
    families: Mapping[str, type[Family]]
    for families in (DECODERS, ENCODER_DECODERS):
        if kind in families:
            return kind, families[kind]()
    if kind not in FAMILIES:
        raise config.wrong(
            "model_type", f"'{kind}' is not supported, only {types}"
        )
    position = values.get("position_embedding_type")
    variant = (kind, position) if isinstance(position, str) else (kind, "")
    return kind, VARIANTS.get(variant, FAMILIES[kind])()


def _by_class(values: Mapping[str, Any]) -> str | None:
    """Returns the type that the name of the model's class begins with."""
    names = values.get("architectures")
    if not isinstance(names, list) or not names:
        return None
    found = _CLASS.fullmatch(str(names[0]))
    return None if found is None else _CLASSES.get(found[1])


def _by_tensors(tensors: Tensors) -> str | None:
    """Returns the type of the one family that names its tensors so.

    Names without the family's own prefix, such as "bert.", are those of
    several families.
    """
    found = []
    for kind, family in FAMILIES.items():
        part = "query" if "query" in family.names else "query_key_value"
        needed = [
            f"{family.prefix}{family.names[name].format(0)}.weight"
            for name in ("embedding", part)
            if name in family.names
        ]
        if (
            family.prefix != "model."  # which decoders have too
            and len(needed) == 2
            and all(name in tensors for name in needed)
        ):
            found.append(kind)
    if len({FAMILIES[kind].prefix for kind in found}) != 1:
        return None
    # Of types that are read alike, the one that the others derive from.
    return min(found, key=lambda kind: len(FAMILIES[kind].__mro__))
