"""Packages for LiteRT-LM: written, run in its engine, and refused if wrong.

The oracle is the engine, which is none of ours, and Keras. Each trap of the
format is set once, and must be seen.
"""

import dataclasses
import functools
import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from ai_edge_quantizer.recipe import dynamic_wi8_afp32

import keras_posenc as kp
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.tokenizers import tokenizer_of
from keras_posenc.export.formats import (
    litert,
    litertlm,
    litertlm_engine,
    litertlm_run,
)
from keras_posenc.export.formats.litert_file import (
    read,
    variables_in,
    write,
)
from keras_posenc.export.formats.litert_quantize import (
    mode_of,
    resolve_quantization,
)
from keras_posenc.export.formats.litert_quantize import rounded as round_file
from keras_posenc.export.formats.litertlm_package import (
    packaged_template,
    plain_tokenizer,
    write_package,
)
from keras_posenc.export.probes.likelihoods import traced_once
from keras_posenc.export.probes.many_texts import many_texts
from keras_posenc.export.probes.tolerance import limits_of
from keras_posenc.generation.engine_parts import engine_models, engine_parts
from keras_posenc.text.sample_texts import sample_texts
from keras_posenc_cli import main
from keras_posenc_worker.read_litertlm import sections_of
from tests.text.files import FIXTURES, content, sentencepiece_json, zipped

pytestmark = pytest.mark.tensorflow

SCRIPTS = (FIXTURES / "scripts.txt").read_text(encoding="utf-8").splitlines()
LETTERS = "abcdefghijklmnopqrstuvwxyz .,?<>|:\nACFIOTWxE"
# As many have it: contents are joined to strings, which are lists of parts in
# the engine; and a line break follows the token that ends a message.
TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '|\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
LENGTHS, ROOM = (8, 32), 256


def tokenizer(**options):
    letters = "".join(dict.fromkeys(LETTERS))
    return kp.CharacterTokenizer(letters, add_end=False, **options)


@functools.cache
def decoder(size, position="rotary", window=None, **options):
    """A model that no test changes."""
    keras.utils.set_random_seed(1)
    options = {"input_position": None, "num_layers": 2} | options
    model = kp.TransformerDecoderModel(
        size,
        d_model=32,
        num_heads=4,
        attention=kp.Attention(position, window=window, num_key_value_heads=2),
        intermediate_dim=64,
        embeddings="separate",
        **options,
    )
    model.head.kernel.assign(6 * model.head.kernel)  # texts of many letters
    return model


def generator(tokens=None, **options):
    tokens = tokens or tokenizer(add_start=False)
    end = tokens.first_id + tokens.vocabulary.index("|")
    return kp.PretrainedGenerator(
        options.pop("model", None) or decoder(tokens.vocabulary_size()),
        source_tokenizer=tokens,
        **{
            "max_length": 24,
            "end_ids": end,
            "chat_template": TEMPLATE,
            "special_tokens": {"eos_token": "|"},
            **options,
        },
    )


@dataclasses.dataclass
class Package:
    """An exported package, and its parts to pack it wrongly."""

    path: Path
    report: kp.types.VerificationReport
    generator: kp.PretrainedGenerator
    parts: object
    model: Path

    def packed(self, path, *, metadata=None, tokens=None):
        own = self.parts.tokenizer_json()
        if metadata is None:
            metadata = litertlm.metadata_of(self.parts, own)
        models = {"prefill_decode": self.model}
        write_package(path, metadata, tokens or own, models)
        return path

    def run(self, path, parts=None):
        format = litertlm.LiteRTLM(
            parts=parts or self.parts, tokenizer=self.parts.tokenizer_json()
        )
        report = dataclasses.replace(self.report, path=path)
        return format.run_further(report, None, str)


def once(function):
    """The function, computed once for equal arguments."""
    known = {}

    def run(*arguments):
        key = repr(arguments)
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    return run


