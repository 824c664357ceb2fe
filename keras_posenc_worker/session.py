"""A SavedModel as a server has it, and as Python has it.

A server asks a session: of `signature_def`, the graph and the node that
restores; Python loads an object graph. Both must be the same.
"""

import contextlib
import dataclasses
import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from keras_posenc_worker.agreement import (
    Disagreement,
    check_agreement,
    check_loading,
    check_specs,
    functions_of,
    keywords_of,
)
from keras_posenc_worker.contents import (
    Contents,
    constants,
    digest,
    digest_in_parts,
    read_handle,
)
from keras_posenc_worker.graph_digests import calls_of, graph_of
from keras_posenc_worker.memory import give_back
from keras_posenc_worker.nodes import captured_by, node_name
from keras_posenc_worker.runtimes import (
    Runner,
    open_session,
    read_graph,
    restore,
    session_runner,
)
from keras_posenc_worker.serve import check_serve

_PART = 2**22  # numbers
_WHOLE = ("string", "int4", "uint4")  # dtypes whose rows TensorFlow cuts not


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


@dataclasses.dataclass(frozen=True)
class Rows:
    """Some rows of a variable that is too large to be copied whole.

    Attributes:
        value: The variable's value.
        start: A placeholder of the first row's number.
        part: `count` rows from there on, or fewer at the end.
        count: How many.
    """

    value: Any
    start: Any
    part: Any
    count: int


def reads(graph: Any, meta: Any, calls: Mapping[str, Any]) -> dict[str, Any]:
    """What gives the values that signatures read, by the names of tensors."""
    found = {}
    for name, call in calls.items():
        for each in call.input[len(keywords_of(meta, name)) :]:
            tensor = graph.get_tensor_by_name(node_name(each) + ":0")
            found[tensor.op.name] = in_rows(read_handle(tensor, tensor.op))
    return {name: value for name, value in found.items() if value is not None}


def in_rows(value: Any) -> Any:
    """A large tensor of numbers as `Rows`, and all else as it is."""
    import tensorflow as tf

    if not tf.is_tensor(value) or value.dtype.is_quantized:
        return value
    if value.dtype.name in _WHOLE or value.shape.num_elements() is None:
        return value
    if value.shape.num_elements() <= _PART:
        return value
    start = tf.compat.v1.placeholder("int32", [])
    count = max(1, _PART // math.prod(value.shape[1:]))
    return Rows(value, start, value[start : start + count], count)


def fetched(
    session: Any, reads: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Digests of what a session has restored, with its names.

    A part is fetched at a time, for a session gives copies.

    Raises:
        Disagreement: A large one has not the shape that its graph says.
    """
    part: dict[str, Any] = {}
    count = 0

    def digests_of_part() -> Iterator[tuple[str, str]]:
        for name, value in session.run(part).items():
            yield name, digest(value)

    for name, read in reads.items():
        if isinstance(read, Rows):
            parts = _parts(session, name, read)
            yield name, digest_in_parts(read.value, parts)
            continue
        part[name] = read
        if not isinstance(read, tuple):  # the keys and values of a table
            count += read.shape.num_elements() or 0
        if count > _PART:
            yield from digests_of_part()
            part, count = {}, 0
    yield from digests_of_part()


def _parts(session: Any, name: str, read: Rows) -> Iterator[Any]:
    """Its rows, and that there is none behind them: a file may hold more."""
    rows, *others = read.value.shape
    for start in [*range(0, rows, read.count), rows]:
        part = session.run(read.part, {read.start: start})
        if part.shape != (min(read.count, rows - start), *others):
            raise Disagreement(
                f"servers restore '{name}' with another shape than "
                f"{tuple(read.value.shape)}, which its graph says"
            )
        yield part


def digests(
    graph: Any,
    calls: Mapping[str, Any],
    functions: Mapping[str, Any],
    names: Iterable[str],
) -> dict[str, str]:
    """Digests of what Python has restored, by the names that servers have.

    Args:
        graph: That of the servers.
        calls: The node of each signature.
        functions: Its function.
        names: Of what can be read.
    """
    pairs = {
        tensor: captured
        for name, call in calls.items()
        for tensor, captured in zip(
            captured_by(call, functions[name]),
            functions[name].captured_inputs,
            strict=True,
        )
    }
    return {
        name: digest(
            read_handle(pairs[name], graph.get_operation_by_name(name))
        )
        for name in names
    }


def check_values(
    served: Iterable[tuple[str, str]], by_python: Mapping[str, str]
) -> dict[str, str]:
    """The digests of what signatures read, by the names of tensors.

    Args:
        served: Digests of what servers have restored, with its names.
        by_python: What Python has, as digests.

    Raises:
        Disagreement: A server and Python have restored different values.
    """
    found = {}
    for name, value in served:
        found[name] = value
        if value != by_python[name]:
            raise Disagreement(
                f"servers and Python restore '{name}' with different values"
            )
    return found
