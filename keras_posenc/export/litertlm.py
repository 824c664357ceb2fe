"""Export to LiteRT-LM's packages (.litertlm) for phones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import require_tensorflow_backend
from keras_posenc.export.formats.litertlm_embedder import export_embedder
from keras_posenc.export.formats.litertlm_package import require_builder
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.publish import check_file
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.signatures.resolve import check_model


def export_litertlm(
    model: keras.Model,
    path: str | Path,
    *,
    lengths: Sequence[int] | None = None,
    quantization: str | None = None,
    verify: bool = True,
    samples: Any = None,
    tolerance: float | None = None,
    verbose: int = True,
) -> ExportedModel:
    """Exports a model as a package for Google's LiteRT-LM, and verifies it.

    The package holds the model, its tokenizer and what LiteRT-LM must know of
    both, so that an application gives it texts. It runs on Android, iOS, the
    web and desktops. It appears in one step, after LiteRT-LM's own engine has
    run it in a fresh process without Keras, and reproduced the model's outputs
    and the tokenizer's ids: of texts of many kinds, and of each script that the
    tokenizer knows.

    Needs the extra `litertlm`.

    Args:
        model: A model from texts to vectors, as `load_hugging_face` makes it
            from a folder with `modules.json`, with any tokenizer.
        path: The file, ending in `.litertlm`. An earlier file is replaced; the
            folder is made if missing.
        lengths: Numbers of tokens for which the package has a signature: a text
            takes the time of the shortest one that it fits into. By default 64,
            128, 256 and 512, and no longer than the model's own longest text.
        quantization: None, for float32; `"float16"`, for weights of half the
            size; or `"int8"`, of a quarter, with products in 8 bits.
        verify: Whether to verify before publishing.
        samples: Further texts to verify with.
        tolerance: Largest difference allowed; by default 1e-5, and more for a
            quantized package: see `verify`.
        verbose: Whether to show progress; 2 also shows native logs.

    Returns:
        An `ExportedModel`: its `path` and its `report`.

    Raises:
        ValueError: An argument that is none of the above.
        ImportError: LiteRT-LM's packages are not installed.
        ExportError: The model needs operators that LiteRT lacks, or the file
            cannot be written.
        ExportVerificationError: The engine's outputs are not the model's. No
            file is left.

    Example:
    >>> import keras_posenc as kp
    >>> encoder = kp.load_hugging_face("all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> exported = kp.export_litertlm(
    ...     encoder, "minilm.litertlm", quantization="int8"
    ... )  # doctest: +SKIP
    """
    require_tensorflow_backend("export_litertlm")
    check_model(model)
    path = check_file(path, ".litertlm")
    require_builder()
    find_parts = Offers.of(model).embedder_parts
    if find_parts is None:
        raise ValueError(
            "`model` must be a kp.PretrainedModel from texts to vectors, as "
            "load_hugging_face makes it from a folder with modules.json, or "
            "of layers of your own: kp.PretrainedModel([inputs, tokenizer, "
            f"encoder, pooling]). Received: '{model.name}' of type "
            f"{type(model).__name__}"
        )
    return export_embedder(
        model,
        path,
        find_parts(),
        lengths=lengths,
        quantization=quantization,
        verify=verify,
        samples=samples,
        tolerance=tolerance,
        verbose=verbose,
    )
