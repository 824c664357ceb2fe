"""A SavedModel as a server has it, and as Python has it.

A server asks a session: of `signature_def`, the graph and the node that
restores; Python loads an object graph. Both must be the same.
"""

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from keras_posenc.export.isolated.asking.agreement import (
    check_agreement,
    check_loading,
    check_specs,
    functions_of,
    keywords_of,
)
from keras_posenc.export.isolated.asking.contents import Contents, constants
from keras_posenc.export.isolated.asking.graph_digests import calls_of, graph_of
from keras_posenc.export.isolated.asking.memory import give_back
from keras_posenc.export.isolated.asking.nodes import captured_by
from keras_posenc.export.isolated.asking.runners import (
    Runner,
    open_session,
    read_graph,
    restore,
    session_runner,
)
from keras_posenc.export.isolated.asking.serve import check_serve
from keras_posenc.export.isolated.asking.values import (
    check_values,
    digests,
    fetched,
    reads,
)


@dataclasses.dataclass(frozen=True)
class Served:
    """A SavedModel that is loaded.

    Attributes:
        runners: What a server answers, by signature.
        by_python: What Python answers, by signature, where it is asked.
        contents: Gives the `Contents` of each signature, or the weights alone,
            by whether all of it is wanted.
        input_dtypes: For each signature the dtypes of its inputs.
        more: Functions that Python alone could call, by their paths.
        serve: What `check_serve` tells of Keras's function for Python, if it
            is there.
        version: The version of TensorFlow that wrote it.
        seconds: How long a server takes to load it.
    """

    runners: dict[str, Runner]
    by_python: dict[str, Runner]
    contents: Callable[[bool], dict[str, Contents]]
    input_dtypes: dict[str, dict[str, Any]]
    more: list[str]
    serve: dict[str, Any] | None
    version: str
    seconds: float


def load(
    artifact: str,
    *op_libraries: str,
    is_asked: bool = False,
    by_python: bool = True,
) -> Served:
    """Loads the SavedModel in a folder, in both ways.

    Args:
        artifact: The folder.
        *op_libraries: Files of operators that it may need.
        is_asked: Whether each signature is going to be asked. They are planned
            then, one after the other, while Python's reader loads.
        by_python: Whether Python is going to be asked, too. Else what it loads
            is compared and let go, before servers restore the same: of the
            weights there is one copy at a time.

    Raises:
        Disagreement: They would not give the same.
    """
    import tensorflow as tf

    began = time.perf_counter()
    meta = read_graph(artifact, *op_libraries)
    library = {f.signature.name: f for f in meta.graph_def.library.function}
    calls = check_agreement(meta)
    check_loading(meta, library)
    paths, serve = check_serve(meta, library) or (set(), None)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta.graph_def, name="")
        # Here, since a graph that grows is given to its session as a whole.
        readers = reads(graph, meta, calls)
    session = open_session(graph)
    seconds = time.perf_counter() - began
    with ThreadPoolExecutor(1) as planner:
        for name in calls if is_asked else ():
            planner.submit(_plan, session, meta.signature_def[name])
        # To optimize these graphs too would take longer than to ask them.
        tf.config.optimizer.set_experimental_options(
            {"disable_meta_optimizer": True}
        )
        module = tf.saved_model.load(artifact)
        functions = dict(module.signatures.items())
        check_specs(meta, graph, functions)
        # Before anything is asked, which might change them.
        restored = digests(graph, calls, functions, readers)
    captured = {
        name: captured_by(call, functions[name]) for name, call in calls.items()
    }
    if not by_python:
        del module, functions
        functions = {}
        gc.collect()
        give_back()
    began = time.perf_counter()
    restore(session, meta, Path(artifact))
    seconds += time.perf_counter() - began
    values = check_values(fetched(session, readers), restored)

    def contents(is_all: bool) -> dict[str, Contents]:
        found = {}
        for name, call in calls.items():
            weights = [
                (tensor, values.get(tensor)) for tensor in captured[name]
            ]
            found[name] = Contents(weights)
            if is_all:
                found[name] = Contents(
                    weights,
                    constants([call], library),
                    graph_of(
                        call.attr["f"].func.name,
                        library,
                        keywords_of(meta, name),
                        sorted(meta.signature_def[name].outputs),
                    ),
                    calls_of([call], library),
                )
        return found

    return Served(
        runners={
            name: session_runner(session, meta.signature_def[name])
            for name in calls
        },
        by_python={
            name: _python_runner(module, function)
            for name, function in functions.items()
        },
        contents=contents,
        input_dtypes={
            name: {
                key: tf.dtypes.as_dtype(info.dtype)
                for key, info in meta.signature_def[name].inputs.items()
            }
            for name in calls
        },
        more=sorted(functions_of(meta.object_graph_def.nodes) - paths),
        serve=serve,
        version=meta.meta_info_def.tensorflow_version,
        seconds=seconds,
    )


def _plan(session: Any, signature: Any) -> None:
    """Lets a session plan how it answers a signature, and run nothing.

    That takes longer than most requests. A session refuses what is of another
    dtype between the two.
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


def _python_runner(module: Any, function: Any) -> Runner:
    import tensorflow as tf

    def run(inputs: dict[str, Any], _keep: Any = module) -> dict[str, Any]:
        _, specs = function.structured_input_signature
        results = function(
            **{
                name: tf.cast(tf.constant(value), specs[name].dtype)
                for name, value in inputs.items()
            }
        )
        return {key: value.numpy() for key, value in results.items()}

    return run
