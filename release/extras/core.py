"""Without extras: every module and name, README's model, the command."""

import importlib
import pkgutil
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import keras_posenc as kp
import keras_posenc_cli
import keras_posenc_worker

optional = {"keras_hub", "matplotlib", "onnx", "onnxruntime", "safetensors"}
optional |= {"jax", "mediapipe", "orbax", "pyarrow", "shtab", "tf2onnx"}
assert not optional & {*metadata.packages_distributions()}

for package in (kp, keras_posenc_cli, keras_posenc_worker):
    for module in pkgutil.walk_packages(
        package.__path__, package.__name__ + "."
    ):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
assert len(kp.__all__) > 50
for name in kp._MODULES:
    getattr(kp, name)

readme = metadata.metadata("keras-posenc").get_payload()
namespace = {}
exec(re.search(r"(?s)```python\n(.*?)```", readme)[1], namespace)
assert namespace["right"].mean() > 0.95
namespace["model"].save("judge.keras")

command = Path(sys.executable).with_name("keras-posenc")
for arguments in (
    ["--help"],
    ["export", "litert", "judge.keras", "--out", "judge.tflite"],
    ["export", "saved-model", "judge.keras", "--out", "judge"],
    ["verify", "judge.keras", "judge.tflite"],
):
    subprocess.run([command, *arguments], check=True)
