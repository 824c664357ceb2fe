"""Edits of exported files, as somebody would forge them."""

import contextlib

from tensorflow.core.protobuf import saved_model_pb2


@contextlib.contextmanager
def graph_of(folder):
    """The graph of a SavedModel, written again after it was changed."""
    path = folder / "saved_model.pb"
    message = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (graph,) = message.meta_graphs
    yield graph
    path.write_bytes(message.SerializeToString())
