"""Wrong names of arguments and of public names are explained."""

import pickle
import re

import pytest

import keras_posenc as kp
from keras_posenc import positions, training
from keras_posenc.ops.named import NamedOptions

CLASSES = {
    name: value
    for module in (kp, positions, training)
    for name in module.__all__
    if isinstance(value := getattr(module, name), type)
    and issubclass(value, NamedOptions)
}


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_class_lists_its_arguments(kind):
    with pytest.raises(ValueError, match="has no argument") as caught:
        kind(no_such_thing=8)
    start, _, listed = str(caught.value).partition(" It has: ")
    assert start == f"{kind.__name__} has no argument `no_such_thing`."
    own = {*getattr(vars(kind).get("__init__"), "__annotations__", ())}
    own -= {"return", "args", "kwargs", "options"}
    assert own <= {*listed.split(", ")}


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (kp.PositionalEncoding, "layot", ". Did you mean `layout`?"),
        (kp.TransformerEncoder, "num_head", ". Did you mean `num_heads`?"),
        (kp.TransformerEncoder, "sliding_window", "."),
        (
            kp.SelfAttention,
            "use_causal_mask",
            " (the call takes it: layer(x, use_causal_mask=...)).",
        ),
    ],
)
def test_advice(kind, name, advice):
    with pytest.raises(ValueError, match="has no argument") as caught:
        kind(**{name: 8})
    found = str(caught.value).partition(f"`{name}`")[2]
    assert found.partition(" It has: ")[0] == advice


class Mine(kp.AttentionPosition):
    def __init__(self, **options):
        self.max_len = options.pop("max_len")
        super().__init__(**options)


def test_a_subclass_takes_what_it_says():
    assert Mine(max_len=3, name="mine").max_len == 3
    with pytest.raises(ValueError, match="sharpness"):
        Mine(max_len=3, sharpness=2)


class HandsOn(kp.PositionalEncoding):
    def __init__(self, alpha=1, **options):
        self.beta = options.pop("beta", None)
        super().__init__(**options)


def test_a_subclass_hands_on_what_it_does_not_take():
    layer = HandsOn(alpha=2, beta=3, name="mine", dtype="float16")
    assert (layer.beta, layer.name) == (3, "mine")
    with pytest.raises(ValueError, match="'rate'"):
        HandsOn(beta=3, rate=5)
    with pytest.raises(ValueError, match="'nothing'"):
        HandsOn(dtype="nothing")


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        (kp, "load_huggingface", ". Did you mean `load_hugging_face`?"),
        (kp, "NoamSchedule", ". Did you mean `training.NoamSchedule`?"),
        (training, "NoamShedule", ". Did you mean `NoamSchedule`?"),
        (kp, "quite_another_thing", ""),
    ],
)
def test_names_that_are_not_there(module, name, advice):
    message = f"module '{module.__name__}' has no attribute '{name}'{advice}"
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
        # Not `getattr`, which finds subpackages that others have imported.
        vars(module)["__getattr__"](name)
    assert {*module.__all__} <= {*dir(module)}
    assert pickle.loads(pickle.dumps(kp.inspect_export)) is kp.inspect_export
