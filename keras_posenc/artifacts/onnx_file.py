"""Models as ONNX files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.errors import ExportError
from keras_posenc.artifacts.expectations import expect
from keras_posenc.artifacts.float32 import float32_policies
from keras_posenc.artifacts.keras_int8 import int8_in_floats, is_quantized
from keras_posenc.artifacts.quantization import BY_KERAS
from keras_posenc.artifacts.report import Artifact
from keras_posenc.artifacts.signatures import (
    Signature,
    resolve_numeric_signatures,
)
from keras_posenc.artifacts.staging import (
    as_path,
    publish_file,
    staging_beside,
    writing_to,
)
from keras_posenc.artifacts.verification import (
    check_verify,
    inspect_safe,
    require_tensorflow_backend,
    verify_expectations,
)
from keras_posenc.progress import progress

_OPSET = 18


def export_onnx(
    model: keras.Model,
    path: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    verify: bool = True,
    samples: Any = None,
    max_length: int = 512,
    tolerance: float | None = None,
    verbose: int = True,
) -> Artifact:
    """Exports a Keras model as an ONNX file and proves that it is right.

    The file appears in one step, after a fresh process without Keras or
    TensorFlow has loaded it in ONNX Runtime and given the model's own answers.
    Batch and length stay dynamic; inputs and outputs have the model's names.
    Needs the extra `onnx`.

    Args:
        model: Any built Keras model. One that takes strings goes out from its
            ids: the model is cut at its first numeric tensor.
        path: The file, ending in `.onnx`. An earlier one is replaced; the
            folder is made if need be.
        signatures: As for `export_litert`, but one: an ONNX file has no more.
        verify: Whether to verify before publishing.
        samples: Inputs to verify with; see `verify`.
        max_length: The longest sequence to verify with.
        tolerance: The largest difference from the model's own answer; see
            `verify`.
        verbose: Whether to show progress; 2 also shows what native code logs.

    Returns:
        An `Artifact`: its `path` and its `report`.

    Raises:
        ImportError: The extra `onnx` is not installed.
        ValueError: An argument that is none of the above.
        ExportError: The model needs operators that ONNX lacks, or the file
            cannot be written.
        ExportVerificationError: The file's answers are not the model's.
            Nothing is left behind.
    """
    require_tensorflow_backend("export_onnx")
    check_verify(verify, samples)
    require_onnx()
    resolved = resolve_numeric_signatures(model, signatures)
    if len(resolved) != 1:
        raise ValueError(
            "`signatures` must be one for an ONNX file. Received: "
            f"{', '.join(signature.name for signature in resolved)}"
        )
    path = as_path("path", path)
    if path.suffix != ".onnx":
        raise ValueError(f"`path` must end in '.onnx'. Received: path='{path}'")
    if os.path.isdir(path):  # unlike Path's, for any name
        raise ValueError(f"`path` must be a file, and '{path}' is a folder")
    report = None
    with (
        float32_policies(resolved) as in_float32,
        progress(verbose) as step,
        staging_beside(path.parent) as staged,
    ):
        if verify:  # first, since samples may turn out wrong
            step("Asking the model itself")
            expected = expect(
                resolved,
                samples,
                max_length,
                tolerance,
                in_float32,
                BY_KERAS if is_quantized(resolved) else None,
            )
        step("Converting to ONNX")
        with int8_in_floats(resolved):
            content = _convert(resolved[0])
        with writing_to(path.parent):
            staged.write_bytes(content)
        if verify:
            step("Verifying it in a fresh process")
            report = verify_expectations(expected, inspect_safe(staged))
            report.require_success()
        publish_file(staged, path)
    return Artifact.published(path, report)


def require_onnx() -> None:
    """Raises `ImportError` where the extra `onnx` is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "ONNX files need onnx, onnxruntime and tf2onnx: "
            "pip install 'keras-posenc[onnx]'"
        ) from error


def _convert(signature: Signature) -> bytes:
    import logging

    import tensorflow as tf
    import tf2onnx

    specs = [
        tf.TensorSpec(spec.shape, spec.dtype, name=name)
        for name, spec in signature.specs.items()
    ]

    @tf.function(input_signature=specs, autograph=False)
    def call(*inputs: Any) -> dict[str, Any]:
        outputs = signature.call(
            dict(zip(signature.specs, inputs, strict=True))
        )
        return {
            name: tf.identity(value, name=name)
            for name, value in outputs.items()
        }

    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    try:
        model, _ = tf2onnx.convert.from_function(
            call, input_signature=specs, opset=_OPSET
        )
    except Exception as error:  # of the model's code, or the converter's
        raise ExportError(
            f"tf2onnx refuses model '{signature.model.name}': "
            f"{next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    _with_float_tables(model.graph)
    unknown = sorted(
        {
            node.op_type
            for node in model.graph.node
            if not _is_known(node.op_type, node.domain)
        }
    )
    if unknown:
        raise ExportError(
            "The model needs operators that ONNX does not have: "
            f"{', '.join(unknown)}"
        )
    model.graph.name = signature.name
    return model.SerializeToString()


def _is_known(operator: str, domain: str) -> bool:
    import onnx

    return domain != "" or onnx.defs.has(operator, max_inclusive_version=_OPSET)


def _with_float_tables(graph: Any) -> None:
    """Looks numbers up as floats where the graph does as their bit patterns.

    ONNX cannot read integers as floats. Where it would read rows of a constant
    so, the constant can be floats.
    """
    from onnx import numpy_helper

    constants = {each.name: each for each in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    floats: dict[str, str] = {}
    for node in graph.node:
        if node.op_type != "Bitcast":
            continue
        source = makers.get(node.input[0])
        while source is not None and source.op_type in (
            "Identity",
            "Reshape",
            "Squeeze",
            "Unsqueeze",
        ):
            source = makers.get(source.input[0])
        if (
            source is None
            or source.op_type != "Gather"
            or source.input[0] not in {*constants, *floats.values()}
        ):
            continue  # refused by name
        table = source.input[0]
        if table not in floats.values():
            if table not in floats:
                values = numpy_helper.to_array(constants[table])
                if values.dtype != np.int32:
                    continue
                floats[table] = f"{table}/as_float32"
                graph.initializer.append(
                    numpy_helper.from_array(
                        values.view("float32"), floats[table]
                    )
                )
            source.input[0] = floats[table]
        node.op_type = "Identity"
        del node.attribute[:]
    used = {name for node in graph.node for name in node.input}
    for name in floats:
        if name not in used:
            graph.initializer.remove(constants[name])
