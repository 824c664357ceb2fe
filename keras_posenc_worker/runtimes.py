"""Loads an exported model in its runtime, one function for each signature."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import util
from pathlib import Path
from typing import Any

from keras_posenc_worker.codec import digest
from keras_posenc_worker.process import give_back

INIT = "__saved_model_init_op"
Runner = Callable[[dict[str, Any]], dict[str, Any]]


def op_libraries() -> list[str]:
    """Returns the files of TF-Text's operators, without importing it."""
    spec = util.find_spec("tensorflow_text")
    if spec is None or not spec.submodule_search_locations:
        return []
    (folder, *_) = spec.submodule_search_locations
    return sorted(
        str(path) for path in Path(folder, "python", "ops").glob("_*.so")
    )


def read_graph(exported: str) -> Any:
    """Returns the graph that servers load, once its operators are known."""
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString(Path(exported, "saved_model.pb").read_bytes())
    (meta,) = message.meta_graphs
    if (tags := {*meta.meta_info_def.tags}) != {"serve"}:
        raise ValueError(
            "servers load the graph with the tag 'serve', and its tags are "
            f"{', '.join(map(repr, sorted(tags))) or 'none'}"
        )
    library = meta.graph_def.library.function
    own = {function.signature.name for function in library}
    parts = [meta.graph_def.node, *(function.node_def for function in library)]
    used = {node.op for nodes in parts for node in nodes} - own
    if any(not hasattr(tf.raw_ops, name) for name in used):
        # TF Serving has TF-Text's operators built in. Importing tensorflow_text
        # needs Keras, so its libraries are loaded by their files.
        for path in op_libraries():
            tf.load_op_library(path)
    return meta


class SavedModel:
    """A SavedModel in a session, as servers load it."""

    def __init__(self, exported: str, threads: int | None = None) -> None:
        import tensorflow as tf

        self.folder = Path(exported)
        meta = read_graph(exported)
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(meta.graph_def, name="")
        config = tf.compat.v1.ConfigProto(
            allow_soft_placement=True,
            intra_op_parallelism_threads=threads or 0,
            inter_op_parallelism_threads=threads or 0,
        )
        # Leaves memory for other processes.
        config.gpu_options.allow_growth = True
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        self._restore(meta)
        self.signatures = {**meta.signature_def}
        self.signatures.pop(INIT, None)
        self.runners = {
            name: self._runner(each) for name, each in self.signatures.items()
        }
        self.found: dict[bytes, Any] = {}  # by the cases that were run
        self._python: Any = None

    def load_in_python(self) -> Any:
        """Returns what `tf.saved_model.load` does; it holds its variables."""
        import tensorflow as tf

        if self._python is None:
            # Making one run fast costs more than it saves.
            tf.config.optimizer.set_experimental_options(
                {"disable_meta_optimizer": True}
            )
            self._python = tf.saved_model.load(str(self.folder))
        return self._python

    def close(self) -> None:
        """Frees what the session holds: it cannot run afterwards."""
        self._session.close()
        del self._session
        give_back()

    def _restore(self, meta: Any) -> None:
        """Restores variables and tables as `TF_LoadSessionFromSavedModel`."""
        paths = {
            asset.tensor_info.name: str(self.folder / "assets" / asset.filename)
            for asset in meta.asset_file_def
        }
        saver, path = meta.saver_def, self.folder / "variables" / "variables"
        if path.with_suffix(".index").exists():
            paths[saver.filename_tensor_name] = str(path)
            # A name with a number would be that of a tensor of any node.
            graph = self._session.graph
            restore = graph.get_operation_by_name(saver.restore_op_name)
            self._session.run(restore, paths)
            del paths[saver.filename_tensor_name]
        if INIT in meta.signature_def:
            self._session.run(
                meta.signature_def[INIT].outputs[INIT].name, paths
            )

    def _runner(self, signature: Any) -> Runner:
        fetches = {key: info.name for key, info in signature.outputs.items()}
        names = {key: info.name for key, info in signature.inputs.items()}

        def run(inputs: dict[str, Any]) -> Any:
            if inputs.keys() != names.keys():
                raise ValueError(
                    f"its inputs are {', '.join(sorted(names))}, and not "
                    f"{', '.join(sorted(inputs))}"
                )
            return self._session.run(
                fetches, {names[key]: value for key, value in inputs.items()}
            )

        return run


