"""Which family a folder is read as, and keys that are passed over."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_posenc as kp

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
GONE = object()  # no value at all


@pytest.fixture
def folder(tmp_path):
    """Copies a fixture, with other keys in its config."""

    def folder(name="bert", **changes):
        made = shutil.copytree(FIXTURES / name, tmp_path / name)
        config = json.loads((made / "config.json").read_text()) | changes
        kept = {k: each for k, each in config.items() if each is not GONE}
        (made / "config.json").write_text(json.dumps(kept))
        return made

    return folder


def load(folder, **options):
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


def check(model, folder):
    with np.load(folder / "expected.npz") as arrays:
        ids, mask, expected = (arrays[k] for k in ("ids", "mask", "hidden"))
    found = keras.ops.convert_to_numpy(model(ids)) * mask[..., None]
    assert np.abs(found - expected).max() <= 5e-6 * np.abs(expected).max()


def prefixed(folder, prefix):
    """Renames the tensors as a checkpoint has them with a head."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file({f"{prefix}{name}": t for name, t in tensors.items()}, file)
    return folder


@pytest.mark.parametrize("kind", ["camembert", "data2vec-text"])
def test_aliases_of_roberta(folder, kind):
    made = folder("roberta", model_type=kind, architectures=None)
    check(load(made), made)
    prefixed(made, {"camembert": "roberta."}.get(kind, "data2vec_text."))
    check(load(made), made)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bert", "bert"), ("xlm_roberta", "xlm-roberta"), ("gte", "gte")],
)
def test_type_by_class(folder, name, kind):
    made = folder(name, model_type=GONE)
    model = load(made)
    assert model.origin["model_type"] == kind
    check(model, made)


@pytest.mark.parametrize(
    ("name", "prefix", "kind"),
    [
        ("bert", "bert.", "bert"),
        ("roberta", "roberta.", "roberta"),
        ("distilbert", "distilbert.", "distilbert"),
        ("nomic_bert", "nomic_bert.", "nomic_bert"),
    ],
)
def test_type_by_names_of_tensors(folder, name, prefix, kind):
    made = prefixed(folder(name, model_type=GONE, architectures=GONE), prefix)
    model = load(made)
    assert model.origin["model_type"] == kind
    check(model, made)


@pytest.mark.parametrize(
    ("name", "architectures", "prefix"),
    [
        ("bert", GONE, ""),  # RoBERTa's tensors have these names too
        ("bert", ["SomebodysModel"], ""),
        ("eurobert", GONE, "model."),  # Llama's too
        ("modernbert", GONE, "model."),  # those of its decoder too
    ],
)
def test_types_that_nothing_tells(folder, name, architectures, prefix):
    made = folder(name, model_type=GONE, architectures=architectures)
    prefixed(made, prefix)
    with pytest.raises(ValueError, match="no key 'model_type', and neither"):
        load(made)


class TestIgnoredKeys:
    def test_passes_over_them(self, folder):
        made = folder(surprise=3, note={"a": 1}, _num_labels=5)
        keys = ["surprise", "note", "_num_labels"]
        check(load(made, ignore_keys=keys), made)
        words = r"note=.*ignore_keys=\['surprise', 'note'\] passes over them"
        with pytest.raises(ValueError, match=words):
            load(made, ignore_keys=["surprise"])

    @pytest.mark.parametrize(
        ("changes", "key", "words"),
        [
            ({}, "surprise", "has none of the name surprise"),
            ({}, "hidden_act", "must not name keys that .*: hidden_act='gelu'"),
            ({"is_decoder": True}, "is_decoder", "must not .*is_decoder=True"),
            ({"id2label": {}}, "id2label", "must not name keys"),
        ],
    )
    def test_others(self, folder, changes, key, words):
        with pytest.raises(ValueError, match=words) as raised:
            load(folder(**changes), ignore_keys=(key,))
        assert f"Received: ignore_keys=['{key}']" in str(raised.value)

    @pytest.mark.parametrize("keys", ["surprise", 3, [3]])
    def test_no_names(self, folder, keys):
        with pytest.raises(ValueError, match="must be a list of strings"):
            load(folder(), ignore_keys=keys)
