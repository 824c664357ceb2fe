"""The table of models: how an entry is written, and how all are read.

Each other module of `tests/zoo/` has a function for each model:

    from tests.zoo.entries import model

    @model("vision/mnist_convnet", "https://keras.io/examples/vision/...")
    def mnist_convnet():
        ...
        return model  # or: return model, {"samples": ...}

A builder returns a built model, with random weights. With it may come the
arguments that a user would give to all three exports (`samples`, `signatures`,
`max_length`); those for one format alone are a dict under its name
(`{"litert": {...}}`). Many models of one kind are a loop:

    for name in names:
        model(f"applications/{name}", URL, name=name)(application)
"""

import dataclasses
import hashlib
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMATS = ("saved_model", "litert", "onnx")


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """A model of the table.

    Attributes:
        name: Its group and name, such as `"vision/mnist_convnet"`.
        source: Address of the example or of the class.
        builder: Makes it.
        arguments: Keyword arguments of `builder`.
    """

    name: str
    source: str
    builder: Callable[..., Any]
    arguments: dict[str, Any]

    def build(self):
        """The model, of the same weights each time, and its arguments."""
        import keras

        keras.utils.set_random_seed(0)
        built = self.builder(**self.arguments)
        return built if isinstance(built, tuple) else (built, {})

    @property
    def digest(self):
        """Changes with the source of the builder and of what it uses."""
        parts = [*sorted(_used(self.builder)), repr(self.arguments)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _used(builder):
    """What a function names of its module and of `parts`, itself included."""
    found, left = set(), [builder]
    while left:
        value = left.pop()
        source = inspect.getsource(value)
        if source in found:
            continue
        found.add(source)
        module = vars(inspect.getmodule(value))
        for name in re.findall(r"\w+", source):
            used = module.get(name)
            if isinstance(used, (str, int, float, list, tuple, dict)):
                found.add(f"{name} = {used!r}")
            elif getattr(used, "__module__", None) in (
                builder.__module__,
                "tests.zoo.parts",
            ):
                left.append(used)
    return found


TABLE = {}


def model(name, source, /, **arguments):
    """Puts a builder of a model into the table, called with `arguments`."""

    def add(builder):
        if name in TABLE:
            raise ValueError(f"{name} is in the table twice")
        TABLE[name] = Entry(name, source, builder, arguments)
        return builder

    return add


def group(name, address):
    """`model` for one group, whose pages are below one address.

    The page of a model is called as it is, unless one is given.
    """

    def add(of, page="", /, **arguments):
        page = page or f"{of}/"
        source = page if page.startswith("https:") else address + page
        return model(f"{name}/{of}", source, **arguments)

    return add


def stack(*layers, name=None):
    """A `keras.Sequential` of these layers."""
    import keras

    return keras.Sequential([*layers], name=name)


def table(only=None):
    """The entries of all modules, or of one, in the order of their names."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("entries", "page", "parts", "run", "test_zoo"):
            if only in (None, f"tests.zoo.{path.stem}"):
                importlib.import_module(f"tests.zoo.{path.stem}")
    return dict(sorted(TABLE.items()))


def trained(model):
    """A model of images, with statistics of noise in its normalizations.

    Those of a new one let the numbers fade from layer to layer, and then its
    outputs are the same for all images.
    """
    import keras
    import numpy as np

    random = np.random.default_rng(0)
    layers = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    if not layers:
        return model
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    inputs = keras.tree.map_structure(
        lambda x: random.uniform(
            0, 255, (8, *(size or 64 for size in x.shape[1:]))
        ).astype(x.dtype),
        model.input,
    )
    model(inputs, training=True)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    return model
