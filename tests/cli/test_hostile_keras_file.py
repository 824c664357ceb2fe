"""`.keras` files from anywhere: nothing of them runs, and none is a bomb."""

import base64
import importlib
import json
import marshal
import time
import zipfile

import keras
import pytest

from keras_posenc_cli import keras_file
from keras_posenc_cli.keras_file import keras_loader

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
        path.parent.mkdir(exist_ok=True)
        names = {"config": "config.json", "weights": "model.weights.h5"}
        changed = {names.get(key, key): changes[key] for key in changes}
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in {**parts, **changed}.items():
                archive.writestr(name, content)
        return path

    return writer


def load(path):
    with keras_loader("keras_posenc") as loader:
        return loader(path)


def layer(module, class_name, /, **config):
    return {
        "module": module,
        "class_name": class_name,
        "config": config,
        "registered_name": None,
    }


def with_layers(parts, *added):
    config = json.loads(parts["config.json"])
    config["config"]["layers"] += added
    return json.dumps(config)


def with_zeros(folder):
    """Weights that HDF5 packs, too: these are 4 GB of zeros."""
    weights = folder / "weights.h5"
    with h5py.File(weights, "w") as file:
        group = file.create_group("layers/dense/vars")
        group.create_dataset(
            "0", (2**20, 2**10), "float32", compression="gzip", fillvalue=0
        )
        group["1"] = [0.0] * 3
    return weights.read_bytes()


def with_code(folder):
    """A Lambda layer that leaves a mark."""
    code = compile(f"open({str(folder / 'run')!r}, 'w')", "x", "eval")
    function = {
        "class_name": "__lambda__",
        "config": {
            "code": base64.b64encode(marshal.dumps(code)).decode(),
            "defaults": None,
            "closure": None,
        },
    }
    return layer("keras.layers", "Lambda", name="run", function=function)


def test_forged_files(write, parts, tmp_path):
    """What a file holds, and why it does not load."""
    command = f"touch {tmp_path / 'run'}"
    for changes, message in (
        ({"weights": bytes(100_000_000)}, r"would grow to 1000\d+"),
        ({"weights": with_zeros(tmp_path)}, "could not be loaded|memory"),
        ({"config": "[" * 200_000}, "maximum recursion depth"),
        (with_code(tmp_path), "arbitrary code execution"),
        (layer("os", "system", command=command), "Could not locate"),
        (
            layer("keras.layers", "StringLookup", vocabulary="/etc/passwd"),
            "StringLookup",
        ),
    ):
        if "class_name" in changes:
            changes = {"config": with_layers(parts, changes)}
        path = write(zipfile.ZIP_DEFLATED, **changes)
        with pytest.raises(ValueError, match=message):
            load(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="zip file"):
        load(path)
    assert not (tmp_path / "run").exists()


def test_layers_that_take_long_to_begin(write, parts, monkeypatch):
    first, second = (
        layer("keras.layers", "Dense", name=name, units=5000)
        for name in ("first", "second")
    )
    second["config"]["kernel_initializer"] = "orthogonal"
    path = write(config=with_layers(parts, first, second))
    monkeypatch.setattr(keras_file, "_SECONDS", 0)
    start = time.process_time()
    with pytest.raises(ValueError, match="loaded it used more than 0 s"):
        load(path)
    assert time.process_time() - start < 1  # none of the work was done here


def test_file_that_is_exchanged_meanwhile(write, monkeypatch):
    """What is loaded here is what was tried."""
    path = write()
    run = keras_file.Worker.run

    def exchange(*arguments, **options):
        answer = run(*arguments, **options)
        path.write_bytes(b"another")
        return answer

    monkeypatch.setattr(keras_file.Worker, "run", exchange)
    assert load(path).layers[0].units == 3


def test_modules_are_imported_there(write, parts, tmp_path, monkeypatch):
    """... without limits, and print what they like."""
    (tmp_path / "chatty_layers.py").write_text(
        "import keras, os\n"
        "os.write(1, b'words')\n"
        "@keras.saving.register_keras_serializable(package='chatty')\n"
        "class Chatty(keras.layers.Layer): pass\n"
    )
    chatty = layer("chatty_layers", "Chatty", name="chatty")
    chatty["registered_name"] = "chatty>Chatty"
    path = write(config=with_layers(parts, chatty))
    with pytest.raises(ValueError, match="Could not locate class 'Chatty'"):
        load(path)
    with keras_loader("keras_posenc", ["chatty_layers"], [str(tmp_path)]) as it:
        monkeypatch.syspath_prepend(tmp_path)
        importlib.import_module("chatty_layers")
        assert it(path).layers[-1].name == "chatty"
