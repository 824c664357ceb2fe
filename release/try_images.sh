#!/usr/bin/env bash
# Builds the images of export/ and asks them: the command exports a model, and
# servers answer with what it wrote. Needs Docker, curl, `make dist`, and a Python
# with the package.
set -euo pipefail
python=$(realpath --no-symlinks "${1:?usage: try_images.sh PYTHON}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
container=
trap 'test -z "$container" || docker rm --force "$container"; rm -rf "$work"' EXIT
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
docker build --tag judge-server export/kserve
docker build --build-arg LOCK=tensorflow.txt --tag judge-server:tensorflow \
    export/kserve

posenc() {
    docker run --rm --network none --read-only --tmpfs /tmp --cap-drop ALL \
        --user "$(id -u):$(id -g)" --volume "$work:/work" keras-posenc "$@"
}
posenc --help
posenc export litert judge.keras --out judge.tflite
posenc export saved-model judge.keras --out judge
posenc verify judge.tflite
posenc verify judge.tflite judge.keras
chmod -R a+rX "$work"

for served in judge-server=judge.tflite judge-server:tensorflow=judge; do
    container=$(docker run --detach --read-only --tmpfs /tmp --cap-drop ALL \
        --publish 127.0.0.1:8080:8080 --volume "$work:/models:ro" \
        "${served%=*}" --model_name judge --model_dir "/models/${served#*=}")
    curl --silent --show-error --fail --retry 60 --retry-delay 1 \
        --max-time 20 --retry-all-errors --data '{"instances": [[3, 4, 5]]}' \
        http://127.0.0.1:8080/v1/models/judge:predict | grep predictions
    docker rm --force "$container"
    container=
done
