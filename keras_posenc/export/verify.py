"""Compares an exported model with its Keras model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_posenc.export.arguments import shares_arguments
from keras_posenc.export.errors import check_model
from keras_posenc.export.inspect import locate
from keras_posenc.export.replay import ReplayReport, replay

if TYPE_CHECKING:  # imports Keras, which a replay does not need
    import keras

    from keras_posenc.export.report import VerificationReport


@shares_arguments
def verify_export(  # noqa: D417
    path: str | Path,
    model: "keras.Model | None" = None,
    *,
    runtimes: Sequence[str] | None = None,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
    samples: Any = None,
    max_length: int | None = None,
    tolerance: float | None = None,
    limits: Mapping[str, float] | None = None,
    allow_operators: Sequence[str] = (),
    verbose: int = True,
) -> "ReplayReport | VerificationReport":
    """Checks that an exported file gives its model's outputs.

    Without `model` it runs the cases that are kept with the file: the inputs of
    its last verification, and what the model gave. That needs no Keras: a file
    can be checked on another machine, with another version of a runtime, years
    later. Each installed runtime runs them, in a process of its own:

    >>> import keras, pathlib, tempfile
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "sum.tflite"
    ...     _ = kp.export_litert(model, path, verbose=False)
    ...     kp.verify_export(path, verbose=False).passed
    True

    The first runtime decides whether the file fails, unless `runtimes` names
    others. An output may be off by the tolerance that the verification had, or
    by twice what it was off by then if that is more, as in a quantized file.
    Outputs that were off by a quarter of their size are not compared.

    The cases are in `assets.extra/cases.npz` of a SavedModel, or next to a
    file, named after it with `.cases.npz`; see `keras_posenc_worker.cases`.
    They hold your `samples` only where a signature has no generated inputs, and
    the texts that a LiteRT-LM package was verified with.

    With `model` the outputs are those of its graph now, and its weights. A
    process that cannot import Keras runs the file on test inputs: batches of 1
    and 3; lengths of 1, 2, 17 and `max_length`; padding; the lowest and the
    highest ids, and each id once; a lookup layer's vocabulary; all values of
    8-bit images; standard normal floats, and extreme ones (zeros, one 1 among
    zeros, 1e-20, 30, -30, 1e4, -1e4), of which a hundredth is allowed; and
    integers around 2**24, 2**31 and 2**40 in inputs that have
    samples and are used as numbers. Generated inputs are not compared where the
    model's outputs are not finite; in samples a NaN equals a NaN.

    A SavedModel runs as servers run it; `tf.saved_model.load` must give the
    same outputs for one case of each signature, and its stored weights must
    equal the model's bit for bit. In other files,
    `VerificationReport.different_weights` names the weights that have changed
    since the record of the last verification. A file that was edited together
    with its record is not found: sign files if you fear that.

    A verification that passes replaces that record and its cases; one that
    fails leaves both. `model` is not changed.

    Args:
        path: The LiteRT or ONNX file, the LiteRT-LM package, the SavedModel
            folder, or the folder of its versions, of which the highest is
            taken.
        model: The model that was exported; None to run the kept cases alone,
            as of a package. All further arguments but `allow_operators` and
            `verbose` need it.
        runtimes: Without `model`: those to run the cases in, of `"litert"`,
            `"litert_compiled"`, `"onnx"`, `"openvino"`, `"saved_model"` and
            `"litertlm"`. By default all for such a file that are installed.
        signatures: Those given to the export, if any. By default the signatures
            that the export makes itself, as far as the file has them.
        labels: Those given to the export, if any, of a SavedModel or of a file
            for MediaPipe's text classifier. Without them labels are not
            compared.

    Returns:
        A `VerificationReport`, or without `model` a `ReplayReport`; print it,
        or read `passed`.

    Raises:
        ValueError: There is no exported model at the path, it has no cases and
            no `model` is given, it lacks a signature, or the model itself
            rejects the inputs.
        ExportVerificationError: The exported model does not load, crashes or
            hangs, does more than compute, or was changed meanwhile; or the
            model's own outputs change from run to run.
    """
    needing = {
        "signatures": signatures,
        "labels": labels,
        "samples": samples,
        "max_length": max_length,
        "tolerance": tolerance,
        "limits": limits,
    }
    if model is None:
        for name, value in needing.items():
            if value is not None:
                raise ValueError(f"`{name}` needs the model, as `model`")
        return replay(
            path,
            runtimes=runtimes,
            allow_operators=allow_operators,
            verbose=verbose,
        )
    if runtimes is not None:
        raise ValueError(
            "`runtimes` must be None with a model, which is compared in the "
            "format's own runtime: leave one of them out. "
            f"Received: runtimes={runtimes!r:.60}"
        )
    check_model(model, "verify_export")
    from keras_posenc.export import pipeline
    from keras_posenc.export.formats.litert import LiteRT
    from keras_posenc.export.formats.mediapipe import check_no_labels
    from keras_posenc.export.formats.onnx import Onnx
    from keras_posenc.export.formats.saved_model import SavedModel
    from keras_posenc.export.versions import check_no_pattern

    path, kind = locate(path)
    if kind == "litertlm":
        raise ValueError(
            f"'{path}' is a LiteRT-LM package, which is verified by its cases: "
            "leave the model out. To compare it with a model, export that again"
        )
    options = {
        "given": needing.pop("signatures"),
        "allow_operators": allow_operators,
        "verbose": verbose,
        **needing,
    }
    if kind == "saved_model":
        check_no_pattern(path)
        return pipeline.verify(model, SavedModel(**options), path)
    if kind == "litert":
        return pipeline.verify(model, LiteRT(**options), path)
    check_no_labels(options.pop("labels"), path)
    return pipeline.verify(model, Onnx(**options), path)
