"""Damages LiteRT-LM packages at random, and verifies them: `make fuzz`.

    python tests/export/inspection/fuzz_packages.py --count 2000 --seed 0

Each mutant of the package of a tiny language model and of a tiny text embedder
goes through `kp.verify_export`, whose workers read it and run it in LiteRT-LM's
engine. What may come of it: a clear error, a report that failed, or one that
passed of a package that gives the numbers of the undamaged one. What may not: a
hang, any other error, a crash of this process, and other numbers that pass.

What the model gives and what it is converted to is computed once. Prints the
counts as JSON, with how many mutants reached the engine; exit status 1 if there
is a bad one.
"""

import argparse
import collections
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zlib
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
sys.path.insert(0, str(Path(__file__).parents[3]))

import keras
import numpy as np

import keras_posenc as kp
from keras_posenc.export import pipeline
from keras_posenc.export.formats import (
    litert,
    litert_convert,
    litertlm_embedder,
    litertlm_engine,
    litertlm_run,
)
from keras_posenc.export.formats.litertlm_package import (
    Section,
    require_builder,
    section_content,
    tokenizer_section,
    write_package,
)
from tests.export.inspection.fuzz import edit_litert, mutate

BAD = ("hang", "other error", "wrong numbers passed")
SECONDS = 900  # by the clock; a busy machine may stop it for minutes
TOLERANCE = 1e-4
UNSEEN = ["a cat", "dog on a mat and", "the cat, the dog and the mat"]


# ---- Models and their packages


def embedder():
    texts = ["the cat sat on the mat", "a dog and a cat", "the mat"]
    tokens = kp.WordpieceTokenizer.learn(
        texts, 60, normalization="bert", max_length=16
    )
    encoder = kp.TransformerEncoderModel(
        tokens.vocabulary_size(),
        d_model=8,
        num_layers=1,
        num_heads=2,
        intermediate_dim=8,
    )
    text = keras.Input((), dtype="string", name="text")
    layers = [text, tokens, encoder, kp.Pooling1D("mean")]
    return kp.PretrainedModel(layers), {"lengths": (16,)}


def generator():
    tokens = kp.CharacterTokenizer(
        "abcdefghijklmnopqrstuvwxyz .,?", add_start=False, add_end=False
    )
    model = kp.TransformerDecoderModel(
        tokens.vocabulary_size(),
        d_model=8,
        num_layers=1,
        num_heads=2,
        intermediate_dim=8,
        embeddings="separate",
        attention_position="rotary",
        input_position=None,
    )
    model.head.kernel.assign(6 * model.head.kernel)
    made = kp.Generator(
        model, source_tokenizer=tokens, max_length=12, end_ids=3
    )
    return made, {"prefill_lengths": (8, 32), "cache_length": 96}


# ---- What is computed once


class Once:
    """A function whose results are kept, by what `key` makes of arguments."""

    def __init__(self, function, key):
        self._function, self._key, self._kept = function, key, {}

    def __call__(self, *arguments, **named):
        key = self._key(*arguments, **named)
        if key not in self._kept:
            self._kept[key] = self._function(*arguments, **named)
        return self._kept[key]


class Remembering:
    """`EngineParts` that compute the same once."""

    def __init__(self, parts):
        self._parts = parts

    def __getattr__(self, name):
        found = getattr(self._parts, name)
        if name in ("continued", "scores", "tokenize"):
            found = Once(found, lambda *given: repr(given))
            setattr(self, name, found)
        return found


def compute_once(folder):
    """Makes verifications of one model cheap; returns what they have run."""

    def of_signatures(signatures, quantization):
        return tuple(
            (each.name, each.model.name, str(each.specs)) for each in signatures
        ), quantization

    def written(signatures, mode, batches, flex, frozen, path):
        kept = folder / f"{len([*folder.iterdir()])}.tflite"
        real_convert(signatures, mode, batches, flex, frozen, kept)
        return kept

    real_convert = litert_convert.convert
    once = Once(
        written, lambda signatures, mode, *_: of_signatures(signatures, mode)
    )

    def convert(signatures, mode, batches, allow_flex, frozen, path):
        signatures = sorted(signatures, key=lambda each: each.name)
        kept = once(signatures, mode, batches, allow_flex, frozen, path)
        shutil.copy(kept, path)
        return []

    for module in (litert_convert, litert, litertlm_embedder):
        module.convert = convert
    references = Once(
        pipeline.compute_reference,
        lambda probes, in_float32, quantization: of_signatures(
            probes.signatures, quantization
        ),
    )
    pipeline.compute_reference = lambda *given: dataclasses.replace(
        references(*given)
    )
    ran = []
    for module in (litertlm_engine, litertlm_run, litertlm_embedder):

        def run(name, *given, real=module.run_in_worker, **named):
            ran.append(name)
            return real(name, *given, **named)

        module.run_in_worker = run
    return ran


# ---- Mutants


