"""What a function computes decides its digest, and nothing else."""

import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")

from tensorflow.core.framework import function_pb2  # noqa: E402

from keras_posenc_worker.graph_digests import (  # noqa: E402
    GraphDigests,
    call_options,
)


@pytest.fixture
def definition():
    """A function that draws twice, and reads what it changes in between."""
    state = tf.Variable([1.0, 2.0])

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def function(x):
        one, two = (
            tf.raw_ops.RandomUniform(shape=[2], dtype="float32")
            for _ in range(2)
        )
        before = state.read_value()
        state.assign_add(x)
        with tf.control_dependencies([state.read_value()]):
            after = tf.identity(state.read_value())
        return {"one": before + after, "two": one - two}

    def define():
        return function.get_concrete_function().function_def

    return define


def digests(function):
    return graph(function.signature.name, function)


def graph(name, *functions):
    library = {each.signature.name: each for each in functions}
    count = len(library[name].signature.input_arg)
    labels = ["input x", *(f"weight {i}" for i in range(count - 1))]
    return GraphDigests(library).of(name, labels).graph(["one", "two"])


def nodes(function, operator):
    return [node for node in function.node_def if node.op == operator]


def drawn_once(function):
    one, two = nodes(function, "Sub")[0].input
    nodes(function, "Sub")[0].input[1] = one
    assert one != two


def in_no_order(function):
    for node in function.node_def:
        inputs = [each for each in node.input if each[0] != "^"]
        del node.input[:]
        node.input.extend(inputs)


def read_before_it_is_changed(function):
    for node in nodes(function, "ReadVariableOp"):
        inputs = [each for each in node.input if each[0] != "^"]
        del node.input[:]
        node.input.extend(inputs)


def never_changed(function):
    (node,) = nodes(function, "AssignAddVariableOp")
    for name, value in list(function.control_ret.items()):
        if value == node.name:
            del function.control_ret[name]
    in_no_order(function)


def on_another_device(function):
    nodes(function, "Sub")[0].device = "/device:GPU:1"


def of_another_kernel(function):
    nodes(function, "Sub")[0].attr["_kernel"].s = b"host"


def of_another_pass(function):
    nodes(function, "Sub")[0].attr["_anything"].s = b"forged"


def of_a_shared_state(function):
    nodes(function, "RandomUniform")[0].attr["shared_name"].s = b"forged"


@pytest.mark.parametrize(
    "edit",
    [
        drawn_once,
        in_no_order,
        read_before_it_is_changed,
        never_changed,
        on_another_device,
        of_another_kernel,
        of_another_pass,
        of_a_shared_state,
    ],
    ids=lambda edit: edit.__name__,
)
def test_edit_changes_the_digest(definition, edit):
    edited = type(definition())()
    edited.CopyFrom(definition())
    edit(edited)
    assert edited != definition()
    assert digests(edited) != digests(definition())


def test_what_need_not_be_done_changes_the_digest(definition):
    found = []
    for edit in (in_no_order, never_changed):
        edited = type(definition())()
        edited.CopyFrom(definition())
        edit(edited)
        found.append(digests(edited))
    assert found[0] != found[1]


def test_names_and_calls_do_not_change_the_digest(definition):
    inner = definition()
    renamed = type(inner)()
    renamed.CopyFrom(inner)
    for node in renamed.node_def:
        names = [f"^z_{x[1:]}" if x[0] == "^" else x for x in node.input]
        names = [
            f"z_{x}" if x.partition(":")[0] in own(inner) else x for x in names
        ]
        node.name = f"z_{node.name}"
        del node.input[:]
        node.input.extend(names)
    for items in (renamed.ret, renamed.control_ret):
        for key, value in list(items.items()):
            items[key] = f"z_{value}"
    assert digests(renamed) == digests(inner)
    outer = type(inner)()
    outer.CopyFrom(inner)
    outer.signature.name = "outer"
    del outer.node_def[:]
    call = outer.node_def.add(name="call", op="StatefulPartitionedCall")
    call.input.extend(each.name for each in inner.signature.input_arg)
    call.attr["f"].func.name = inner.signature.name
    for index, each in enumerate(inner.signature.output_arg):
        outer.ret[each.name] = f"call:output:{index}"
    outer.control_ret.clear()
    outer.control_ret["call"] = "call"
    assert graph("outer", inner, outer) == digests(inner)


def own(function):
    return {node.name for node in function.node_def}


@pytest.mark.parametrize("is_on", [True, False])
def test_an_option_that_is_off_is_as_if_nobody_had_set_it(is_on):
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = is_on
    assert bool(call_options(config.SerializeToString())) == is_on


def test_two_tokenizers_of_one_name_are_not_two_of_their_own():
    """They share the first one's model; Python renames models that it loads."""

    def found(*names):
        library = {}
        for function, name in zip("ab", names, strict=True):
            made = library[function] = function_pb2.FunctionDef()
            made.signature.name = function
            node = made.node_def.add(name="it", op="SentencepieceOp")
            node.attr["model"].s = function.encode()
            node.attr["shared_name"].s = name
            made.signature.output_arg.add(name="handle")
            made.ret["handle"] = "it:sentencepiece_handle:0"
        digests = GraphDigests(library)
        return [digests.of(function, []).results for function in "ab"]

    apart = found(b"it_load_1", b"it_load_2")
    for shared in ((b"it", b"it"), (b"it_load_1", b"it_load_1"), (b"", b"")):
        assert found(*shared) != apart
    assert found(b"it", b"one") == found(b"it_load_1", b"one")
