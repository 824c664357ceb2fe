"""Export to LiteRT-LM packages (.litertlm): texts on phones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export import pipeline
from keras_posenc.export.arguments import shares_arguments
from keras_posenc.export.errors import check_model, check_verify
from keras_posenc.export.formats.litertlm import LiteRTLM
from keras_posenc.export.formats.litertlm_embedder import (
    Embedder,
    check_lengths,
)
from keras_posenc.export.formats.litertlm_package import (
    plain_tokenizer,
    require_builder,
)
from keras_posenc.export.formats.litertlm_run import require_engine
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.samples import split_texts
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.versions import check_file

_CACHE = 2048


@shares_arguments
def export_litertlm(  # noqa: D417
    model: keras.Model,
    path: str | Path,
    *,
    quantization: Any = None,
    lengths: Sequence[int] | None = None,
    prefill_lengths: Sequence[int] | None = None,
    cache_length: int | None = None,
    verify: bool = True,
    samples: Any = None,
    tolerance: float | None = None,
    limits: Mapping[str, float] | None = None,
    verbose: int = True,
) -> ExportedModel:
    """Exports a language model or a text embedder as a LiteRT-LM package.

    >>> import keras_posenc as kp
    >>> model = kp.TransformerDecoderModel(
    ...     260, d_model=16, num_layers=1, num_heads=2, intermediate_dim=32
    ... )
    >>> generator = kp.Generator(
    ...     model, source_tokenizer=kp.ByteTokenizer(add_end=False)
    ... )
    >>> kp.export_litertlm(
    ...     generator,
    ...     "tiny.litertlm",
    ...     prefill_lengths=(8, 16),
    ...     cache_length=64,
    ... )  # doctest: +SKIP

    LiteRT-LM is Google's engine for such models on Android, iOS, the web and
    desktops. A package is one file that holds the model, its tokenizer, the ids
    that start and end a text and, of a language model, the template of chats.

    The package appears in one step, after LiteRT-LM's own engine has run it in
    a process without Keras. A language model must make the tokenizer's ids of
    some 500 texts, give the model's log-probabilities, and render a chat by its
    template; a text embedder must give the vectors of texts of many kinds. What
    a quantized one loses is measured.

    Needs the extra `litertlm`.

    Args:
        model: A `Generator` or `PretrainedGenerator` of a
            `TransformerDecoderModel`, with its tokenizer and an end symbol, in
            float32. Its sampling becomes the engine's default; other options,
            such as `beams`, have no place in a package. Or a `PretrainedModel`
            from single texts to vectors, as `load_hugging_face` makes it from a
            folder with `modules.json`.
        path: The file, ending in `.litertlm`. An earlier file is replaced; the
            folder is made if missing.
        quantization: Of a language model None, `"float16"`, `"int8"`,
            `"int8-weights"`, `"int4"` or a recipe, as for `export_litert`; of
            an embedder None, `"float16"` or `"int8"`.
        lengths: Of an embedder, the numbers of tokens that it has a signature
            for: a text takes the time of the shortest one that it fits into. By
            default 64, 128, 256 and 512, up to the longest text of the model.
        prefill_lengths: Of a language model, sizes of the chunks in which
            prompts are read; by default those of 32, 128 and 512 that fit into
            the cache. A chunk that is not full takes the time of a full one,
            and must fit into the cache: give several.
        cache_length: Of a language model, how many tokens a chat may have,
            replies included; by default 2048. Memory grows with it, and so does
            the time of each token.
        samples: Further texts to verify with. Of a quantized language model the
            perplexity is measured on them too: those of your application say
            most.
        limits: Of a quantized package, what it may lose, by name: of a language
            model `"kl"` and `"perplexity"`, in the engine; of an embedder
            `"sqnr"` and `"cosine"`: see `verify_export`.

    Returns:
        An `ExportedModel`: its `path` and its `report`.

    Raises:
        ImportError: The extra `litertlm` is not installed.
        ValueError: A wrong argument, or a model that the engine cannot run.
        ExportError: As `export_litert`.
        ExportVerificationError: The package does something else than the
            model. No file is left.
    """
    check_model(model, "export_litertlm")
    path = check_file(path, ".litertlm")
    require_builder()
    if verify:
        require_engine()
    check_verify(verify, samples)
    texts, others = split_texts(samples)
    if others:
        raise ValueError(
            "`samples` of a LiteRT-LM package must be texts, such as ['Once "
            f"upon a time ...']. Received: samples={samples!r:.80}"
        )
    arguments: dict[str, Any] = {
        "path": path,
        "texts": texts,
        "mode": quantization,
        "tolerance": tolerance,
        "limits": limits,
        "verify": verify,
        "verbose": verbose,
    }
    offers = Offers.of(model)
    kind = "text embedders"
    foreign: dict[str, Any] = {"lengths": lengths}
    if offers.embedder_parts is not None:
        kind = "language models"
        foreign = {
            "prefill_lengths": prefill_lengths,
            "cache_length": cache_length,
        }
    for name, value in foreign.items():
        if value is not None:
            raise ValueError(
                f"`{name}` is an option of {kind}, and '{model.name}' is none: "
                f"leave it out. Received: {name}={value!r:.60}"
            )
    if offers.embedder_parts is not None:
        embedder = offers.embedder_parts()
        sizes = check_lengths(lengths, embedder.max_length)
        format = Embedder(parts=embedder, sizes=sizes, **arguments)
        return pipeline.export(model, format, path.parent)
    if quantization == "int8-static":
        raise ValueError(
            "`quantization` of a package must need no inputs: float16, int8, "
            "int8-weights, int4 or a recipe. Received: 'int8-static'"
        )
    if offers.engine_parts is None:
        raise ValueError(
            "LiteRT-LM runs language models and text embedders: give a "
            "kp.Generator of a kp.TransformerDecoderModel, or what "
            "kp.load_hugging_face makes of a decoder or of a folder with "
            "modules.json; a model of your own layers from texts to vectors is "
            "one as kp.PretrainedModel([inputs, tokenizer, encoder, pooling]). "
            f"Received: {type(model).__name__} '{model.name}'"
        )
    parts = offers.engine_parts(
        prefill_lengths, _CACHE if cache_length is None else cache_length
    )
    # Before its models are traced, which takes long.
    packed = plain_tokenizer(parts.tokenizer_json(), parts.vocabulary)
    package = LiteRTLM(
        given=parts.models, parts=parts, tokenizer=packed, **arguments
    )
    return pipeline.export(parts.models["decode"], package, path.parent)
