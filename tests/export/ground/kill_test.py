"""Kills exporters at random instants, while a watcher loads what appears.

    python tests/export/ground/kill_test.py --kills 200 [--seed 0]

TensorFlow is imported once, and a process forked for every exporter, which
publishes one version after the other until SIGKILL ends it. The watcher looks
at the folder as a server does, again and again, and loads each version that is
the highest: every one must load, and answer with one and the same number, the
one its model was made of. Afterwards one more export must leave nothing but
versions behind.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

KEEP = 6


def make_model(number):
    """A model of several weights, all of which are one number."""
    import keras
    import numpy as np

    inputs = keras.Input((None,), dtype="int32", name="ids")
    vectors = keras.layers.Embedding(64, 32)(inputs)
    outputs = {"vectors": vectors}
    for name in ("one", "two", "three"):
        layer = keras.layers.Dense(32, use_bias=False, name=name)
        outputs[name] = layer(vectors)
    model = keras.Model(inputs, outputs)
    embedding, *kernels = model.get_weights()
    model.set_weights(
        [np.full_like(embedding, number)]
        + [np.eye(32, dtype="float32") for _ in kernels]
    )
    return model


def export_for_ever(base, first, ready):
    """What the killed do."""
    import keras_posenc as kp

    number = first
    model = make_model(number)
    os.write(ready, b".")
    while True:
        kp.export_saved_model(
            model,
            base,
            verify=False,
            verbose=False,
            keep=KEEP,
            batching=True,
        )
        os.write(ready, b".")
        number += 1
        embedding, *kernels = model.get_weights()
        model.set_weights([embedding * 0 + number, *kernels])


def staging(base):
    return {p.name for p in base.iterdir() if p.name.endswith(".partial")}


def wait_for_staging(base, child, earlier=frozenset()):
    """Returns once something is being written that was not there.

    Or once the child, which does not go on by itself, has ended.
    """
    exited = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while not staging(base) - earlier:
        if os.waitid(os.P_PID, child, exited):
            return
        time.sleep(0.0002)


def versions(base):
    return sorted(int(p.name) for p in base.iterdir() if p.name.isdigit())


def look(base, seen, failures):
    """Loads the highest version, if it is new."""
    import tensorflow as tf

    present = versions(base)
    if not present or present[-1] in seen:
        return
    version = present[-1]
    seen.append(version)
    path = base / str(version)
    try:
        module = tf.saved_model.load(str(path))
        for name, run in module.signatures.items():
            inputs = {"ids": tf.constant([[1, 63, 5]])}
            if name == "from_ids":
                inputs["lengths"] = tf.constant([3])
            outputs = run(**inputs)
            answers = {float(n) for v in outputs.values() for n in v[0, :, 0]}
            assert len(answers) == 1, f"{name} answers {answers}"
        for file in ("MODEL_CARD.md", "batching_params.pbtxt"):
            text = (path / file).read_text()
            assert text.endswith("\n"), f"{file} is not whole"
            assert text.strip(), f"{file} is empty"
    except Exception:
        # What was removed meanwhile was not the highest any more, twice over.
        if path.exists() or versions(base)[-1] < version + 2:
            failures.append(f"version {version}: {traceback.format_exc()}")


def watch(base, report):
    """What the server does, until SIGTERM, or its parent is no more."""
    seen, failures, done, parent = [], [], [], os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: done.append(True))
    while not done and os.getppid() == parent:
        look(base, seen, failures)
        time.sleep(0.005)
    look(base, seen, failures)
    report.write_text(json.dumps({"seen": len(seen), "failures": failures}))


def fork(function, *arguments):
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            function(*arguments)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return process


def run(base, report, kills, seed):
    """Returns what is wrong, in words."""
    # Imported, and not used before the forks: its threads would not survive.
    import keras_posenc  # noqa: F401

    rng = random.Random(seed)
    print(f"{kills} kills, seed {seed}, in {base}", flush=True)
    watcher = fork(watch, base, report)
    began = time.monotonic()
    half_made, published = 0, 0
    for kill in range(kills):
        reader, writer = os.pipe()
        earlier = staging(base)
        child = fork(export_for_ever, base, 1000 * kill, writer)
        os.close(writer)
        os.read(reader, 1)  # it begins
        start = time.monotonic()
        wait_for_staging(base, child, earlier)
        staged = time.monotonic()
        published += len(os.read(reader, 1))  # its first is there
        done = time.monotonic()
        if kill % 2:
            time.sleep(rng.uniform(0, done - start))
        else:  # while it writes, which is the shorter part
            wait_for_staging(base, child)
            time.sleep(rng.uniform(0, 1.2 * (done - staged)))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        while more := len(os.read(reader, 100)):
            published += more
        os.close(reader)
        if not os.WIFSIGNALED(status):
            return [f"an exporter failed by itself, at kill {kill}"]
        half_made += bool(staging(base))
        if kill % 20 == 19:
            took = time.monotonic() - began
            print(f"{kill + 1} killed after {took:.0f} s", flush=True)
    last = fork(export_once, base)
    failures = ["the last export failed"] * bool(os.waitpid(last, 0)[1])
    os.kill(watcher, signal.SIGTERM)
    os.waitpid(watcher, 0)
    found = json.loads(report.read_text())
    failures += found["failures"]
    rest = sorted(p.name for p in base.iterdir() if not p.name.isdigit())
    if rest:
        failures.append(f"left behind: {', '.join(rest)}")
    print(
        f"{kills} exporters killed, {half_made} of them with something half "
        "made; "
        f"{published} versions published, {found['seen']} seen and loaded, "
        f"{len(failures)} wrong; {len(versions(base))} versions left, and "
        f"{len(rest)} other things"
    )
    return failures


def export_once(base):
    import keras_posenc as kp

    kp.export_saved_model(
        make_model(7), base, verify=False, verbose=False, batching=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    folder = Path(tempfile.mkdtemp())
    base = folder / "model"
    base.mkdir()
    try:
        failures = run(
            base, folder / "report.json", options.kills, options.seed
        )
    finally:
        shutil.rmtree(folder)
    for failure in failures:
        print(failure)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