class Remembering:
    """Parts that compute the same once, and trace the sampler once."""

    def __init__(self, parts):
        self._parts = parts
        for name in ("logs", "tokenize", "render"):
            setattr(self, name, once(getattr(parts, name)))
        self.sampler = once(lambda count: traced_once(parts.sampler(count)))

    def __getattr__(self, name):
        return getattr(self._parts, name)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    own = generator()
    parts = Remembering(engine_parts(own, LENGTHS, ROOM))
    own.engine_parts = lambda *lengths: parts
    path = folder / "chat.litertlm"
    exported = kp.export_litertlm(
        own, path, prefill_lengths=LENGTHS, cache_length=ROOM, verbose=False
    )
    model = folder / "model.tflite"
    (found,) = [x for x in sections_of(path) if x["kind"] == "TFLiteModel"]
    model.write_bytes(path.read_bytes()[found["begin"] : found["end"]])
    return Package(path, exported.report, own, parts, model)


def test_the_engine_does_what_the_model_does(package):
    assert package.report.passed
    found = re.search(
        r"in LiteRT-LM's engine: (\d+) texts tokenized equally; "
        r"(\d+) log-probabilities within (\S+) \(allowed .*\); 2 turns of a "
        "chat",
        str(package.report),
    )
    assert int(found[1]) > 400
    assert int(found[2]) > 20
    assert float(found[3]) <= 1e-4
    # Not a copy of the weights, as the engine writes one by default.
    names = {each.name for each in package.path.parent.iterdir()}
    assert names == {
        "chat.litertlm",
        "chat.litertlm.cases.npz",
        "model.tflite",
    }


def test_a_package_is_verified_by_its_cases(package):
    (replayed,) = kp.verify_export(package.path, verbose=False).runtimes
    assert replayed.errors == []
    assert replayed.cases > 400  # texts and scores
    with pytest.raises(ValueError, match="leave the model out"):
        kp.verify_export(package.path, package.generator, verbose=False)


def changed(package, **fields):
    message = litertlm.metadata_of(
        package.parts, package.parts.tokenizer_json()
    )
    for name, value in fields.items():
        message.ClearField(name)
        if value is not None:
            setattr(message, name, value)
    return message


def without_end(text):
    return packaged_template(text, {}, [])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop_tokens": None}, "Stop tokens are required"),
        ({"jinja_prompt_template": TEMPLATE}, "unsupported types"),
        ({"jinja_prompt_template": without_end(TEMPLATE)}, "renders message 3"),
        ({"jinja_prompt_template": "{% for %}"}, "syntax error"),
    ],
    ids=["no stop", "parts", "line break lost", "syntax"],
)
def test_wrong_metadata_is_seen(package, tmp_path, fields, message):
    path = package.packed(
        tmp_path / "wrong.litertlm", metadata=changed(package, **fields)
    )
    with pytest.raises(kp.ExportVerificationError, match=message):
        package.run(path)


def test_a_tokenizer_that_pads_is_seen_and_mended(package, tmp_path):
    own = package.parts.tokenizer_json()
    padding = {
        "strategy": {"Fixed": 16},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": own["added_tokens"][0]["content"],
    }
    tokens = {**own, "padding": padding}
    path = package.packed(tmp_path / "pads.litertlm", tokens=tokens)
    with pytest.raises(kp.ExportVerificationError, match="makes the ids"):
        package.run(path)
    vocabulary = package.parts.vocabulary
    assert plain_tokenizer(tokens, vocabulary) == plain_tokenizer(
        own, vocabulary
    )


def with_head(package, folder, factor):
    """A package of a file whose last kernel is another one."""
    model = read(package.model.read_bytes())
    (number,) = variables_in(model, [package.generator.model.head.kernel])
    kernel = np.array(model.buffers[number].data).view("float32")
    model.buffers[number].data = (np.float32(factor) * kernel).view("uint8")
    write(model, folder / "other.tflite")
    return dataclasses.replace(package, model=folder / "other.tflite")


