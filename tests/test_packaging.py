"""The wheel holds the package alone; the locks agree with pyproject.toml."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = sorted(
    [
        *(ROOT / "requirements").glob("*.txt"),
        *(ROOT / "export").glob("*/requirements.txt"),
        ROOT / "export" / "kserve" / "tensorflow.txt",
    ]
)


def requirements(*extras):
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def pins(name):
    """The versions of each package in a lock; more than one by platform."""
    found = {}
    text = (ROOT / "requirements" / name).read_text()
    for package, version in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", text):
        found.setdefault(canonicalize_name(package), set()).add(version)
    return found


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
        for name in ("py.typed", "__init__.pyi", "export/operators.toml")
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


def test_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    source = (ROOT / "keras_posenc" / "__init__.py").read_text()
    assert f'__version__ = "{citation["version"]}"' in source
    assert citation["authors"] == PROJECT["authors"]
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]


def test_each_extra_is_tried_by_a_script():
    scripts = {path.stem for path in (ROOT / "release/extras").glob("*.py")}
    assert scripts == {"core", *PROJECT["optional-dependencies"]}


def cells(page):
    """The rows of a page's tables, by their first cell."""
    rows = re.findall(r"(?m)^\| (.+) \|$", (ROOT / page).read_text())
    return {key: rest for key, *rest in (row.split(" | ") for row in rows)}


SUPPORTED = cells("docs/support.md")
NAMES_OF_PACKAGES = {
    "Keras": "keras",
    "TensorFlow, TF-Text": "tensorflow",
    "LiteRT (`ai-edge-litert`)": "ai-edge-litert",
    "NumPy": "numpy",
    "ONNX": "onnx",
    "ONNX Runtime": "onnxruntime",
    "tf2onnx": "tf2onnx",
    "MediaPipe": "mediapipe",
    "PyArrow": "pyarrow",
    "keras-hub": "keras-hub",
}


TESTED_ONCE = {
    "JAX, as Keras's backend": ("jax.txt", "jax"),
    "PyTorch, as Keras's backend": ("torch.txt", "torch"),
    "OpenVINO": ("dev.txt", "openvino"),
    "KServe's model server": ("dev.txt", "kserve"),
    "PySpark": ("../export/spark/requirements.txt", "pyspark"),
    "Apache Beam": ("../export/beam/requirements.txt", "apache-beam"),
    "Ray": ("../export/ray/requirements.txt", "ray"),
}


def minor(versions, choose):
    chosen = choose(map(Version, versions))
    return f"{chosen.major}.{chosen.minor}"


def test_support_table_is_that_of_the_locks():
    oldest, newest = pins("oldest.txt"), pins("dev.txt")
    for row, name in NAMES_OF_PACKAGES.items():
        bounds = [minor(oldest[name], min), minor(newest[name], max)]
        assert SUPPORTED[row][:2] == bounds, row
    for row, (lock, name) in TESTED_ONCE.items():
        # On Python 3.11, for which a lock may have an older version.
        assert SUPPORTED[row][0] == minor(pins(lock)[name], min), row


def test_support_table_names_all_pythons_and_extras():
    pythons = [
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if re.search(r":: 3\.\d", line)
    ]
    assert SUPPORTED["Python"][:2] == [pythons[0], pythons[-1]]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    extras = set(re.findall(r"`(\w+)`", " ".join(SUPPORTED)))
    assert extras >= set(PROJECT["optional-dependencies"])


def test_dev_lock_meets_every_requirement():
    locked = pins("dev.txt")
    for requirement in requirements("test", "runtimes", "dev"):
        for version in locked[canonicalize_name(requirement.name)]:
            assert requirement.specifier.contains(version), requirement


def test_oldest_lock_pins_the_lower_bounds():
    locked = pins("oldest.txt")
    for requirement in requirements("test"):
        (bound,) = requirement.specifier
        # On a newer Python there may be no such old version.
        version = min(map(Version, locked[canonicalize_name(requirement.name)]))
        assert bound.operator == ">="
        assert version == Version(bound.version), requirement


def test_locks_name_no_host_and_no_path():
    for lock in LOCKS:
        for line in lock.read_text().splitlines():
            assert not re.search(r"://|(^|[\s(])[/~]|^-", line), (lock, line)


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
