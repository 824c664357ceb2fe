#!/usr/bin/env bash
# Builds the image of export/command, which exports a model and verifies it.
# Needs Docker, `make dist`, and a Python with the package.
set -euo pipefail
python=$(realpath --no-symlinks "${1:?usage: try_images.sh PYTHON}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod a+rx "$work"

"$python" - "$work/judge.keras" <<'PYTHON'
import sys

import keras
import keras_posenc as kp

keras.Sequential(
    [
        keras.Input((None,), dtype="int32", name="ids"),
        keras.layers.Embedding(20, 8, mask_zero=True),
        kp.PositionalEncoding(),
        kp.Pooling1D("mean"),
        keras.layers.Dense(2, name="scores"),
    ]
).save(sys.argv[1])
PYTHON

docker build --file export/command/Dockerfile --tag keras-posenc .

posenc() {
    docker run --rm --network none --read-only --tmpfs /tmp --cap-drop ALL \
        --user "$(id -u):$(id -g)" --volume "$work:/work" keras-posenc "$@"
}
posenc --help
posenc export litert judge.keras --out judge.tflite
posenc export saved-model judge.keras --out judge
posenc verify judge.tflite
posenc verify judge.tflite judge.keras