def test_other_weights_are_seen(package, tmp_path):
    other = with_head(package, tmp_path, 1.01)
    path = other.packed(tmp_path / "other.litertlm")
    with pytest.raises(kp.ExportVerificationError, match="log-probability"):
        package.run(path)


@pytest.fixture
def sampled_once(monkeypatch):
    """Leaves the sampler as `Remembering` has it, which is traced."""
    monkeypatch.setattr(litertlm_engine, "traced_once", lambda x: x)


@pytest.fixture
def rounded(package, sampled_once):
    """Packs a package's model in a mode, and runs it in the engine."""

    def run(path, quantization, package=package, **limits):
        model = read(package.model.read_bytes())
        given = resolve_quantization(quantization)
        mode = mode_of(given)
        file = path / "rounded.tflite"
        write(round_file(model, given), file)
        report = dataclasses.replace(
            package.report,
            quantization=mode,
            limits=limits_of(mode, limits, None),
            by_likelihood=sorted(package.parts.models),
        )
        changed = dataclasses.replace(package, model=file, report=report)
        return changed.run(changed.packed(path / "rounded.litertlm"))

    return run


@pytest.mark.parametrize(
    ("quantization", "limits"),
    [
        ("float16", {"kl": 1e-4}),
        ("int4", {"kl": 1.0, "perplexity": 2.0}),
    ],
)
def test_quantized_packages_are_measured(
    rounded, tmp_path, quantization, limits
):
    report = rounded(tmp_path, quantization, **limits)
    report.require_success()
    assert re.search("; [1-9] turns? of a chat", str(report))
    found = report.likelihoods_of
    assert {*found} == {"prefill_8", "prefill_32"}
    for each in found.values():
        assert each.drawn > 50
        assert 0 < each.kl
    assert "perplexity" in str(report)


def test_a_quantized_package_of_another_model_is_seen(
    rounded, package, tmp_path
):
    other = with_head(package, tmp_path, -4)
    with pytest.raises(
        kp.ExportVerificationError, match="too far from the model"
    ):
        rounded(tmp_path, "int8", other)


def test_a_recipe_and_own_texts(package, tmp_path, sampled_once, monkeypatch):
    def convert(_, mode, path, *more):
        """Rounds what was converted before."""
        write(round_file(read(package.model.read_bytes()), mode), path)

    monkeypatch.setattr(litert, "convert", convert)
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(dynamic_wi8_afp32()), encoding="utf-8")
    texts = ["the captain asked her for the way to the island of glass. " * 8]
    path = tmp_path / "recipe.litertlm"
    report = kp.export_litertlm(
        package.generator,
        path,
        quantization=recipe,
        samples=texts,
        prefill_lengths=LENGTHS,
        cache_length=ROOM,
        verbose=False,
    ).report
    assert report.passed
    (ids,) = package.parts.tokenize(texts)
    assert report.likelihoods_of["decode"].tokens == len(ids)
    assert kp.inspect_export(path).quantization == "int8"


def test_what_the_engine_refuses_is_said(package):
    text = "a" * (ROOM + 1)
    (found,) = litertlm_run.run_in_engine(
        package.path, {"targets": [{"parts": [text], "target": "a"}]}
    )["targets"]
    assert "too long" in found["error"]


def test_the_command_inspects_and_chats(package, capfd):
    assert main(["inspect", str(package.path)]) == 0
    found = capfd.readouterr().out
    assert "max tokens: 256" in found
    assert "template: " in found
    asked = ["chat", str(package.path), "--prompt", "hello"]
    assert main([*asked, "--max-new-tokens", "12"]) == 0
    parts = package.parts
    (ids,) = parts.tokenize(
        [parts.render([{"role": "user", "content": "hello"}])]
    )
    count = len(ids)
    while len(ids) < count + 12 and ids[-1] not in parts.end_ids:
        (scores,), _ = parts.logs(ids, [0])
        ids.append(int(np.argmax(scores)))
    assert capfd.readouterr().out == parts.text_of(ids[count:]) + "\n"


