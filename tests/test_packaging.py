"""The wheel holds the package alone, and importing it brings no more."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_wheel_holds_the_package_alone(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    packages = ("keras_posenc", "keras_posenc_cli", "keras_posenc_worker")
    for name in (*packages, "tests"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    expected = {
        path.relative_to(source).as_posix()
        for name in packages
        for path in (source / name).rglob("*.py")
    }
    expected |= {
        f"keras_posenc/{name}"
        for name in (
            *("py.typed", "__init__.pyi", "export/operators.toml"),
            "export/formats/savedmodel_card.txt",
        )
    }

    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "--no-build-isolation", "-w", tmp_path, source],
        check=True,
        capture_output=True,
    )

    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert any(name.endswith("LICENSE") for name in names)


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


def test_import_brings_what_files_hold_and_no_more():
    """All that `load_model` looks for; what is late, when asked for.

    Nothing but the package comes with it, once Keras is there.
    """
    code = """
import sys
import keras, numpy

others = {*sys.modules}
import keras_posenc as kp

brought = {name.split(".")[0] for name in {*sys.modules} - others}
brought -= sys.stdlib_module_names
assert brought == {"keras_posenc"}, brought
print(*keras.saving.get_custom_objects(), sep="\\n")
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
        print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    *registered, error, of_training = found.stdout.splitlines()
    assert {*registered} == {*registered_names()}
    assert error.startswith("module 'keras_posenc' has no attribute")
    assert of_training.startswith("module 'keras_posenc.training' has no")
