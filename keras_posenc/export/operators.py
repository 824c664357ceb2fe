"""The operators that an exported file may have: those of `operators.toml`.

The user allows more by `allow_operators`.
"""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

_LISTS = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
ALLOWED, BY_PLACE = (
    frozenset(name for group in _LISTS[of].values() for name in group.split())
    for of in ("allowed", "allowed_in_some_places")
)

_INSTEAD = {
    name: " ".join(each["remedy"].split())
    for each in _LISTS["instead"]
    for name in each["operators"].split()
}


def lacking(
    operators: Sequence[str], nodes: Mapping[str, str], layers: Collection[Any]
) -> str:
    """Returns operators that a format lacks, whose they are, and a remedy."""
    names = {layer.name: type(layer).__name__ for layer in layers}

    def of_layer(operator: str) -> str:
        for part in reversed(nodes.get(operator, "").split("/")[:-1]):
            # TensorFlow numbers a scope that is entered again.
            for name in (part, re.sub(r"_\d+$", "", part)):
                if name in names:
                    return f"{operator} ({names[name]} '{name}')"
        return operator

    remedies = {_INSTEAD[each]: each for each in operators if each in _INSTEAD}
    told = [f"{name}: {text}" for text, name in remedies.items()]
    if not of_python(operators):
        told.append("export_saved_model keeps TensorFlow's operators")
    return ". ".join([", ".join(map(of_layer, operators)), *told])


def of_python(operators: Collection[str]) -> str:
    """Returns what to do about operators that call Python functions, or ""."""
    names = {"EagerPyFunc", "PyFunc", "PyFuncStateless"} & {*operators}
    return f"{min(names)}: {_INSTEAD[min(names)]}" if names else ""
