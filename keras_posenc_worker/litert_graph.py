"""Reads the computation of a LiteRT file."""

import contextlib
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_posenc_worker.fingerprint import Constant, Node, Part, Tensor
from keras_posenc_worker.formats import by_value, litert_schema, unpack
from keras_posenc_worker.graph_digests import NOTES
from keras_posenc_worker.read_litert import flex_node

# Metadata that no runtime uses: versions, and MediaPipe's, which is read
# separately. Other metadata may allow half precision or reordered operators.
_NOTES = ("min_runtime_version", "CONVERSION_METADATA", "TFLITE_METADATA")
# Fields of tensors and operators that are names or notes, or are read below.
# All others are compared, also those that the format may get later.
_OF_TENSOR = ("name", "type", "buffer", "quantization")
_OF_OPERATOR = (
    *("inputs", "intermediates", "outputs", "opcodeIndex"),
    *("largeCustomOptionsOffset", "debugMetadataIndex"),
)


def read_litert(
    path: str, names: Sequence[str], are_all: bool, is_static: bool
) -> Node:
    """Reads what signatures of a LiteRT file compute.

    Args:
        path: The file.
        names: The signatures.
        are_all: Whether the compared file has no other signatures, on which the
            names of output tensors depend.
        is_static: Whether the scales of activations were calibrated on inputs
            that are not known here, so that they are not compared.

    Raises:
        ValueError: The file is ambiguous.
    """
    file = _File(path, is_static)
    signatures = {
        each.signatureKey.decode(): each
        for each in file.model.signatureDefs or []
    }
    if len(signatures) != len(file.model.signatureDefs or []):
        raise ValueError("a signature is in the file twice")
    order = {name: each.subgraphIndex for name, each in signatures.items()}
    metadata = sorted(
        (name, bytes(file.data(each.buffer)))
        for each in file.model.metadata or []
        if (name := each.name.decode()) not in _NOTES
    )
    return Node(
        "file",
        {
            "version": file.model.version,
            "list of metadata": [name for name, _ in metadata],
            "content of the metadata": metadata,
            "order of the signatures": sorted(names, key=order.__getitem__),
            # An app that gives no signature runs the first graph.
            "owner of the first graph": (
                "a signature" if 0 in order.values() else "no signature"
            ),
        },
        parts={
            name: file.signature(signatures[name], are_all)
            for name in sorted(names)
        },
    )