BYTE_PAIRS = ("roberta", "modernbert", "eurobert")
WHITE_SPACE = ("model", "split", "keep")
GENERATORS = ("qwen2", "gemma", "llama_always")  # some encoders are made of
WORDPIECE = (
    "WordPiece, cased",
    "WordPiece, lowercased before",
    "WordPiece of MPNet",
)


def tokenizer_of_kind(name, folder):
    """A layer, from the file of a public tokenizer."""
    if name in BYTE_PAIRS:
        said = content("byte_pair")["tokenizers"][name]["json"]
    elif name in WHITE_SPACE:
        said = sentencepiece_json(name)
    elif name in GENERATORS:
        cases = zipped(FIXTURES / "generator_tokenizers.json.gz")["cases"]
        said = cases[name]["files"]["tokenizer.json"]
    else:
        kinds = json.loads((FIXTURES / "tokenizer_kinds.json").read_text())
        said = kinds["kinds"][name]["tokenizer.json"]
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(said))
    if name in WORDPIECE:
        encoder = {"vocabulary_size": 200, "pad_id": 1, "input_position": None}
        return tokenizer_of(Folder(folder), SimpleNamespace(**encoder))
    kind = kp.BytePairTokenizer
    if "ignore_merges" not in said["model"] or "unk_id" in said["model"]:
        kind = kp.SentencepieceTokenizer
    if said["model"].get("byte_fallback"):
        kind = kp.SentencepieceTokenizer
    return kind.from_tokenizer_json(path, pad_token=None)


@pytest.mark.parametrize(
    "name",
    ["bytes", "characters", *BYTE_PAIRS, *WHITE_SPACE, *GENERATORS, *WORDPIECE],
)
def test_tokenizers_are_written_for_the_engine(package, tmp_path, name):
    """The ids are compared with the engine's own reader of tokenizer.json."""
    own = {"bytes": kp.ByteTokenizer, "characters": tokenizer}
    layer = own[name]() if name in own else tokenizer_of_kind(name, tmp_path)
    values = layer.tokenizer_json()
    path = package.packed(tmp_path / "own.litertlm", tokens=values)
    some = many_texts([]) if name in own else sample_texts(layer)
    texts = [*some, *SCRIPTS]
    names = litertlm.spelled(values) if name in own else {}
    found = litertlm_run.run_in_engine(
        path, {"texts": [*names.values(), *texts]}
    )["texts"]
    assert found[: len(names)] == [[number] for number in names]
    found = found[len(names) :]
    wanted = layer.split(layer._as_strings(texts)).to_list()
    wrong = [
        (text, own, got)
        for text, own, got in zip(texts, wanted, found, strict=True)
        if own != got
    ]
    assert wrong == []


def test_the_engine_adds_no_second_start(package, tmp_path):
    """It would, before a text that begins with the token."""
    own = generator(tokenizer(add_start=True), model=package.generator.model)
    parts = Remembering(engine_parts(own, LENGTHS, ROOM))
    assert parts.start_id is not None
    metadata = litertlm.metadata_of(parts, parts.tokenizer_json())
    path = package.packed(tmp_path / "start.litertlm", metadata=metadata)
    assert package.run(path, parts).passed
    metadata.start_token.token_ids.ids.append(parts.start_id)
    package.packed(path, metadata=metadata)
    with pytest.raises(kp.ExportVerificationError, match="In LiteRT-LM the"):
        package.run(path, parts)


def of_pairs():
    model = kp.Transformer(
        60, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
    )
    return kp.Generator(model, source_tokenizer=tokenizer(), start_id=2)


def of_ids():
    return kp.Generator(decoder(20), end_ids=3)


