"""T5, BART, mBART and Marian against `transformers`, on random weights."""

import contextlib
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.translator import translator_of

FIXTURES = Path(__file__).parent.parent / "fixtures"
FOLDER = FIXTURES / "encoder_decoders"
NAMES = ("t5", "flan_t5", "bart", "mbart", "marian", "marian_two")
# Relative to the largest logit, as in `test_parity.py`. In float64 only for
# activations that Keras computes in it: its GELU has constants of float32.
TOLERANCE = {"float32": 5e-6, "float64": 1e-10}
WIDE = ("t5", "mbart", "marian")
DTYPES = [("float32", NAMES), ("float64", WIDE)]
CASES = [
    pytest.param(
        name,
        dtype,
        marks=[pytest.mark.tensorflow] if dtype == "float64" else [],
    )
    for dtype, names in DTYPES
    for name in names
]


def expected(name):
    with np.load(FOLDER / name / "expected.npz") as arrays:
        return dict(arrays)


def loaded(folder, dtype="float32"):
    return translator_of(Folder(folder), dtype=dtype)[0]


def largest(found, arrays):
    """The largest difference of real tokens, relative to the largest logit."""
    real = arrays["target_mask"].astype(bool)
    logits = arrays["logits"][real]
    found = ops.convert_to_numpy(found)[real]
    return np.abs(found - logits).max() / np.abs(logits).max()


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_computes_what_transformers_does(name, dtype):
    arrays = expected(name)
    model = loaded(FOLDER / name, dtype)
    assert (model.pad_id, model.target_pad_id) == (
        json.loads((FOLDER / name / "config.json").read_text())["pad_token_id"],
        -1,
    )
    source = arrays["source"]
    target = np.where(arrays["target_mask"], arrays["target"], -1)
    logits = model({"source": source, "target": target})
    assert largest(logits, arrays) <= TOLERANCE[dtype]
    # Token by token, and a prompt at once.
    cache, steps = model.build_cache(source, 7), []
    for part in np.split(target, [3, 4, 5], axis=1):
        found, cache = model.call_with_cache(part, cache)
        steps.append(found)
    assert largest(ops.concatenate(steps, 1), arrays) <= TOLERANCE[dtype]


@pytest.mark.parametrize("name", ["t5", "marian"])
def test_generates_what_transformers_does(name):
    said = json.loads((FOLDER / name / "config.json").read_text())
    arrays, end = expected(name), said["eos_token_id"]
    start = said["decoder_start_token_id"]
    generator = kp.Generator(
        loaded(FOLDER / name), max_length=8, start_id=start, end_ids=end
    )
    found = generator.predict(arrays["source"], verbose=0)["ids"]
    wanted = arrays["greedy"][:, 1:]
    for row, other in zip(found, wanted, strict=True):
        # Marian's last token is made the end in transformers; after the end
        # there is padding: -1 here.
        count = [*other, end].index(end) + 1
        last = 7 if count == 8 and name == "marian" else count
        np.testing.assert_array_equal(row[:last], other[:last])
        assert set(row[count:]) <= {-1}
    assert any(end in row for row in found)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_the_encoder_alone(name):
    arrays = expected(name)
    model = kp.load_hugging_face(
        FOLDER / name, from_ids=True, encoder_only=True, verbose=False
    )
    found = ops.convert_to_numpy(model(arrays["source"]))
    real = arrays["source_mask"].astype(bool)
    error = np.abs(found[real] - arrays["memory"][real]).max()
    assert error <= 5e-6 * np.abs(arrays["memory"][real]).max()