class _File:
    def __init__(self, path: str, is_static: bool) -> None:
        with Path(path).open("rb") as file:  # mapped: need not be in memory
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.model = unpack(self._content)
        self._is_static = is_static
        self._shared: dict[str, int] = {}
        self._types = by_value(litert_schema().TensorType)
        self._kinds = by_value(litert_schema().BuiltinOperator)
        self._sources = self.model.subgraphs
        self._has_state = any(
            self._is_state(each) for x in self._sources for each in x.tensors
        )
        self._graphs = [Node("graph") for _ in self._sources]
        found = [*map(self._read, self._sources)]
        self._tensors = [tensors for tensors, _ in found]
        self._changes = [changes for _, changes in found]
        for index, source in enumerate(self._sources):
            inputs, outputs = _list(source.inputs), _list(source.outputs)
            self._graphs[index].facts = _count(source)
            self._graphs[index].parts = self._parts(
                index, [*enumerate(inputs)], [*enumerate(outputs)]
            )

    def signature(self, signature: Any, are_all: bool) -> Node:
        """Returns a graph by the names of its inputs and outputs."""
        index = signature.subgraphIndex
        source = self._sources[index]
        found = Node(
            f"signature '{signature.signatureKey.decode()}'", _count(source)
        )
        sides = []
        for side in ("inputs", "outputs"):
            pairs = sorted(
                (each.name.decode(), each.tensorIndex)
                for each in getattr(signature, side) or []
            )
            sides.append(pairs)
            # An app that gives no signature uses the order, or these names.
            found.facts[f"order of the {side}"] = [
                [name for name, i in pairs if i == index]
                for index in _list(getattr(source, side))
            ]
            found.facts[f"names of the tensors of the {side}"] = [
                (name, (source.tensors[i].name or b"").decode())
                for name, i in pairs
                if side == "inputs" or are_all
            ]
        found.parts = self._parts(index, *sides)
        return found

    def _parts(
        self, index: int, inputs: list[Any], outputs: list[Any]
    ) -> dict[str, Part]:
        """Returns the parts of a graph from pairs of label and tensor index.

        Operators that change what others read are visited in their order.
        """
        tensors, changes = self._tensors[index], self._changes[index]
        found: dict[str, Part] = {
            **{f"input {name}": tensors[i] for name, i in inputs},
            **{f"change {place}": x for place, x in enumerate(changes)},
            **{f"output {name}": tensors[i] for name, i in outputs},
        }
        if len(found) < len(inputs) + len(changes) + len(outputs):
            raise ValueError("an input or output is in the file twice")
        return found

    def data(self, index: int) -> Any:
        """Returns the bytes of a buffer."""
        import numpy as np

        buffer = self.model.buffers[index]
        if not index:  # runtimes take buffer 0 as empty
            return np.zeros(0, "uint8")
        data = np.asarray([] if buffer.data is None else buffer.data, "uint8")
        if buffer.offset > 1:  # after the flatbuffer, in files beyond its size
            if data.size:
                raise ValueError("a constant is stored twice")
            end = buffer.offset + buffer.size
            data = np.frombuffer(self._content, "uint8")[buffer.offset : end]
        return data

    def _read(self, source: Any) -> tuple[list[Tensor], list[Node]]:
        """Reads a graph's tensors, and its operators that change a state.

        Operators run in their stored order. Any other order that writes each
        tensor once, before it is read, is equal.
        """
        final = {*_list(source.inputs)}
        tensors = [
            self._tensor(each, "input" if i in final else "state")
            for i, each in enumerate(source.tensors)
        ]
        changes = []
        for each in source.operators:
            node = self._operator(each)
            for side in ("inputs", "intermediates"):
                for place, i in enumerate(_list(getattr(each, side))):
                    part = tensors[i] if i >= 0 else None
                    node.parts[f"{side[:-1]} {place}"] = part
            inputs = _list(each.inputs)
            final.update(inputs)
            read = [source.tensors[i] for i in inputs if i >= 0]
            if self._is_static and len(read) == len(inputs):
                self._add_bias_scale(node, read)
            node.facts["list of outputs"] = []
            for place, i in enumerate(_list(each.outputs)):
                node.facts["list of outputs"].append(i >= 0)
                if i < 0:
                    continue
                if i in final or isinstance(tensors[i].source, Constant):
                    raise ValueError(f"tensor {i} is written twice")
                final.add(i)
                tensors[i] = Tensor(node, place)
                facts, settings = self._described(source.tensors[i])
                for what, value in facts.items():
                    node.facts[f"{what} of output {place}"] = value
                for what, value in settings.items():
                    node.settings[f"{what} of output {place}"] = value
            is_call = any(isinstance(x, Node) for x in node.parts.values())
            if (
                not node.facts["list of outputs"]
                or any(map(self._is_state, read))
                or (is_call and self._has_state)
            ):
                changes.append(node)
        return tensors, changes

    def _operator(self, operator: Any) -> Node:
        code = self.model.operatorCodes[operator.opcodeIndex]
        # Older files, with fewer than 127 operators, use the deprecated field.
        kind = self._kinds[max(code.builtinCode, code.deprecatedBuiltinCode)]
        node = Node((code.customCode or kind.encode()).decode())
        node.facts["operator"] = kind  # in any version
        for name, value in vars(operator).items():
            if name in _OF_OPERATOR:
                continue
            if not hasattr(value, "__dict__"):
                node.settings[name] = _plain(value)
                continue
            # An operator has at most one of the two kinds of options.
            prefix = "" if name == "builtinOptions" else f"{name}."
            for key, each in vars(value).items():
                if "subgraph" in key.lower() and each >= 0:
                    node.parts[f"{prefix}{key}"] = self._graphs[each]
                else:
                    node.settings[f"{prefix}{key}"] = _plain(each)
        if node.kind.startswith("Flex") and (called := flex_node(operator)):
            node.settings["customOptions"] = self._options_of(called)
        return node

    def _options_of(self, node: Any) -> dict[str, Any]:
        """Returns a TensorFlow node's device and attributes.

        Names of what operators share are counters of the process: which ones
        are equal matters.
        """
        attributes = dict(node.attr)
        options: dict[str, Any] = {}
        if "shared_name" in attributes:
            shared = attributes.pop("shared_name").s.decode()
            if not shared and node.attr["use_node_name_sharing"].b:
                shared = node.name
            number = self._shared.setdefault(shared, len(self._shared))
            options["shared resource"] = number if shared else None
        for key, value in sorted(attributes.items()):
            if key in NOTES:
                continue
            options[key] = str(value).strip()
            if value.WhichOneof("value") in ("func", "list"):
                # Their text may have attributes of functions in any order.
                content = value.SerializeToString(deterministic=True)
                options[key] = content.hex()
        return {**options, "device of the operator": node.device}

    def _tensor(self, tensor: Any, kind: str) -> Tensor:
        """Returns a tensor that no operator has written yet."""
        facts, settings = self._described(tensor)
        array = self.data(tensor.buffer)
        if not array.size:
            return Tensor(Node(kind, facts, settings))
        with contextlib.suppress(TypeError, ValueError):  # such as strings
            array = array.view(self._types[tensor.type].lower())
            array = array.reshape(_list(tensor.shape))
        constant = Constant(
            array, "", facts, *_scale(tensor), is_measured=self._is_static
        )
        if kind == "state":
            return Tensor(constant)
        return Tensor(Node(kind, facts, settings, {"default": constant}))

    def _described(self, tensor: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the facts and the settings of a tensor, as of a node."""
        facts = {
            name: _plain(value) or None  # an empty shape may be left out
            for name, value in vars(tensor).items()
            if name not in _OF_TENSOR
        }
        facts["type"] = self._types[tensor.type]
        facts[
            "quantization"
        ] = [  # without the range, which only quantizers use
            getattr(tensor.quantization, "detailsType", 0),
            _plain(getattr(tensor.quantization, "details", None)),
        ]
        scale = _scale(tensor)
        if self._is_static:
            return {**facts, "number of scales": len(scale[0])}, {}
        return facts, {"scale": scale}

    def _is_state(self, tensor: Any) -> bool:
        return tensor.isVariable or self._types[tensor.type] == "RESOURCE"

    def _add_bias_scale(self, node: Node, tensors: Sequence[Any]) -> None:
        """Adds whether the scale of a bias is that of its sums."""
        import numpy as np

        places = {3: (0, 1, 2), 4: (2, 1, 3)}.get(len(tensors))
        if places is None:
            return
        x, kernel, bias = (tensors[place] for place in places)
        types = [self._types[each.type] for each in (kernel, bias)]
        if types == ["INT8", "INT32"]:
            one, two, sums = (
                np.asarray(_scale(each)[0], "float64")
                for each in (x, kernel, bias)
            )
            is_right = sums.shape == (one * two).shape and np.allclose(
                sums, one * two, rtol=1e-5, atol=0
            )
            node.settings["scale of the bias"] = (
                "that of the sums" if is_right else "another"
            )


def _count(source: Any) -> dict[str, Any]:
    """Returns facts that an operator without use changes.

    Runtimes run it too, and it may fail, or never end.
    """
    return {"number of operators": len(source.operators)}


def _scale(tensor: Any) -> tuple[list[float], list[int], int]:
    """Returns the scales of a tensor's integers, their zeros, and the axis."""
    found = tensor.quantization
    if found is None or found.scale is None:
        return [], [], 0
    scale, zero = _list(found.scale), _list(found.zeroPoint)
    return scale, zero or [0] * len(scale), found.quantizedDimension


def _plain(value: Any) -> Any:
    if hasattr(value, "__dict__"):
        return {key: _plain(each) for key, each in vars(value).items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _list(values: Any) -> list[Any]:
    """Returns a list, also from the format's arrays and None."""
    return [] if values is None else [*_plain(values)]