@dataclasses.dataclass
class Package:
    """A package, and its parts to damage them."""

    path: Path
    content: bytes
    sections: list
    own: list

    @classmethod
    def read(cls, path):
        found = kp.inspect_export(path).sections
        own = [
            Section(each["kind"], section_content(path, each), each["items"])
            for each in found
        ]
        return cls(path, path.read_bytes(), [*found], own)

    def mutant(self, path, rng):
        """Writes a mutant; returns the kind of damage."""
        kinds = [
            *(self.cut, self.appended, self.anywhere),
            *(self.within, self.within, self.header, self.header),
            *(self.moved, self.described, self.metadata, self.tokenizer),
            self.model,
        ]
        kind = rng.choice(kinds)
        kind(path, rng)
        return kind.__name__

    def cut(self, path, rng):
        ends = [
            each[side] for each in self.sections for side in ("begin", "end")
        ]
        size = rng.choice([rng.randrange(len(self.content)), *ends])
        path.write_bytes(self.content[: max(0, size - rng.randrange(2))])

    def appended(self, path, rng):
        more = rng.randbytes(1 << rng.randrange(16))
        path.write_bytes(self.content + rng.choice([more, self.content]))

    def anywhere(self, path, rng):
        path.write_bytes(mutate(self.content, rng))

    def within(self, path, rng):
        """In one section, however small, whose size stays."""
        each = rng.choice(self.sections)
        begin, end = each["begin"], each["end"]
        piece = mutate(self.content[begin:end], rng)[: end - begin]
        piece = piece.ljust(end - begin, b"\0")
        path.write_bytes(self.content[:begin] + piece + self.content[end:])

    def header(self, path, rng):
        end = int.from_bytes(self.content[24:32], "little")
        piece = mutate(self.content[:end], rng)[:end].ljust(end, b"\0")
        path.write_bytes(piece + self.content[end:])

    def moved(self, path, rng):
        """Sections in another order, exchanged, missing or twice."""
        sections = [*self.own]
        one, two = rng.randrange(len(sections)), rng.randrange(len(sections))
        match rng.randrange(4):
            case 0:
                rng.shuffle(sections)
            case 1:
                first, second = sections[one], sections[two]
                sections[one] = dataclasses.replace(
                    first, content=second.content
                )
                sections[two] = dataclasses.replace(
                    second, content=first.content
                )
            case 2:
                sections.pop(one)
            case 3:
                sections.insert(one, sections[two])
        write_package(path, sections)

    def described(self, path, rng):
        """Sections of another kind, or with other words about them."""
        index = rng.randrange(len(self.own))
        each = self.own[index]
        kinds = [x.kind for x in self.own] + [
            "SP_Tokenizer",
            "GenericBinaryData",
        ]
        items = dict(each.items)
        match rng.randrange(3):
            case 0:
                each = dataclasses.replace(each, kind=rng.choice(kinds))
            case 1:
                items["model_type"] = rng.choice(
                    ["tf_lite_embedder", "tf_lite_prefill_decode", "", "x" * 99]
                )
            case 2:
                items[rng.choice(["backend_constraint", "é", "x"])] = (
                    rng.choice(["gpu", "cpu", ""])
                )
        each = dataclasses.replace(each, items=items)
        self.repacked(path, index, each)

    def repacked(self, path, index, section):
        sections = [*self.own]
        sections[index] = section
        write_package(path, sections)

    def metadata(self, path, rng):
        """Another message, which still is one."""
        (index,) = [
            i
            for i, x in enumerate(self.own)
            if x.kind.endswith("MetadataProto")
        ]
        each = self.own[index]
        kind = getattr(require_builder(), each.kind.removesuffix("Proto"))
        message = kind.FromString(each.content)
        content = each.content
        fields = [x for x, _ in message.ListFields()]
        match rng.randrange(4):
            case 0:
                message.ClearField(rng.choice(fields).name)
                content = message.SerializeToString()
            case 1:
                for field in fields:
                    if field.name in ("max_num_tokens", "max_input_length"):
                        value = rng.choice([1, 2, 17, 2**30])
                        setattr(message, field.name, value)
                content = message.SerializeToString()
            case 2:
                for name in ("bos_token", "eos_token", "start_token"):
                    token = getattr(message, name, None)
                    if token is not None:
                        token.token_ids.ids[:] = [rng.randrange(40)]
                content = message.SerializeToString()
            case 3:
                content = mutate(content, rng)
        self.repacked(path, index, dataclasses.replace(each, content=content))

    def tokenizer(self, path, rng):
        """Another tokenizer.json, most of which still are one."""
        (index,) = [
            i for i, x in enumerate(self.own) if x.kind == "HF_Tokenizer_Zlib"
        ]
        said = json.loads(zlib.decompress(self.own[index].content[8:]))
        vocabulary = said["model"]["vocab"]
        tokens = [*vocabulary] if isinstance(vocabulary, dict) else []
        match rng.randrange(7):
            case 0 if tokens:
                one, two = rng.choice(tokens), rng.choice(tokens)
                vocabulary[one], vocabulary[two] = (
                    vocabulary[two],
                    vocabulary[one],
                )
            case 1 if tokens:
                vocabulary.pop(rng.choice(tokens))
            case 2 if tokens:
                vocabulary[rng.choice(tokens)] = rng.choice([-1, 2**31, 999])
            case 3:
                said[rng.choice([*said])] = rng.choice([None, [], {}, 0, "x"])
            case 4:
                said["truncation"] = {
                    "direction": "Right",
                    "max_length": 3,
                    "strategy": "LongestFirst",
                    "stride": 0,
                }
            case 5:
                said["added_tokens"] = rng.choice([[{}], [1], [{"id": "x"}]])
            case _:
                said = rng.choice([[], 0, "x", {}, {"model": said["model"]}])
        section = tokenizer_section(said)
        if rng.random() < 0.2:
            content = json.dumps(said).encode()
            content = mutate(content, rng)
            size = rng.choice([len(content), 0, 2**40])
            content = size.to_bytes(8, "little") + zlib.compress(content)
            section = dataclasses.replace(section, content=content)
        self.repacked(path, index, section)

    def model(self, path, rng):
        """Another LiteRT file, which still is one."""
        found = [i for i, x in enumerate(self.own) if x.kind == "TFLiteModel"]
        index = rng.choice(found)
        each = self.own[index]
        content = edit_litert(each.content, rng)
        self.repacked(path, index, dataclasses.replace(each, content=content))