def of_words():
    layer = kp.WordpieceTokenizer.learn(["a b"], 20)
    model = decoder(layer.vocabulary_size())
    return kp.Generator(model, source_tokenizer=layer)


def of_few_positions():
    own = tokenizer(add_start=False)
    model = decoder(
        own.vocabulary_size(),
        input_position=kp.PositionEmbedding(100),
        position=None,
    )
    return generator(own, model=model)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (of_pairs, {}, "decoders alone"),
        (of_ids, {}, "takes ids"),
        (of_words, {}, "normalization='bert'"),
        (lambda: generator(end_ids=()), {}, "needs a token that ends"),
        (lambda: generator(beams=2), {}, "hold no `beams`"),
        (of_few_positions, {}, "up to the model's 100 positions"),
        (generator, {"prefill_lengths": (8, 8)}, "different integers"),
        (generator, {"prefill_lengths": (512,)}, "from 1 to"),
        (generator, {"cache_length": 1}, "from 2 on"),
        (lambda: decoder(20), {}, "give a kp.Generator"),
        (generator, {"path": "x.tflite"}, "must end in '.litertlm'"),
        (generator, {"samples": [1]}, "must be texts"),
        (generator, {"samples": ["a"], "verify": False}, "verify=False"),
    ],
)
def test_refusals(tmp_path, make, options, message):
    options = {"prefill_lengths": LENGTHS, "cache_length": ROOM} | options
    path = tmp_path / options.pop("path", "x.litertlm")
    with pytest.raises(ValueError, match=message):
        kp.export_litertlm(make(), path, verbose=False, **options)
    assert not path.exists()


def test_lengths_by_default_fit_into_the_cache():
    assert engine_parts(generator(), None, 256).prefill_lengths == [32, 128]
    assert engine_parts(generator(), None, 8).prefill_lengths == [4]


@pytest.mark.parametrize("missing", ["litert_lm", "litert_lm_builder"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, missing):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: None if name == missing else real(name, *more),
    )
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(ImportError, match=r"keras-posenc\[litertlm\]"):
        kp.export_litertlm(generator(), tmp_path / "x.litertlm")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"position": "alibi"},
        {"position": None, "input_position": "sinusoidal"},
        {
            "position": None,
            "window": 5,
            "input_position": kp.PositionEmbedding(64),
        },
    ],
    ids=["rotary", "alibi", "sinusoidal", "learned, windows"],
)
def test_chunks_give_the_logits_of_the_whole_text(options):
    """As the engine calls them: full, padded beyond the caches, and single."""
    model = decoder(50, num_layers=1, **options)
    search = kp.Generator(model, end_ids=3).search
    models = engine_models(search, (4, 8), 16)
    ids = np.random.default_rng(0).integers(4, 50, 15)
    state = {
        name: np.zeros(each.shape, "float32")
        for name, each in models["decode"].input.items()
        if name.startswith("kv_cache")
    }

    def run(name, first, count):
        size = models[name].input["tokens"].shape[1]
        tokens, places = np.zeros((2, size), "int32")
        tokens[:count] = ids[first : first + count]
        places[:count] = np.arange(first, first + count)
        given = {"tokens": tokens[None], "input_pos": places, **state}
        found = models[name](
            {key: keras.ops.convert_to_tensor(x) for key, x in given.items()}
        )
        state.update({key: found[key] for key in state})
        return found.get("logits")

    run("prefill_8", 0, 8)
    run("prefill_4", 8, 4)
    run("prefill_8", 12, 2)
    logits = run("decode", 14, 1)
    wanted = keras.ops.convert_to_numpy(model(ids[None]))[0, -1]
    found = keras.ops.convert_to_numpy(logits)[0, 0]
    kept = np.array([i for i in range(50) if i != 0])  # 0 is padding
    np.testing.assert_allclose(found[kept], wanted[kept], rtol=1e-4, atol=1e-4)
    assert found[0] < -1e30
