"""Shapes that LiteRT knows before it runs a file."""

from pathlib import Path


def put_shapes_ahead(saved_model: Path) -> None:
    """Has a SavedModel to convert join its sizes by ConcatV2, not by Pack.

    A LiteRT runtime computes what follows from its inputs' shapes as soon as it
    has them, by every operator that a shape is made of except PACK. Where one
    is left to the run, all that is behind it is prepared while the file runs.
    XNNPACK's delegate (ai-edge-litert 2.3.0) then moves memory that its parts
    share, but tells nothing to those that have run: asked once more, they read
    and write where it was before.
    """
    from tensorflow.core.framework import node_def_pb2, types_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model / "saved_model.pb"
    message = saved_model_pb2.SavedModel()
    message.ParseFromString(file.read_bytes())
    for graph in message.meta_graphs:
        for function in graph.graph_def.library.function:
            for node in list(function.node_def):
                integer = types_pb2.DT_INT32
                if node.op != "Pack" or node.attr["T"].type != integer:
                    continue
                axis = node_def_pb2.NodeDef(
                    name=f"{node.name}/joined/axis", op="Const"
                )
                axis.attr["dtype"].type = integer
                axis.attr["value"].tensor.dtype = integer
                axis.attr["value"].tensor.tensor_shape.SetInParent()
                axis.attr["value"].tensor.int_val.append(node.attr["axis"].i)
                function.node_def.append(axis)
                count = node.attr["N"].i
                del node.attr["axis"]
                # All three operators call their output the same.
                if count == 1:  # too few for ConcatV2
                    node.op = "ExpandDims"
                    node.input.insert(1, f"{axis.name}:output:0")
                    node.attr["Tdim"].type = integer
                    del node.attr["N"]
                    continue
                for index in range(count):
                    part = node_def_pb2.NodeDef(
                        name=f"{node.name}/joined/{index}",
                        op="ExpandDims",
                        input=[node.input[index], f"{axis.name}:output:0"],
                    )
                    part.attr["T"].type = part.attr["Tdim"].type = integer
                    function.node_def.append(part)
                    node.input[index] = f"{part.name}:output:0"
                node.op = "ConcatV2"
                node.input.insert(count, f"{axis.name}:output:0")
                node.attr["Tidx"].type = integer
    file.write_bytes(message.SerializeToString())
