"""Spoils artifacts at random and looks at what comes of it: `make fuzz`.

    python tests/export/inspection/fuzz.py --count 10000 --seed 0

Each mutant of a SavedModel folder, a LiteRT file or a `.keras` file is read
and verified in a process of its own, forked from one that has TensorFlow
loaded. What may come of it: a clear error, the model's own answers (the damage
did not matter), other answers, or an end of the process by a crash or a limit,
which the package's workers report as an error. Other answers that no test input
shows pass without a record. What may not come of it: a hang, or any other
error. Prints the counts as JSON; exit status 1 where there is such a thing.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import zipfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

KINDS = ("saved_model", "litert", "keras")
BAD = ("hang", "other error")
SECONDS = 60  # by the clock, on a busy machine; a mutant takes half of one
TOLERANCE = 1e-5


# ---- What is spoilt


def prepare(folder):
    """Writes the three artifacts, and what they are to answer."""
    import keras
    import numpy as np

    import keras_posenc as kp
    from keras_posenc.export.probes.generate import Probe, Probes
    from keras_posenc.export.probes.reference import compute_reference
    from keras_posenc.export.signatures.from_model import as_served, output_of
    from keras_posenc.export.signatures.resolve import (
        resolve_numeric_signatures,
        resolve_signatures,
    )

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(20, 8, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoderBlock(2, intermediate_dim=16),
            kp.Pooling1D("mean"),
            keras.layers.Dense(3, activation="softmax", name="scores"),
        ]
    )
    model.save(folder / "keras.keras")
    signatures = {"serving_default": model}
    options = {
        "signatures": signatures,
        "verbose": False,
        "max_length": 32,
    }
    artifact = kp.export_saved_model(model, folder / "versions", **options)
    artifact.path.rename(folder / "saved_model")
    kp.export_litert(model, folder / "litert.tflite", **options)
    # Of inputs that the verification does not use.
    rng = np.random.default_rng(99)
    unseen = [
        rng.integers(1, 20, shape).astype("int32")
        for shape in [(1, 7), (2, 23), (5, 11)]
    ]
    unseen = [
        Probe(
            "serving_default",
            {"ids": ids},
            {"scores": model.predict(ids, verbose=0)},
        )
        for ids in unseen
    ]
    expected = {}
    for kind in KINDS:
        resolve = (
            resolve_numeric_signatures
            if kind == "litert"
            else resolve_signatures
        )
        resolved = resolve(model, signatures)
        probes = Probes.fit(resolved, None, 32, tolerance=TOLERANCE)
        found = compute_reference(probes)
        for signature in found.signatures:  # names and shapes are enough
            object.__setattr__(signature, "model", None)
            object.__setattr__(signature, "call", None)
            shapes = {
                name: types.SimpleNamespace(shape=spec.shape)
                for name, spec in signature.specs.items()
            }
            object.__setattr__(signature, "specs", shapes)
            # Tensors would have their layers with them.
            names = keras.tree.map_structure(
                lambda tensor: tensor.name, output_of(model)
            )
            pack = functools.partial(as_served, names)
            object.__setattr__(signature, "pack", pack)
        expected[kind] = found
    (folder / "expected.pickle").write_bytes(pickle.dumps((expected, unseen)))


def mutate(content, rng):
    """Bytes that are almost the same."""
    content = bytearray(content)
    place = rng.randrange(max(1, len(content)))
    length = min(len(content) - place, 1 << rng.randrange(8))
    kind = rng.randrange(8)
    if kind == 0:
        return bytes(content[:place])
    if kind == 1:
        content[place : place + length] = bytes(length)
    elif kind == 2:
        content[place:place] = rng.randbytes(length)
    elif kind == 3:
        del content[place : place + length]
    elif kind == 4:  # what lengths and offsets overflow at
        value = rng.choice([0xFF, 0x7F, 0x80, 0x00])
        content[place : place + 4] = bytes([0xFF] * 3 + [value])
    elif kind == 5:  # from elsewhere
        other = rng.randrange(max(1, len(content)))
        content[place : place + length] = content[other : other + length]
    else:
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            if content:
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def edit_saved_model(content, rng):
    """A graph that still is one, as somebody would write it on purpose."""
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel.FromString(content)
    (graph,) = model.meta_graphs
    library = graph.graph_def.library.function
    bodies = [
        body
        for body in (graph.graph_def.node, *(f.node_def for f in library))
        if body
    ]
    body = rng.choice(bodies)
    node, other = rng.choice(body), rng.choice(body)
    function, twin = rng.choice(library), rng.choice(library)
    signature = rng.choice(list(graph.signature_def.values()))
    objects = graph.object_graph_def

    def rename():
        node.name = rng.choice([other.name, f"{node.name}_"])

    def rewire():
        source = (
            f"{other.name}:output:0" if body is not bodies[0] else other.name
        )
        if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(
                [source, rng.choice([*other.input, source])]
            )

    def swap_signatures():
        infos = [
            info
            for each in graph.signature_def.values()
            for side in (each.inputs, each.outputs)
            for info in side.values()
        ]
        one, two = rng.choice(infos), rng.choice(infos)
        one.name, two.name = two.name, one.name

    def insert():
        known = [name for name in dir(tf.raw_ops) if name[0].isupper()]
        new = body.add()
        new.name, new.op = f"new_{rng.randrange(10**6)}", rng.choice(known)
        new.input.extend(node.input)
        for name, value in other.attr.items():
            new.attr[name].CopyFrom(value)
        if node.input and rng.random() < 0.5:
            node.input[0] = f"{new.name}:output:0"

    def change_operator():
        node.op = other.op

    def change_attribute():
        if node.attr:
            name = rng.choice(sorted(node.attr))
            value = node.attr[name]
            spoilt = mutate(value.SerializeToString(), rng)
            with contextlib.suppress(Exception):
                value.ParseFromString(spoilt)

    def swap_functions():
        one, two = function.signature.name, twin.signature.name
        function.signature.name, twin.signature.name = two, one

    def swap_results():
        names = sorted(function.ret)
        if names:
            one, two = rng.choice(names), rng.choice(names)
            function.ret[one], function.ret[two] = (
                function.ret[two],
                function.ret[one],
            )

    def drop():
        body.remove(node)

    def copy():
        body.add().CopyFrom(node)

    def change_saver():
        saver = graph.saver_def
        place = rng.choice(
            ["filename_tensor_name", "save_tensor_name", "restore_op_name"]
        )
        setattr(saver, place, f"{other.name}:0")

    def change_signature():
        info = rng.choice(
            [*signature.inputs.values(), *signature.outputs.values()]
        )
        if rng.random() < 0.5 and info.tensor_shape.dim:
            rng.choice(info.tensor_shape.dim).size = rng.choice([-1, 1, 2])
        else:
            info.dtype = rng.choice([1, 2, 3, 7, 9, 10])

    def change_objects():
        one, two = (rng.choice(objects.nodes) for _ in range(2))
        if rng.random() < 0.5:
            one.CopyFrom(two)
        elif objects.concrete_functions:
            names = sorted(objects.concrete_functions)
            objects.concrete_functions[rng.choice(names)].CopyFrom(
                objects.concrete_functions[rng.choice(names)]
            )

    rng.choice(
        [
            rename,
            rewire,
            rewire,
            swap_signatures,
            insert,
            change_operator,
            change_attribute,
            change_attribute,
            swap_functions,
            swap_results,
            drop,
            copy,
            change_saver,
            change_signature,
            change_objects,
        ]
    )()
    return model.SerializeToString()


def edit_litert(content, rng):
    """Likewise, with other tensors, operators and weights."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    graph = rng.choice(model.subgraphs)
    one, two = (rng.choice(graph.operators) for _ in range(2))
    kind = rng.randrange(6)
    if kind == 0:
        one.inputs, two.inputs = two.inputs, one.inputs
    elif kind == 1:
        one.inputs = [
            rng.randrange(len(graph.tensors)) if rng.random() < 0.3 else i
            for i in one.inputs
        ]
    elif kind == 2:
        one.opcodeIndex = rng.randrange(len(model.operatorCodes))
    elif kind == 3:
        code = rng.choice(model.operatorCodes)
        code.builtinCode = code.deprecatedBuiltinCode = rng.randrange(127)
    elif kind == 4:
        tensors = [rng.choice(graph.tensors) for _ in range(2)]
        tensors[0].buffer, tensors[1].buffer = (
            tensors[1].buffer,
            tensors[0].buffer,
        )
    else:
        entries = [
            entry
            for signature in model.signatureDefs
            for entry in (*signature.inputs, *signature.outputs)
        ]
        rng.choice(entries).tensorIndex = rng.randrange(len(graph.tensors))
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def spoil(kind, source, target, rng):
    """Writes a mutant of the artifact at `source` to `target`."""
    by_hand = rng.random() < 0.5
    if kind == "litert":
        spoilt = edit_litert if by_hand else mutate
        target.write_bytes(spoilt(source.read_bytes(), rng))
    elif kind == "saved_model" and by_hand:
        shutil.copytree(source, target)
        file = target / "saved_model.pb"
        file.write_bytes(edit_saved_model(file.read_bytes(), rng))
    elif kind == "saved_model":
        shutil.copytree(source, target)
        files = sorted(path for path in target.rglob("*") if path.is_file())
        file = rng.choice([*files, *[target / "saved_model.pb"] * 4])
        if rng.random() < 0.02:
            file.unlink()
        else:
            file.write_bytes(mutate(file.read_bytes(), rng))
    elif rng.random() < 0.3:
        target.write_bytes(mutate(source.read_bytes(), rng))
    else:  # in a whole zip file
        with zipfile.ZipFile(source) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(["config.json", "model.weights.h5", "metadata.json"])
        parts[name] = mutate(parts[name], rng)
        with zipfile.ZipFile(target, "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, content)


# ---- What comes of it


def judge(kind, path, expected, unseen):
    """What the package says of a mutant, in the process that may end of it."""
    import numpy as np

    import keras_posenc as kp
    from keras_posenc.export import worker_client
    from keras_posenc.export.check import check, check_signatures, limits_of
    from keras_posenc.export.inspect import inspect_safe
    from keras_posenc_worker import read_keras

    expected = expected[kind]
    if kind == "keras":
        try:
            model = read_keras.load(path)
        except Exception:  # the command reports whatever Keras raises
            return "clear error"
        probe = unseen[-1]
        try:
            output = model(probe.inputs["ids"], training=False)
            worst = np.abs(output - probe.outputs["scores"]).max()
        except Exception:
            return "another model"
        return "same answers" if worst <= 10 * TOLERANCE else "another model"
    # All in one run, of which the verification sees the first ones.
    count = len(expected.probes)
    expected.probes.extend(unseen)
    try:
        found = inspect_safe(path)
        check_signatures(expected.signatures, found)
        response = worker_client.run_model(
            kind,
            path,
            [(each.signature, each.inputs) for each in expected.probes],
            limits_of(expected, found),
            times=1,
        )
        report = check(expected, found, response)
    except (kp.ExportVerificationError, ValueError) as error:
        return "clear error" if str(error) else "other error: no message"
    seen = dataclasses.replace(report, cases=report.cases[:count])
    if not seen.passed:
        return "wrong answers told"
    others = dataclasses.replace(
        report, cases=report.cases[count:], tolerance=10 * TOLERANCE
    )
    if others.passed:
        return "same answers"
    return "wrong answers passed"


def run_here(name, *arguments, limits, show=None):
    """Like `run_in_worker`, in this process, which is a mutant's own."""
    return importlib.import_module(name).main(*arguments)


class WorkerHere(contextlib.nullcontext):
    """Like `Worker`, in this process."""

    def __init__(self, module, *_):
        self.enter_result = self
        self.module = module

    def run(self, *arguments, **named):
        return run_here(self.module, *arguments, **named)


def limit():
    import resource

    status = Path("/proc/self/status").read_text()
    data = int(status.partition("VmData:")[2].split()[0]) * 1024
    for name, value in (
        ("DATA", data + 704 * 2**20),
        ("CPU", 20),
        ("CORE", 0),
        ("FSIZE", 64 * 2**20),
    ):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    signal.alarm(SECONDS)


def outcome(kind, path, *known):
    """Forks, and tells how the fork ended."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            limit()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            try:
                found = judge(kind, path, *known)
            except BaseException as error:
                found = f"other error: {type(error).__name__}: {error}"[:500]
            path.with_name("outcome").write_text(found)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGALRM:
            return "hang"
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return "limit of work"
        return f"crash ({signal.Signals(number).name})"
    return path.with_name("outcome").read_text()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="where to begin")
    parser.add_argument("--keep", type=Path, help="folder for bad mutants")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.prepare)
        return 0
    import random

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Elsewhere: a process that ran TensorFlow cannot be forked.
        subprocess.run(
            [sys.executable, __file__, "--prepare", folder],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        # Once for all mutants.
        import ai_edge_litert.interpreter
        import ai_edge_litert.schema_py_generated  # noqa: F401
        import tensorflow.core.protobuf.saved_model_pb2  # noqa: F401

        from keras_posenc.export import inspect as inspection
        from keras_posenc.export import worker_client

        gc.freeze()
        inspection.run_in_worker = run_here
        worker_client.Worker = worker_client.spare_worker = WorkerHere
        known = pickle.loads((folder / "expected.pickle").read_bytes())
        threads = {
            Path(f"/proc/self/task/{each}/comm").read_text()
            for each in os.listdir("/proc/self/task")
        }
        if any(each.startswith("tf_") for each in threads):
            raise RuntimeError("TensorFlow ran here: its forks would hang")
        names = dict(zip(KINDS, ("", ".tflite", ".keras"), strict=True))
        counts = {kind: collections.Counter() for kind in KINDS}
        for index in range(options.first, options.first + options.count):
            kind = KINDS[index % len(KINDS)]
            rng = random.Random(f"{options.seed}/{index}")
            place = folder / "mutant"
            place.mkdir()
            path = place / f"model{names[kind]}"
            spoil(kind, folder / f"{kind}{names[kind]}", path, rng)
            found = outcome(kind, path, *known)
            if found == "hang":
                # A fork may wait for a lock that a thread, which it has not,
                # held then: about two in 10 000. A mutant that hangs does so
                # again.
                print(f"{kind} {index}: again", file=sys.stderr, flush=True)
                found = outcome(kind, path, *known)
            counts[kind][found.partition(":")[0]] += 1
            if found.startswith(BAD) or found.startswith("crash"):
                print(f"{kind} {index}: {found}", file=sys.stderr, flush=True)
                if options.keep:
                    shutil.copytree(place, options.keep / f"{kind}-{index}")
            shutil.rmtree(place)
            if index % 500 == 499:
                print(
                    f"{index + 1} of {options.count}, "
                    f"{time.monotonic() - began:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    print(
        json.dumps(
            {kind: dict(found.most_common()) for kind, found in counts.items()},
            indent=2,
        )
    )
    return int(any(found[bad] for found in counts.values() for bad in BAD))


if __name__ == "__main__":
    sys.exit(main())
