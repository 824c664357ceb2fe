"""Loads a SavedModel as servers do, and runs it as Python does, too."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from keras_posenc_worker.codec import digest
from keras_posenc_worker.nodes import INIT
from keras_posenc_worker.runtimes import (
    Runner,
    open_session,
    read_graph,
    restore,
    session_runner,
)


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A SavedModel that is loaded as servers load it.

    Attributes:
        runners: A function for each signature that runs it in a session.
        input_dtypes: By signature, the dtypes of its inputs.
        seconds: How long a server takes to load it.
        python: Its signatures, as `tf.saved_model.load` gives them.
        weights: The SHA-256 of each variable that it stores.
    """

    runners: dict[str, Runner]
    input_dtypes: dict[str, dict[str, Any]]
    seconds: float
    python: Any
    weights: list[str]


def load(exported: str, *op_libraries: str) -> LoadedModel:
    """Loads the SavedModel in a folder, as servers and as Python do."""
    import tensorflow as tf

    began = time.perf_counter()
    meta = read_graph(exported, *op_libraries)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta.graph_def, name="")
    session = open_session(graph)
    restore(session, meta, Path(exported))
    seconds = time.perf_counter() - began
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
        seconds=seconds,
        python=tf.saved_model.load(exported).signatures,
        weights=_weights(exported),
    )


def run_python(loaded: LoadedModel, cases: Any, found: Any) -> None:
    """Adds to the first case of each signature what Python gives for it.

    Args:
        loaded: The SavedModel.
        cases: Name and inputs of each case.
        found: What the session gave for each.
    """
    import tensorflow as tf

    seen = set()
    for (name, inputs), own in zip(cases, found, strict=True):
        if name in seen or "error" in own:
            continue
        seen.add(name)
        given = {  # arrays of bfloat16 come as float32
            key: tf.constant(value, loaded.input_dtypes[name][key])
            for key, value in inputs.items()
        }
        outputs = loaded.python[name](**given)
        own["python"] = {key: value.numpy() for key, value in outputs.items()}


def _weights(exported: str) -> list[str]:
    import tensorflow as tf

    path = Path(exported, "variables", "variables")
    if not path.with_suffix(".index").exists():
        return []
    reader = tf.train.load_checkpoint(str(path))
    dtypes = reader.get_variable_to_dtype_map()
    return [
        digest(reader.get_tensor(key))
        for key, dtype in dtypes.items()
        if dtype != tf.string  # names and tables
    ]
