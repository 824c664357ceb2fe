"""Positional encodings and Transformer layers for Keras 3, and exports."""

__version__ = "0.1.0"

import importlib
import pkgutil
import re
import sys
from importlib.util import find_spec
from typing import Any

# The stub lists the public names by module: one list, which type checkers read
# too.
_STUB = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_MODULES = {
    name: module
    for module, name in re.findall(r"from (\S+) import (\w+) as", _STUB)
}
# Imported when one of their names is first used: no `.keras` file needs them,
# and they take longer to import than all layers.
_LATE = (
    "keras_posenc.checkpoints.hugging_face",
    "keras_posenc.checkpoints.keras_hub",
    "keras_posenc.checkpoints.saving",
    "keras_posenc.export",
    "keras_posenc.scoring",
)
# Modules of further names, for "did you mean".
_GROUPS = ("distribution", "positions", "training", "types")
__all__ = sorted(name for name in _MODULES if _MODULES[name] != __name__)


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module == __name__:
        return importlib.import_module(f"{module}.{name}")
    if module is None:
        from keras_posenc.ops.suggestions import no_such_name

        # Tools look up names that begin with an underscore.
        modules = () if name.startswith("_") or not _HAS_KERAS else _GROUPS
        known = [
            f"{module}.{each}"
            for module in modules
            for each in importlib.import_module(f"{__name__}.{module}").__all__
        ]
        raise no_such_name(__name__, name, known=[*known, *__all__])
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    hidden = {name for name in globals() if name.startswith("_")}
    return sorted({*hidden, *__all__})


# What `.keras` files hold is registered with Keras as it is imported. A worker
# that scores files loads none, and has forbidden Keras, which takes seconds. A
# replay of a file's cases runs where Keras is not installed.
_HAS_KERAS = sys.modules.get("keras", sys) is not None and find_spec("keras")
if _HAS_KERAS:
    from keras_posenc.keras_internals import without_collections as _kept

    with _kept():
        training = importlib.import_module("keras_posenc.training")
        positions = importlib.import_module("keras_posenc.positions")
        for _name in __all__:
            if not _MODULES[_name].startswith(_LATE):
                __getattr__(_name)