def verify_saved_model(
    model: SavedModel, cases: Sequence[Any], found: Sequence[Any]
) -> dict[str, Any]:
    """Returns SHA-256 of its `weights`, and what its warm-up requests did.

    The first case of each signature gets what `tf.saved_model.load` gives.
    """
    import tensorflow as tf

    replayed = _replay_warmup(model)
    model.close()
    python = model.load_in_python().signatures
    for name in {own: None for own, _ in cases}:
        for (own, inputs), response in zip(cases, found, strict=True):
            if own == name and "error" not in response:
                if name not in python:
                    raise ValueError(
                        f"tf.saved_model.load finds no signature '{name}', "
                        "and a server finds one"
                    )
                known = model.signatures[name].inputs
                given = {  # arrays of bfloat16 come as float32
                    key: tf.constant(value, known[key].dtype)
                    for key, value in inputs.items()
                }
                outputs = python[name](**given)
                response["python"] = {k: x.numpy() for k, x in outputs.items()}
                break
    variables = {id(x): x for each in python.values() for x in each.variables}
    weights = {digest(each.read_value()) for each in variables.values()}
    return {"weights": [*weights], **replayed}


def _replay_warmup(model: SavedModel) -> dict[str, list[str]]:
    """Runs the warm-up requests, as a server does before it serves."""
    file = model.folder / "assets.extra" / "tf_serving_warmup_requests"
    if not file.exists():
        return {}
    import tensorflow as tf

    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        advice = "pip install 'keras-posenc[serving]'"
        return {"notes": [f"warm-up requests were not replayed: {advice}"]}
    count = 0
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        inputs = {x: tf.make_ndarray(y) for x, y in request.inputs.items()}
        try:
            model.runners[request.model_spec.signature_name](inputs)
        except Exception as error:
            raise RuntimeError(
                f"its warm-up request {count} fails: {error}"
            ) from error
        count += 1
    plural = "s" * (count != 1)
    return {"checks": [f"replayed {count:,} warm-up request{plural}"]}


def load_litert(
    exported: str | bytes, threads: int | None = None
) -> dict[str, Runner]:
    """Loads a LiteRT file, or its bytes; one thread may run it at a time."""
    from ai_edge_litert.interpreter import Interpreter

    source = "model_content" if isinstance(exported, bytes) else "model_path"
    made: dict[str, Any] = {}

    def make() -> None:
        interpreter = Interpreter(**{source: exported}, num_threads=threads)
        for name in interpreter.get_signature_list():
            made[name] = interpreter.get_signature_runner(name)

    def runner(name: str) -> Runner:
        def run(inputs: dict[str, Any]) -> Any:
            if not made:
                make()
            try:
                return made[name](**inputs)
            except BaseException:
                # After an error an interpreter may give wrong numbers or crash:
                # the next run makes a new one.
                made.clear()
                raise

        return run

    make()
    return {name: runner(name) for name in [*made]}


def load_compiled(exported: str) -> dict[str, Runner]:
    """Loads a LiteRT file in `CompiledModel`, on the processor."""
    import numpy as np
    from ai_edge_litert.compiled_model import CompiledModel

    model = CompiledModel.from_file(exported)

    def runner(signature: str, outputs: list[str]) -> Runner:
        def run(inputs: dict[str, Any]) -> Any:
            details, given = model.get_input_tensor_details(signature), {}
            for name, x in inputs.items():
                if tuple(details[name]["shape"]) != x.shape:
                    model.resize_input_tensor_by_name(signature, name, x.shape)
            for name, x in inputs.items():
                given[name] = model.create_input_buffer_by_name(signature, name)
                # As bytes: its Python interface lacks int64 and uint32.
                flat = np.ascontiguousarray(x).reshape(-1)
                given[name].write(flat.view("uint8"))
            made = {
                name: model.create_output_buffer_by_name(signature, name)
                for name in outputs
            }
            model.run_by_name(signature, given, made)
            return {name: read(buffer) for name, buffer in made.items()}

        return run

    def read(buffer: Any) -> Any:
        details = buffer.get_tensor_details()
        dtype = np.dtype(details["dtype"])
        count = math.prod(details["shape"]) * dtype.itemsize
        found = buffer.read(count, np.uint8).view(dtype)
        return found.reshape(details["shape"])

    return {
        name: runner(name, sides["outputs"])
        for name, sides in model.get_signature_list().items()
    }


def load_onnx(
    exported: str | bytes, signatures: Iterable[str], threads: int | None = None
) -> dict[str, Runner]:
    """Loads an ONNX file, or its bytes; it has one signature, of any name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or int(
        os.environ.get("OMP_NUM_THREADS", "0")
    )
    model = onnxruntime.InferenceSession(
        exported, options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in model.get_outputs()]

    def run(inputs: dict[str, Any]) -> Any:
        return dict(zip(names, model.run(names, inputs), strict=True))

    return dict.fromkeys(signatures, run)


def load_openvino(
    exported: str, signatures: Iterable[str]
) -> dict[str, Runner]:
    """Loads an ONNX file in OpenVINO, on the processor, in float32."""
    import openvino

    model = openvino.compile_model(
        exported, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )

    def run(inputs: dict[str, Any]) -> Any:
        found = model(inputs)
        return {
            name: found[port]
            for port in model.outputs
            for name in port.get_names()
        }

    return dict.fromkeys(signatures, run)
