"""Damages exported files at random and looks at what comes of it: `make fuzz`.

    python tests/export/inspection/fuzz.py --count 2000 --seed 0

Each mutant of a SavedModel folder, a LiteRT file, a `.keras` file or a
LiteRT-LM package is read and run as the package does that, in its workers. What
may come of it: an error with a message, the model's outputs or others. What may
not: a hang, or any other error. Prints the counts as JSON; exit status 1 where
there is such a thing.
"""

import argparse
import collections
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
import zipfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np

import keras_posenc as kp
from keras_posenc.export.formats.litertlm_run import run_in_engine
from keras_posenc.export.inspect import inspect_safe
from keras_posenc.export.worker_client import limits_for, run_model
from keras_posenc_cli.keras_file import keras_loader

NAMES = {
    "saved_model": "saved_model",
    "litert": "model.tflite",
    "keras": "model.keras",
    "litertlm": "model.litertlm",
}
TEXTS = ["a cat", "the cat, the dog and the mat"]


# ---- What is damaged


def prepare(folder):
    """Writes the exported files; returns inputs and outputs of their model."""
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
    return cases


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
    removed: a node, a function, a signature, or an attribute.
    """
    from google.protobuf.message import Message
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel.FromString(content)
    parts = collections.defaultdict(list)

    def walk(message):
        parts[message.DESCRIPTOR.full_name].append(message)
        for _, value in message.ListFields():
            several = value
            if isinstance(value, Message):
                several = [value]
            elif isinstance(value, str | bytes | int | float):
                several = []
            elif hasattr(value, "values"):  # a map
                several = value.values()
            for each in several:
                if isinstance(each, Message):
                    walk(each)

    walk(model)
    for _ in range(rng.choice([1, 1, 2, 8])):
        name = rng.choice(sorted(parts))
        one, two = rng.choice(parts[name]), rng.choice(parts[name])
        if rng.random() < 0.7:
            one.CopyFrom(type(two).FromString(two.SerializeToString()))
        elif one is not model:
            one.Clear()
    return model.SerializeToString()


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
        target.write_bytes(mutate(source.read_bytes(), rng))


# ---- What comes of it


def outcome(kind, path, cases):
    """What the package makes of a mutant."""
    try:
        if kind == "keras":
            with keras_loader("keras_posenc") as load:
                load(path)
            return "runs"
        inspect_safe(path)
        if kind == "litertlm":
            run_in_engine(path, {"vectors": TEXTS}, len(TEXTS))
            return "runs"
        given = [("serving_default", {"ids": ids}) for ids, _ in cases]
        found = run_model(kind, path, given, limits_for(2**20), times=1)
    except (kp.ExportVerificationError, ValueError) as error:
        if "did not respond" in str(error):
            return "hang"
        return "clear error" if str(error) else "no message"
    except Exception:
        traceback.print_exc()
        return "other error"
    if any("error" in each for each in found["cases"]):
        return "clear error"
    same = all(
        np.shape(output) == scores.shape
        and np.allclose(output, scores, rtol=0, atol=1e-4)
        for each, (_, scores) in zip(found["cases"], cases, strict=True)
        for output in each["outputs"].values()
    )
    return "same outputs" if same else "other outputs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="where to begin")
    parser.add_argument("--keep", type=Path, help="folder for bad mutants")
    options = parser.parse_args()
    counts = {kind: collections.Counter() for kind in NAMES}
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = prepare(folder)
        for index in range(options.first, options.first + options.count):
            kind = [*NAMES][index % len(NAMES)]
            rng = random.Random(f"{options.seed}/{index}")
            place = folder / "mutant"
            place.mkdir()
            damage(kind, folder / NAMES[kind], place / NAMES[kind], rng)
            found = outcome(kind, place / NAMES[kind], cases)
            counts[kind][found] += 1
            if found in ("hang", "no message", "other error"):
                bad += 1
                print(f"{kind} {index}: {found}", file=sys.stderr, flush=True)
                if options.keep:
                    shutil.copytree(place, options.keep / f"{kind}-{index}")
            shutil.rmtree(place)
    print(json.dumps(counts, indent=2))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
