"""What the package needs, and what importing it brings."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_oldest_lock_pins_the_lower_bounds():
    """So `make test-oldest` tests what pyproject.toml promises."""
    locked = {}
    text = (ROOT / "requirements" / "oldest.txt").read_text()
    for package, version in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", text):
        locked.setdefault(canonicalize_name(package), set()).add(version)
    optional = PROJECT["optional-dependencies"]["test"]
    for line in [*PROJECT["dependencies"], *optional]:
        requirement = Requirement(line)
        (bound,) = requirement.specifier
        # On a newer Python there may be no such old version.
        version = min(map(Version, locked[canonicalize_name(requirement.name)]))
        assert bound.operator == ">="
        assert version == Version(bound.version), requirement


def registered_names():
    """What the files of the whole package register with Keras."""
    for path in (ROOT / "keras_posenc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for each in getattr(node, "decorator_list", []):
                match each:
                    case ast.Call(
                        func=ast.Attribute(attr="register_keras_serializable")
                    ):
                        said = {k.arg: k.value.value for k in each.keywords}
                        name = said.get("name", node.name)
                        yield f"{said['package']}>{name}"


CODE = """
import sys
import keras, numpy

others = {*sys.modules}
import keras_posenc as kp

brought = {name.split(".")[0] for name in {*sys.modules} - others}
brought -= sys.stdlib_module_names
assert brought == {"keras_posenc"}, brought
registered = {*keras.saving.get_custom_objects()}
assert registered == REGISTERED, registered ^ REGISTERED
late = {*kp._LATE, "keras_posenc.types", "keras_posenc.analysis"}
assert not late & {*sys.modules}, late & {*sys.modules}
names = [name for name in dir(kp) if not name.startswith("_")]
assert {"PositionalEncoding", "export_litert"} <= {*names}, names
for name in kp._MODULES:
    getattr(kp, name)
for module in (kp.training, kp.types):
    for name in dir(module):
        getattr(module, name)
assert late <= {*sys.modules}, late - {*sys.modules}
for module in (kp, kp.training):
    try:
        module.export_tflite
    except AttributeError as error:
        assert f"module '{module.__name__}' has no " in str(error)
    else:
        raise AssertionError(module)
"""


def test_import_brings_what_files_hold_and_no_more(plain_workers, tmp_path):
    """All that `load_model` looks for; what is late, when asked for.

    Nothing but the package comes with it, once Keras is there: in a worker,
    which has imported nothing else.
    """
    from keras_posenc_cli.keras_file import keras_loader

    code = f"REGISTERED = { ({*registered_names()}) }\n{CODE}"
    (tmp_path / "imports.py").write_text(code)
    with (
        keras_loader("imports", folders=[str(tmp_path)]) as load,
        pytest.raises(ValueError, match="not a zip file"),
    ):
        load(tmp_path / "imports.py")
