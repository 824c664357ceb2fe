"""Without extras: every module and name, README's model, the command."""

import importlib
import pkgutil
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import keras

import keras_posenc as kp
import keras_posenc_cli
import keras_posenc_worker

optional = {"keras_hub", "matplotlib", "onnx", "onnxruntime", "safetensors"}
optional |= {"jax", "mediapipe", "orbax", "pyarrow", "tf2onnx"}
assert not optional & {*metadata.packages_distributions()}

for package in (kp, keras_posenc_cli, keras_posenc_worker):
    for module in pkgutil.walk_packages(
        package.__path__, package.__name__ + "."
    ):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
assert len(kp.__all__) > 40
for name in kp._MODULES:
    getattr(kp, name)

readme = metadata.metadata("keras-posenc").get_payload()
_, code = re.findall(r"(?s)```python\n(.*?)```", readme)
namespace = {"keras": keras, "kp": kp}
exec(code, namespace)
model, texts, labels = map(namespace.get, ("model", "texts", "labels"))
assert model.evaluate(texts[:400], labels[:400], verbose=0)[1] > 0.8
model.save("order.keras")

command = Path(sys.executable).with_name("keras-posenc")
for arguments in (
    ["--help"],
    ["export", "litert", "order.keras", "--out", "order.tflite"],
    ["export", "saved-model", "order.keras", "--out", "order"],
    ["verify", "order.keras", "order.tflite"],
):
    subprocess.run([command, *arguments], check=True)