class TestTables:
    """Which tensors a file has of those that are one, and under which names."""

    @pytest.fixture
    def changed(self, tmp_path):
        from safetensors.numpy import load_file, save_file

        def changed(name, change, shards=1):
            folder = shutil.copytree(FOLDER / name, tmp_path / name)
            path = folder / "model.safetensors"
            tensors = change(load_file(path))
            if shards == 1:
                save_file(tensors, path)
                return folder
            path.unlink()
            places = {}
            for shard in range(shards):
                file = f"model-{shard}.safetensors"
                part = dict([*tensors.items()][shard::shards])
                save_file(part, folder / file)
                places |= dict.fromkeys(part, file)
            index = {"weight_map": places}
            (folder / f"{path.name}.index.json").write_text(json.dumps(index))
            return folder

        return changed

    @pytest.mark.parametrize(
        ("name", "add", "drop"),
        [
            ("t5", ["decoder.embed_tokens", "lm_head"], ["shared"]),
            ("bart", ["lm_head"], ["model.shared"]),
        ],
    )
    def test_other_names(self, changed, name, add, drop):
        prefix = "model." if name == "bart" else ""

        def change(tensors):
            table = tensors[f"{prefix}shared.weight"]
            for each in add:
                tensors[f"{each}.weight"] = table.copy()
            return {
                key: value
                for key, value in tensors.items()
                if key not in {f"{each}.weight" for each in drop}
            }

        arrays = expected(name)
        folder = changed(name, change, shards=2)
        model = loaded(folder)
        assert model.embeddings == "shared"
        found = model({"source": arrays["source"], "target": arrays["target"]})
        assert largest(found, arrays) <= TOLERANCE["float32"]

    def test_tables_that_differ(self, changed):
        def change(tensors):
            table = tensors["shared.weight"] + 1
            return {**tensors, "encoder.embed_tokens.weight": table}

        with pytest.raises(ValueError, match="must be one table"):
            loaded(changed("t5", change))

    def test_no_kernel_of_logits(self, changed):
        folder = changed("bart", lambda tensors: tensors)
        path = folder / "config.json"
        said = {**json.loads(path.read_text()), "tie_word_embeddings": False}
        path.write_text(json.dumps(said))
        with pytest.raises(ValueError, match=r"no tensor 'lm_head\.weight'"):
            loaded(folder)

    @pytest.mark.parametrize(
        ("name", "keys", "message"),
        [
            ("bart", {"normalize_before": True}, "'normalize_before': True"),
            ("bart", {"decoder_ffn_dim": 24}, "'decoder_ffn_dim': 24"),
            ("t5", {"feed_forward_proj": "gated-x"}, "feed_forward_proj"),
            ("t5", {"d_kv": 10**6}, "its head_dim would take"),
            ("marian", {"is_encoder_decoder": False}, "is_encoder_decoder"),
            ("mbart", {"what": 1}, "not supported: what=1"),
        ],
    )
    def test_configs_that_are_refused(self, changed, name, keys, message):
        folder = changed(name, lambda tensors: tensors)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))
        with pytest.raises(ValueError, match=message):
            loaded(folder)


@pytest.fixture(scope="module")
def said():
    path = FOLDER / "zero_shot.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of entailment of one tokenizer."""
    pytest.importorskip("tensorflow_text")
    pairs = FIXTURES / "pairs" / "roberta"
    bart = tmp_path_factory.mktemp("zero_shot") / "bart"
    shutil.copytree(FOLDER / "bart_mnli", bart)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pairs / file, bart)
    return {
        name: kp.load_hugging_face(
            folder, pairs=True, max_length=60, verbose=False
        )
        for name, folder in {"bart": bart, "roberta": pairs}.items()
    }


@pytest.mark.tensorflow
class TestZeroShot:
    @pytest.mark.parametrize("name", ["bart", "roberta"])
    def test_scores_of_the_pipeline(self, said, models, name):
        for key in ("one", "several"):
            found = models[name].classify(
                said["texts"],
                said["candidates"],
                template=said["template"],
                multi_label=key == "several",
                verbose=0,
            )
            np.testing.assert_allclose(
                found, said[f"{name}/{key}"], rtol=0, atol=5e-6
            )

    def test_saved(self, models, tmp_path):
        model = models["bart"]
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        pairs = [["a text", "is it?"]]
        np.testing.assert_array_equal(again(pairs), model(pairs))
        assert again.labels == ("contradiction", "neutral", "entailment")

    def test_only_long_work_shows_its_progress(
        self, models, capfd, monkeypatch
    ):
        model, given = models["bart"], (["a"], ["b", "c"])
        first = model.classify(*given, batch_size=1)  # traces
        shown = []

        @contextlib.contextmanager
        def counting(verbose, total):
            yield lambda *done: shown.append((*done, total))
            shown.append("over")

        bar = "keras_posenc.checkpoints.late_bar"
        monkeypatch.setattr("keras_posenc.progress.counting", counting)
        monkeypatch.setattr(f"{bar}._SECONDS", 60)
        capfd.readouterr()
        model.classify(*given, batch_size=1)
        assert shown == []
        monkeypatch.setattr(f"{bar}._SECONDS", 0)
        found = model.classify(*given, batch_size=1)
        assert shown == [(1, 1, 2), (2, 2, 2), "over"]
        model.classify(*given, batch_size=1, verbose=0)
        assert len(shown) == 3
        assert capfd.readouterr().out == ""
        np.testing.assert_array_equal(found, first)

    def test_refusals(self, models):
        model = models["bart"]
        for options, message in (
            ({"labels": "sport"}, "`labels` must be a list"),
            ({"template": "about it"}, "`template` must be a string with one"),
            ({"texts": "one text"}, "`texts` must be a list"),
            ({"texts": None}, "`texts` must be a list"),
            ({"hypothesis_template": "It is {}."}, "Give template='It is {}"),
            ({"hypothesis_template": "sport"}, "Give template='This example"),
            ({"batchsize": 2}, "has no argument `batchsize`.* batch_size"),
        ):
            given = {"texts": ["a"], "labels": ["b"], **options}
            with pytest.raises(ValueError, match=message):
                model.classify(**given)
        plain = kp.load_hugging_face(
            FIXTURES / "hugging_face" / "bert_classifier",
            from_ids=True,
            verbose=False,
        )
        with pytest.raises(ValueError, match="must have a label 'entailment'"):
            plain.classify(["a"], ["b"])
