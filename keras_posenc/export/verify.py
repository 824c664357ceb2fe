"""Compares an exported file with its model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export import pipeline
from keras_posenc.export.errors import require_tensorflow_backend
from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.mediapipe import check_no_labels
from keras_posenc.export.formats.onnx import Onnx
from keras_posenc.export.formats.saved_model import SavedModel
from keras_posenc.export.inspect import locate
from keras_posenc.export.publish import check_no_pattern
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.compiled import resolve_compiled
from keras_posenc.export.signatures.resolve import check_model


def verify(
    model: keras.Model,
    path: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
    compiled: Any = None,
    samples: Any = None,
    max_length: int | None = None,
    tolerance: float | None = None,
    agreement: float | None = None,
    allow_operators: Sequence[str] = (),
    allow_different_graph: bool = False,
    verbose: int = True,
) -> VerificationReport:
    """Compares an artifact's answers with its model's.

    A fresh process, in which neither keras nor keras_posenc can be imported
    (nor TensorFlow, for a LiteRT file), loads the artifact and runs a grid of
    batches: sizes of 1 and 3; lengths of 1, 2, 17 and `max_length`; rows that
    are padded, and rows that are nothing but padding; the lowest and the
    highest id that an input's `Embedding` takes; of what a lookup layer takes,
    its vocabulary; of images of 8 bits, their whole range. Inputs of floats
    are standard normal, and then, in a case of its own, extreme: zeros, one 1
    among zeros, and 1e-20, 30, -30, 1e4 and -1e4 throughout (of more than 2**18
    numbers zeros, 1e4 and -1e4 alone). Examples for which the model itself
    gives no finite output are left out of it, and as much more is allowed as
    the model's outputs move when these inputs do, at random, by 2**-20 of
    themselves (times 4). A NaN equals a NaN. `model` is
    not changed, and has the weights that it had at the call. What passes is
    recorded with the artifact, by the digests of its files, so that `Scorer`
    knows it: `assets.extra/verification.json` in a folder, `.verified.json`
    behind the name of a file. Where it does not pass, an earlier record is
    removed.

    A SavedModel is asked as a server asks it, by a session of its
    `signature_def`; `tf.saved_model.load` must give the same. The weights, the
    tables and the constants of each signature are compared as well, bit for
    bit, and so is the graph that computes with them, operator by operator:
    `VerificationReport.different_values` names what is not the model's.

    A LiteRT file is compared with what the model becomes when it is converted
    again, in the file's mode: operator by operator, each number of it bit for
    bit, quantized ones with their scales. `VerificationReport.not_compared` names
    what could not be: in `"int8-static"` the ranges that it was calibrated to,
    and the last bits of what the converter computed on another processor. An
    ONNX file is compared likewise.

    What another version, or another converter, wrote is compared alike, since
    a file can say of itself what it likes. If its graph is not the one that is
    written here, `VerificationReport.different_graph` tells, and it has not passed,
    unless `allow_different_graph` allows it.

    Args:
        model: The model that was exported.
        path: The LiteRT file, the SavedModel folder, or the folder of its
            versions, of which the highest is taken.
        signatures: Those given to the export, if any. Else those that the
            export makes by itself are compared, as far as they are there.
        labels: Those given to the export, if any, of a SavedModel or of a
            file for MediaPipe's text classifier. Else the labels of an
            artifact that has some are not compared, as the report says.
        compiled: That given to the export, if any, of a SavedModel.
        samples: Further inputs: an array, a dict of arrays by input name, a
            text, or a list of these. They are required where the model takes
            integers of more than 8 bits and has neither `Embedding` nor lookup
            to say which.
        max_length: The longest sequence. By default 512, or what the model's
            tokenizer makes of a text at most, if that is less: its `max_length`
            or `sequence_length`. Inputs with several dynamic axes besides the
            batch (images, volumes) go as far along each of them, or until they
            hold 2**23 numbers: 512 by 512 pixels of 3 channels, but 35 by 35 by
            35 cells of 64.
        tolerance: The largest difference that passes: relative to the model's
            number where that is above 1, else to the largest number of that
            output (or 1, or 0.01). Integers and strings must be equal, but
            where a model that chooses, such as a `Generator`, would choose so
            but for the tolerance: the report tells of near-ties. By default
            1e-5, and for a quantized file also 6 (float16), 12 (int8) or 24
            (int8-static) times as far as the model's answers usually move when
            its weights do, at random, by up to half a step of that rounding. A
            quantized file is held to the samples, if there are any: elsewhere
            it must be finite. Of integers that are no choices the share that
            differs is what counts then. Where none is given, vectors of a
            quantized file, such as embeddings, must also keep their direction,
            and logits the probabilities that they stand for: the least cosine
            and the largest KL divergence follow from the same movement of the
            weights. The report says what each output is judged as, and why.
        agreement: The least share of rows in which the largest of a quantized
            file's scores or logits must be the model's, 0.99 by default. Rows
            count where that one leads by more than the rounding usually moves
            it and the second: a third of what `tolerance` adds by default.
        allow_operators: As for `export_saved_model`.
        allow_different_graph: Whether the artifact's graph may be another one, as other
            versions of TensorFlow, Keras or the model's code, or another
            converter, write it. Only its answers, and those weights that are
            in it as they are, prove it then, as the report says.
        verbose: Whether to show progress; 2 also shows what native code logs.

    Returns:
        A `VerificationReport`; print it, or ask `passed`.

    Raises:
        ValueError: No artifact at the path, a signature that it does not have,
            or inputs that the model itself does not take.
        ExportVerificationError: The artifact does not load, crashes or hangs,
            does more than compute, or is one model for servers and another for
            Python, or was changed meanwhile; or the model's own outputs change
            by being run.
    """
    require_tensorflow_backend("verify")
    check_model(model)
    path, kind = locate(path)
    if kind != "saved_model" and resolve_compiled(compiled) is not None:
        raise ValueError(
            "`compiled` (--compiled) is of SavedModels. Received: "
            f"path='{path}'"
        )
    arguments = {
        "given": signatures,
        "samples": samples,
        "max_length": max_length,
        "tolerance": tolerance,
        "agreement": agreement,
        "allow_operators": allow_operators,
        "allow_different_graph": allow_different_graph,
        "verbose": verbose,
    }
    format: pipeline.Format
    if kind == "saved_model":
        check_no_pattern(path)
        format = SavedModel(labels=labels, compiled=compiled, **arguments)
    elif kind == "litert":
        format = LiteRT(labels=labels, **arguments)
    else:
        check_no_labels(labels, path)
        format = Onnx(**arguments)
    return pipeline.verify(model, format, path)
