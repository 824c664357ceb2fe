"""Loads a SavedModel as servers do, and runs it as Python does, too."""

import dataclasses
import hashlib
import time
from pathlib import Path
from typing import Any

from keras_posenc_worker.nodes import INIT
from keras_posenc_worker.runtimes import (
    Runner,
    open_session,
    read_graph,
    restore,
    session_runner,
)

_NEAR = 1e-4  # servers and Python plan graphs differently


class Disagreement(Exception):
    """Python computes something else than servers do."""


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A SavedModel that is loaded as servers load it.

    Attributes:
        runners: A function for each signature that runs it in a session.
        input_dtypes: By signature, the dtypes of its inputs.
        version: The version of TensorFlow that wrote it.
        seconds: How long a server takes to load it.
    """

    runners: dict[str, Runner]
    input_dtypes: dict[str, dict[str, Any]]
    version: str
    seconds: float


def load(exported: str, *op_libraries: str) -> LoadedModel:
    """Loads the SavedModel in a folder."""
    import tensorflow as tf

    began = time.perf_counter()
    meta = read_graph(exported, *op_libraries)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta.graph_def, name="")
    session = open_session(graph)
    restore(session, meta, Path(exported))
    signatures = {
        name: each for name, each in meta.signature_def.items() if name != INIT
    }
    return LoadedModel(
        runners={
            name: session_runner(session, each)
            for name, each in signatures.items()
        },
        input_dtypes={
            name: {
                key: tf.dtypes.as_dtype(info.dtype)
                for key, info in each.inputs.items()
            }
            for name, each in signatures.items()
        },
        version=meta.meta_info_def.tensorflow_version,
        seconds=time.perf_counter() - began,
    )


def check_python(exported: str, cases: Any, found: Any) -> None:
    """Runs the first case of each signature by `tf.saved_model.load`.

    Raises:
        Disagreement: Outputs are not those of the session.
    """
    import numpy as np
    import tensorflow as tf

    signatures = tf.saved_model.load(exported).signatures
    seen = set()
    for (name, inputs), own in zip(cases, found, strict=True):
        if name in seen or "error" in own:
            continue
        seen.add(name)
        given = {key: tf.constant(value) for key, value in inputs.items()}
        for key, value in signatures[name](**given).items():
            one, other = own["outputs"][key], value.numpy()
            if one.dtype.kind not in "fc":
                same = np.array_equal(one, other)
            else:
                one, other = np.float64(one), np.float64(other)
                same = np.allclose(one, other, _NEAR, _NEAR, equal_nan=True)
            if not same:
                raise Disagreement(f"signature '{name}', output '{key}'")


def stored_weights(exported: str) -> dict[str, str]:
    """Returns the SHA-256 of each variable, by its key in the checkpoint."""
    import numpy as np
    import tensorflow as tf

    if not Path(exported, "variables", "variables.index").exists():
        return {}
    reader = tf.train.load_checkpoint(str(Path(exported, "variables", "variables")))
    return {
        key: hashlib.sha256(
            np.ascontiguousarray(reader.get_tensor(key)).reshape(-1).view("uint8").data
        ).hexdigest()
        for key in reader.get_variable_to_shape_map()
        if key.startswith("weights/")
    }
