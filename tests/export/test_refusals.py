"""Arguments that do not fit: named before any work, and nothing is written."""

import keras
import pytest
from keras import layers

import keras_posenc as kp
from tests.refusals import check, table

pytestmark = pytest.mark.tensorflow


class Gan(keras.Model):
    """As keras.io's GANs, which have a `train_step` alone."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((4,))], name="made")


REFUSED = table("""
    kp.export_saved_model(m, "a.tflite")
        is written by export_litert
    kp.export_litert(Gan(), "m.tflite")
        no `call`...model.generator...made
    kp.export_saved_model("m.keras", "m")
        must be a keras.Model...keras.saving.load_model('m.keras')
    kp.export_litert(layers.Dense(2), "m.tflite")
        `model` must be a keras.Model
    kp.export_litert(m, 3)
        `path` must be a path. Received
    kp.export_saved_model(m, m)
        `base_path` must be a path
    kp.inspect_export(m)
        `path` must be a path. ... Sequential
    kp.export_litert(m, "m.tflite", verify=False, samples=3)
        `samples` cannot be used with `verify=False`
    kp.export_litert(m, "m.tflite", signatures={"": m})
        must map names, of letters
    kp.export_litert(m, "m.tflite", signatures={"__saved_model_init_op": m})
        must map names, of letters
    kp.export_litert(m, "m.tflite", signatures={"a": (m, {"ids": wide})})
        is of dtype int32. Received: dtype int64
    kp.export_litert(m, "m.tflite", quantization="int5")
        `quantization` must be one of 'float16', 'int8', 'int8-weights',
        'int8-static', 'int4', the path of a recipe of ai-edge-quantizer
        (.json), a list of its dicts, or None; kp.quantize finds a recipe.
        Received: quantization='int5'
    kp.export_litert(m, "m.tflite", quantization="none.json")
        a JSON file, which cannot be read
    kp.export_litert(m, "m.tflite", quantization=[{"regex": ".*"}])
        list of dicts with the keys
    kp.export_litert(m, "m.tflite", quantization="int8-static")
        with `samples`
    kp.export_onnx(m, "m.onnx", quantization="float16")
        must be 'int8' or None
    kp.export_onnx(m, "m.tflite")
        must end in '.onnx'
    kp.export_onnx(m, "m.onnx", signatures={"a": m, "b": m})
        must be one for an ONNX file
    kp.verify_export(file, own, max_length=0)
        a positive integer. Received: max_length=0
    kp.verify_export(file, "model.keras")
        `model` must be a keras.Model
    kp.verify_export(file, own, tolerance=float("nan"))
        `tolerance` must be a finite number
    kp.verify_export(file, own, samples={"ids": [[50]]})
        The model itself does not take
    kp.verify_export(file, own, allow_operators="Timestamp")
        `allow_operators` must be a list
    kp.verify_export(file, tolerance=1.0)
        `tolerance` needs the model
    kp.verify_export(file, runtimes=["onnx"])
        must be of 'litert', 'litert_compiled' for
""")


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_arguments(
    make, model, litert, call, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    scope = {"kp": kp, "layers": layers, "Gan": Gan, "m": make.embedder()}
    scope |= {"wide": keras.InputSpec("int64", (None, 3))}
    check(call, said, {**scope, "own": model, "file": litert.path})
    assert list(tmp_path.iterdir()) == []
    assert "Converting" not in capsys.readouterr().err
