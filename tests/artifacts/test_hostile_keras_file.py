"""`.keras` files from anywhere: nothing of them runs, and none is a bomb."""

import base64
import json
import marshal
import os
import signal
import subprocess
import sys
import time
import zipfile

import keras
import pytest

from keras_posenc.artifacts import keras_file
from keras_posenc.artifacts.keras_file import load_keras_file

pytestmark = pytest.mark.tensorflow
h5py = pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The three files of a small model's `.keras` file."""
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    keras.Sequential(
        [keras.Input((4,), name="x"), keras.layers.Dense(3, name="dense")]
    ).save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def write(parts, tmp_path):
    def writer(method=zipfile.ZIP_STORED, **changes):
        path = tmp_path / "in" / "model.keras"
        path.parent.mkdir()
        names = {"config": "config.json", "weights": "model.weights.h5"}
        changed = {names.get(key, key): changes[key] for key in changes}
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in {**parts, **changed}.items():
                archive.writestr(name, content)
        return path

    return writer


def with_layer(parts, layer):
    config = json.loads(parts["config.json"])
    config["config"]["layers"].append(layer)
    return json.dumps(config)


def test_whole_file(write):
    assert load_keras_file(write()).layers[0].units == 3


def test_packed_file(write):
    """As some tools write it again."""
    assert load_keras_file(write(zipfile.ZIP_DEFLATED)).layers[0].units == 3


def test_file_that_grows(write):
    path = write(zipfile.ZIP_DEFLATED, weights=bytes(100_000_000))
    with pytest.raises(ValueError, match=r"would grow to 1000\d+"):
        load_keras_file(path)


def test_weights_that_grow(write, tmp_path):
    """HDF5 packs, too: these are 4 GB of zeros."""
    weights = tmp_path / "weights.h5"
    with h5py.File(weights, "w") as file:
        group = file.create_group("layers/dense/vars")
        group.create_dataset(
            "0", (2**20, 2**10), "float32", compression="gzip", fillvalue=0
        )
        group["1"] = [0.0] * 3
    with pytest.raises(ValueError, match=r"could not be loaded|memory"):
        load_keras_file(write(weights=weights.read_bytes()))


def test_configuration_without_end(write):
    with pytest.raises(RecursionError):
        load_keras_file(write(config="[" * 200_000))


def test_layers_that_take_long_to_begin(write, parts, monkeypatch):
    """Orthogonal kernels, each a second of work and a line of the file."""
    config = json.loads(parts["config.json"])
    layers = config["config"]["layers"]
    *_, dense = layers
    for index in range(60):
        layer = json.loads(json.dumps(dense))
        layer["config"] |= {
            "name": f"more_{index}",
            "units": 1500,
            "kernel_initializer": {
                "module": "keras.initializers",
                "class_name": "Orthogonal",
                "config": {"gain": 1.0, "seed": None},
                "registered_name": None,
            },
        }
        layer["build_config"] = {"input_shape": [None, 1500 if index else 3]}
        layers.append(layer)
    path = write(config=json.dumps(config))
    monkeypatch.setattr(keras_file, "_SECONDS", 2)
    start = time.process_time()
    with pytest.raises(ValueError, match="takes more work than a file of its"):
        load_keras_file(path)
    assert time.process_time() - start < 2 + 4


def test_limit_of_work_is_taken_back(write):
    resource = pytest.importorskip("resource")
    limits = (resource.RLIMIT_CPU, resource.RLIMIT_CORE)
    before = [resource.getrlimit(limit) for limit in limits]
    handler = signal.getsignal(signal.SIGPROF)
    load_keras_file(write())
    assert [resource.getrlimit(limit) for limit in limits] == before
    assert signal.getsignal(signal.SIGPROF) is handler
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


@pytest.mark.parametrize(
    ("work", "end"),
    [
        # Python that catches everything, and native code that never returns.
        ("while True:\n  try: pass\n  except Exception: pass", "_TimeIsUp"),
        pytest.param("sum(range(10**15))", "SIGXCPU", marks=pytest.mark.slow),
    ],
)
def test_work_without_end(work, end):
    pytest.importorskip("resource")
    program = (
        "import runpy, sys\n"
        "limit = runpy.run_path(sys.argv[1])['_time_limit']\n"
        "with limit(1):\n " + work.replace("\n", "\n ")
    )
    process = subprocess.run(
        [sys.executable, "-c", program, keras_file.__file__],
        capture_output=True,
        text=True,
        check=False,
    )
    if end == "SIGXCPU":
        assert process.returncode == -signal.SIGXCPU
    else:
        assert end in process.stderr


@pytest.mark.parametrize("part", [0, 1, 100, 0.5, -1])
def test_truncated_file(write, part):
    path = write()
    content = path.read_bytes()
    end = part if isinstance(part, int) else int(part * len(content))
    path.write_bytes(content[:end])
    with pytest.raises(
        ValueError, match=r"no \.keras file, or not a whole one"
    ):
        load_keras_file(path)


def test_code_in_a_configuration(write, parts, tmp_path):
    mark = tmp_path / "run"
    code = compile(f"open({str(mark)!r}, 'w')", "x", "eval")
    function = {
        "class_name": "__lambda__",
        "config": {
            "code": base64.b64encode(marshal.dumps(code)).decode(),
            "defaults": None,
            "closure": None,
        },
    }
    layer = {
        "module": "keras.layers",
        "class_name": "Lambda",
        "config": {"name": "run", "function": function},
        "registered_name": None,
    }
    with pytest.raises(ValueError, match="arbitrary code execution"):
        load_keras_file(write(config=with_layer(parts, layer)))
    assert not mark.exists()


def test_function_of_the_system(write, parts, tmp_path):
    mark = tmp_path / "run"
    layer = {
        "module": "os",
        "class_name": "system",
        "config": {"command": f"touch {mark}"},
        "registered_name": None,
    }
    with pytest.raises(TypeError, match="Could not locate"):
        load_keras_file(write(config=with_layer(parts, layer)))
    assert not mark.exists()


def test_vocabulary_of_the_system(write, parts):
    layer = {
        "module": "keras.layers",
        "class_name": "StringLookup",
        "config": {"vocabulary": "/etc/passwd"},
        "registered_name": None,
    }
    with pytest.raises((ValueError, TypeError)):
        load_keras_file(write(config=with_layer(parts, layer)))


@pytest.mark.filterwarnings("ignore:Skipping invalid path:UserWarning")
def test_assets_that_escape(write, tmp_path):
    load_keras_file(write(**{"assets/../../../escaped.txt": b"x"}))
    assert not list(tmp_path.rglob("escaped.txt"))
    assert not (tmp_path.parent / "escaped.txt").exists()


def test_limit_of_memory_is_taken_back(write):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    load_keras_file(write())
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.slow
def test_limit_of_memory_leaves_room_for_the_threads_of_a_large_machine(write):
    """Their stacks are data too: 2 GiB of them, where there are 128 cores."""
    threads = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    program = (
        "import pathlib, sys\n"
        "from keras_posenc.artifacts.keras_file import load_keras_file\n"
        "print(load_keras_file(pathlib.Path(sys.argv[1])).layers[0].units)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, write()],
        env={**os.environ, **dict.fromkeys(threads, "128")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout == "3\n", process.stderr[-2000:]
