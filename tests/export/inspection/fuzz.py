"""Damages exported files at random and looks at what comes of it: `make fuzz`.

    python tests/export/inspection/fuzz.py --count 10000 --seed 0

Each mutant of a SavedModel folder, a LiteRT file, a `.keras` file or a
LiteRT-LM package is read and run in a process of its own, forked from one that
has TensorFlow loaded. What may come of it: a clear error, the model's outputs
or others, or an end of the process by a crash or a limit, which the package's
workers report as an error. What may not: a hang, or any other error. Prints
the counts as JSON; exit status 1 where there is such a thing.
"""

import argparse
import collections
import contextlib
import gc
import importlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

NAMES = {
    "saved_model": "saved_model",
    "litert": "model.tflite",
    "keras": "model.keras",
    "litertlm": "model.litertlm",
}
BAD = ("hang", "other error")
SECONDS = 60  # by the clock, on a busy machine; a mutant takes half of one
TEXTS = ["a cat", "the cat, the dog and the mat"]


# ---- What is damaged


def prepare(folder):
    """Writes the exported files, and inputs and outputs of their model."""
    import keras
    import numpy as np

    import keras_posenc as kp

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
    model.save(folder / NAMES["keras"])
    options = {"max_length": 32, "verbose": False}
    exported = kp.export_saved_model(model, folder / "versions", **options)
    exported.path.rename(folder / NAMES["saved_model"])
    kp.export_litert(model, folder / NAMES["litert"], **options)
    rng = np.random.default_rng(99)
    ids = [rng.integers(1, 20, x).astype("int32") for x in [(1, 7), (2, 23)]]
    cases = [(each, model.predict(each, verbose=0)) for each in ids]
    (folder / "cases.pickle").write_bytes(pickle.dumps(cases))

    tokens = kp.WordpieceTokenizer.learn(
        TEXTS, 60, normalization="bert", max_length=16
    )
    encoder = kp.TransformerEncoderModel(
        tokens.vocabulary_size(),
        d_model=8,
        num_layers=1,
        num_heads=2,
        intermediate_dim=8,
    )
    text = keras.Input((), dtype="string", name="text")
    kp.export_litertlm(
        kp.PretrainedModel([text, tokens, encoder, kp.Pooling1D("mean")]),
        folder / NAMES["litertlm"],
        lengths=(16,),
        verbose=False,
    )


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
    """A graph that still is one, as somebody would write it on purpose.

    A part of the message is copied to the place of another one of its kind, or
    removed: a node, a function, a signature, an attribute, or a name.
    """
    from google.protobuf.message import Message
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel.FromString(content)
    parts, names, lists = (collections.defaultdict(list) for _ in range(3))

    def walk(message):
        parts[message.DESCRIPTOR.full_name].append(message)
        for field, value in message.ListFields():
            if isinstance(value, str):
                names[field.name].append(message)
            elif isinstance(value, Message):
                walk(value)
            elif hasattr(value, "values"):
                for each in value.values():
                    if isinstance(each, Message):
                        walk(each)
            elif not isinstance(value, int | float | bytes):
                lists[field.full_name].append(value)
                for each in value:
                    if isinstance(each, Message):
                        walk(each)

    walk(model)
    for _ in range(rng.choice([1, 1, 2, 8])):
        kind = rng.randrange(4)
        known = (parts, parts, names, lists)[kind]
        name = rng.choice(sorted(known))
        one, two = rng.choice(known[name]), rng.choice(known[name])
        if kind == 0:
            one.CopyFrom(type(two).FromString(two.SerializeToString()))
        elif kind == 1 and one is not model:
            one.Clear()
        elif kind == 2:
            setattr(one, name, getattr(two, name))
        elif kind == 3 and len(one) and len(two):
            if rng.random() < 0.5:
                del one[rng.randrange(len(one))]
            else:
                one.append(rng.choice(two))
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
        a, b = (rng.choice(graph.tensors) for _ in range(2))
        a.buffer, b.buffer = b.buffer, a.buffer
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