# ---- What comes of it


class Hang(BaseException):
    """A verification takes too long."""


def numbers(kind, path):
    """What the engine makes of texts that no verification runs."""
    if kind == "embedder":
        cases = litertlm_embedder._run(path, UNSEEN)["cases"]
        return [each.get("vector", each.get("error")) for each in cases]
    request = {
        "texts": UNSEEN,
        "targets": [{"parts": [each, "t"], "target": "he"} for each in UNSEEN],
    }
    found = litertlm_run.run_in_engine(path, request)
    return [*found["texts"], *found["targets"]]


def are_equal(one, other):
    for a, b in zip(one, other, strict=True):
        if isinstance(a, str | dict) or isinstance(b, str | dict):
            if a != b:
                return False
        elif len(a) != len(b) or not np.allclose(a, b, atol=TOLERANCE):
            return False
    return True


def outcome(kind, model, path, expected, *, is_read_only):
    """What `kp.verify_export` says of a mutant, or `kp.inspect_export`."""
    signal.alarm(SECONDS)
    try:
        if is_read_only:
            kp.inspect_export(path)
            return "readable"
        report = kp.verify_export(path, model, verbose=False)
        if not report.passed:
            return "failed"
        if are_equal(numbers(kind, path), expected):
            return "same numbers passed"
        return "wrong numbers passed"
    except Hang:
        return "hang"
    except (kp.ExportVerificationError, ValueError) as error:
        if type(error) not in (kp.ExportVerificationError, ValueError):
            return f"other error: {type(error).__name__}: {error}"
        if "no readable LiteRT-LM package" in str(error):
            return "unreadable"
        return "clear error" if str(error) else "other error: no message"
    except Exception as error:
        return f"other error: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="where to begin")
    parser.add_argument("--keep", type=Path, help="folder for bad mutants")
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="of the mutants, to verify; others are only read",
    )
    parser.add_argument("--show", action="store_true", help="every outcome")
    options = parser.parse_args()

    def stop(*_):
        raise Hang

    signal.signal(signal.SIGALRM, stop)
    keras.utils.set_random_seed(0)
    began = time.monotonic()
    counts = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kept").mkdir()
        ran = compute_once(folder / "kept")
        packages = {}
        for kind, make in (("embedder", embedder), ("generator", generator)):
            model, given = make()
            if kind == "generator":
                parts = Once(model.engine_parts, lambda *lengths: repr(lengths))
                known = Once(
                    lambda *lengths, parts=parts: Remembering(parts(*lengths)),
                    lambda *lengths: repr(lengths),
                )
                model.engine_parts = known
            path = folder / f"{kind}.litertlm"
            kp.export_litertlm(model, path, verbose=False, **given)
            packages[kind] = model, Package.read(path), numbers(kind, path)
            counts[kind] = collections.Counter()
        ran.clear()
        for index in range(options.first, options.first + options.count):
            kind = [*packages][index % 2]
            model, package, expected = packages[kind]
            rng = random.Random(f"{options.seed}/{index}")
            path = folder / "mutant.litertlm"
            path.unlink(missing_ok=True)
            damage = package.mutant(path, rng)
            found = outcome(
                kind,
                model,
                path,
                expected,
                is_read_only=rng.random() >= options.share,
            )
            counts[kind][found.partition(":")[0]] += 1
            counts[kind]["(reached the engine)"] += bool(ran)
            ran.clear()
            if found.startswith(BAD) or options.show:
                print(
                    f"{kind} {index} {damage}: {found}"[:2000],
                    file=sys.stderr,
                    flush=True,
                )
            if found.startswith(BAD) and options.keep:
                options.keep.mkdir(exist_ok=True)
                shutil.copy(path, options.keep / f"{kind}-{index}.litertlm")
            if index % 100 == 99:
                print(
                    f"{index + 1}, {time.monotonic() - began:.0f} s: {counts}",
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
