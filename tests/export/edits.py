"""Edits of exported files, as somebody would forge them."""

import contextlib

from tensorflow.core.protobuf import saved_model_pb2


def message_of(folder):
    content = (folder / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content)


@contextlib.contextmanager
def graph_of(folder):
    """The graph of a SavedModel, written again after it was changed."""
    message = message_of(folder)
    (graph,) = message.meta_graphs
    yield graph
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