def damage(kind, source, target, rng):
    """Writes a mutant of the file at `source` to `target`."""
    by_hand = rng.random() < 0.5
    if kind == "saved_model":
        shutil.copytree(source, target)
        files = sorted(path for path in target.rglob("*") if path.is_file())
        graph = target / "saved_model.pb"
        file = graph if by_hand else rng.choice([*files, *[graph] * 4])
        edit = edit_saved_model if by_hand else mutate
        file.write_bytes(edit(file.read_bytes(), rng))
    elif kind == "litertlm" and by_hand:  # what lists the sections
        content = source.read_bytes()
        end = 2**14
        target.write_bytes(mutate(content[:end], rng) + content[end:])
    elif kind == "keras" and by_hand:  # in a whole zip file
        with zipfile.ZipFile(source) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(sorted(parts))
        parts[name] = mutate(parts[name], rng)
        with zipfile.ZipFile(target, "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
    else:
        edit = edit_litert if kind == "litert" and by_hand else mutate
        target.write_bytes(edit(source.read_bytes(), rng))


# ---- What comes of it


def judge(kind, path, cases):
    """What the package says of a mutant, in the process that may end of it."""
    import numpy as np

    import keras_posenc as kp
    from keras_posenc.export import worker_client
    from keras_posenc.export.formats.litertlm_run import run_in_engine
    from keras_posenc.export.inspect import inspect_safe
    from keras_posenc_worker import read_keras

    if kind == "keras":
        try:
            model = read_keras.load(path)
            outputs = [model(ids, training=False) for ids, _ in cases]
        except Exception:  # the command reports whatever Keras raises
            return "clear error"
    else:
        try:
            inspect_safe(path)
            if kind == "litertlm":
                run_in_engine(path, {"vectors": TEXTS}, len(TEXTS))
                return "runs"
            found = worker_client.run_model(
                kind,
                path,
                [("serving_default", {"ids": ids}) for ids, _ in cases],
                worker_client.Limits(),
                times=1,
            )["cases"]
        except (kp.ExportVerificationError, ValueError) as error:
            return "clear error" if str(error) else "other error: no message"
        if any("error" in each for each in found):
            return "clear error"
        outputs = [next(iter(each["outputs"].values()), []) for each in found]
    same = all(
        np.shape(output) == scores.shape
        and np.allclose(output, scores, rtol=0, atol=1e-4)
        for output, (_, scores) in zip(outputs, cases, strict=True)
    )
    return "same outputs" if same else "other outputs"


def run_here(name, *arguments, limits):
    """Like `run_in_worker`, in this process, which is a mutant's own."""
    return importlib.import_module(name).main(*arguments)


class WorkerHere(contextlib.nullcontext):
    """Like `Worker`, in this process."""

    uses = 0

    def __init__(self, module):
        self.enter_result = self
        self.module = module

    def call(self, *arguments):
        pass

    def end(self):
        pass

    def run(self, *arguments, **named):
        return run_here(self.module, *arguments, **named)


def outcome(kind, path, cases):
    """Forks, and tells how the fork ended."""
    from keras_posenc.export.worker_client import MEMORY
    from keras_posenc_worker.process import limit

    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            limit({"DATA": 2 * MEMORY, "CPU": 20, "FSIZE": 64 * 2**20})
            signal.alarm(SECONDS)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            try:
                found = judge(kind, path, cases)
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
        worker_client.Worker = WorkerHere
        cases = pickle.loads((folder / "cases.pickle").read_bytes())
        threads = {
            Path(f"/proc/self/task/{each}/comm").read_text()
            for each in os.listdir("/proc/self/task")
        }
        if any(each.startswith("tf_") for each in threads):
            raise RuntimeError("TensorFlow ran here: its forks would hang")
        counts = {kind: collections.Counter() for kind in NAMES}
        for index in range(options.first, options.first + options.count):
            kind = [*NAMES][index % len(NAMES)]
            rng = random.Random(f"{options.seed}/{index}")
            place = folder / "mutant"
            place.mkdir()
            path = place / NAMES[kind]
            damage(kind, folder / NAMES[kind], path, rng)
            found = outcome(kind, path, cases)
            if found == "hang":
                # A fork may wait for a lock that a thread, which it has not,
                # held then: about two in 10 000. A mutant that hangs does so
                # again.
                print(f"{kind} {index}: again", file=sys.stderr, flush=True)
                found = outcome(kind, path, cases)
            counts[kind][found.partition(":")[0]] += 1
            if found.startswith((*BAD, "crash")):
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
    print(json.dumps(counts, indent=2))
    return int(any(found[bad] for found in counts.values() for bad in BAD))


if __name__ == "__main__":
    sys.exit(main())
