"""Loads a SavedModel as servers and as Python do, and compares the two."""

import contextlib
import dataclasses
import gc
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from keras_posenc_worker.graph_digests import digest
from keras_posenc_worker.memory import give_back
from keras_posenc_worker.nodes import INIT
from keras_posenc_worker.runtimes import (
    Runner,
    open_session,
    read_graph,
    restore,
    session_runner,
)
from keras_posenc_worker.saved_model_contents import (
    Disagreement,
    Reader,
    Weight,
    check_loading,
    check_same,
    describe_serve,
    python_functions,
    tables_of,
)

_PART = 2**24  # numbers fetched at a time


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A SavedModel that is loaded as servers load it.

    Attributes:
        runners: A function for each signature that runs it in a session.
        contents: By signature, its contents; see `Signature.contents`.
        input_dtypes: By signature, the dtypes of its inputs.
        python_functions: Paths of functions that only Python could call.
        serve: The `arguments` and `results` of `serve`, if there is one; see
            `Signature`.
        version: The version of TensorFlow that wrote it.
        seconds: How long a server takes to load it.
    """

    runners: dict[str, Runner]
    contents: dict[str, dict[str, Any]]
    input_dtypes: dict[str, dict[str, Any]]
    python_functions: list[str]
    serve: dict[str, Any] | None
    version: str
    seconds: float


def load(
    exported: str, *op_libraries: str, will_run: bool = False
) -> LoadedModel:
    """Loads the SavedModel in a folder.

    Python's reader loads it first, is compared and dropped, so that there is
    one copy of the weights at a time.

    Args:
        exported: The folder.
        *op_libraries: Files of operators that it may need.
        will_run: Whether its signatures will run. Then the session plans them
            one by one, while Python's reader loads.

    Raises:
        Disagreement: Servers and Python would not load the same model.
    """
    import tensorflow as tf

    began = time.perf_counter()
    meta = read_graph(exported, *op_libraries)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta.graph_def, name="")
    seconds = time.perf_counter() - began
    check_loading(meta)
    reader = Reader()
    # Before the session opens: a graph that grows later is sent to it whole.
    servers = {
        name: reader.of_servers(meta, graph, name)
        for name in sorted(meta.signature_def)
        if name != INIT
    }
    session = open_session(graph)
    with ThreadPoolExecutor(1) as planner:
        for name in servers if will_run else ():
            planner.submit(_plan, session, meta.signature_def[name])
        gc.freeze()  # the collection below then visits only this module
        module = tf.saved_model.load(exported)
        reader = Reader(tables_of(module))
        python = {}
        if meta.object_graph_def.nodes:  # else TensorFlow 1 wrote it
            python = {
                name: reader.of_function(function)
                for name, function in getattr(module, "signatures", {}).items()
            }
        pairs = check_same(servers, python)
        serve = describe_serve(module, python, reader)
        # Before anything runs and might change the values.
        wanted = {one: two.digest() for one, two in pairs}
    del module, reader, python, pairs
    gc.collect()
    give_back()
    began = time.perf_counter()
    restore(session, meta, Path(exported))
    seconds += time.perf_counter() - began
    found = _fetch(session, wanted)
    for weight, value in found.items():
        if value != wanted[weight]:
            raise Disagreement(
                f"servers and Python restore '{weight.name}' with different "
                "values"
            )
    return LoadedModel(
        runners={
            name: session_runner(session, meta.signature_def[name])
            for name in servers
        },
        contents={
            name: signature.contents(found)
            for name, signature in servers.items()
        },
        input_dtypes={
            name: {
                key: tf.dtypes.as_dtype(info.dtype)
                for key, info in meta.signature_def[name].inputs.items()
            }
            for name in servers
        },
        python_functions=python_functions(
            meta.object_graph_def.nodes, serve is not None
        ),
        serve=serve,
        version=meta.meta_info_def.tensorflow_version,
        seconds=seconds,
    )


def _plan(session: Any, signature: Any) -> None:
    """Lets a session plan how it runs a signature, without running it.

    That takes longer than most requests. Inputs of wrong dtypes are fed, which
    the session rejects after planning.
    """
    import numpy as np
    import tensorflow as tf

    feeds, fetches = (
        [session.graph.get_tensor_by_name(info.name) for info in infos.values()]
        for infos in (signature.inputs, signature.outputs)
    )
    if not feeds:
        return
    wrong = {
        tensor._as_tf_output(): np.zeros(
            [], "int8" if tensor.dtype == tf.bool else "bool"
        )
        for tensor in feeds
    }
    with contextlib.suppress(tf.errors.OpError):
        session._call_tf_sessionrun(
            None, wrong, [each._as_tf_output() for each in fetches], [], None
        )


def _fetch(session: Any, weights: Iterable[Weight]) -> dict[Weight, str | None]:
    """Returns the digests of what a session has restored.

    Values are fetched in parts, since a session returns copies.
    """
    import tensorflow as tf

    found: dict[Weight, str | None] = dict.fromkeys(weights)
    remaining = [weight for weight in found if weight.value is not None]
    while remaining:
        part: dict[Weight, Any] = {}
        size = 0
        while remaining and size < _PART:
            weight = remaining.pop()
            part[weight] = weight.value
            for tensor in tf.nest.flatten(weight.value):
                size += tensor.shape.num_elements() or 0  # 0 of a table
        values = session.run(part)
        found |= {each: digest(value) for each, value in values.items()}
    return found
