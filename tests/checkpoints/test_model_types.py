"""Which family a folder is read as, and keys that are passed over."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.checkpoints.folders import GONE, at, copied


@pytest.fixture
def folder(tmp_path):
    """Copies a fixture, with other keys and a prefix of its tensors."""

    def folder(name="bert", prefix="", **keys):
        def prefixed(tensors):
            return {f"{prefix}{key}": x for key, x in tensors.items()}

        return copied(at(name), tmp_path / prefix, prefixed, **keys)

    return folder


def load(folder, **options):
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


def check(model, folder):
    with np.load(folder / "expected.npz") as arrays:
        ids, mask, expected = (arrays[k] for k in ("ids", "mask", "hidden"))
    found = keras.ops.convert_to_numpy(model(ids)) * mask[..., None]
    assert np.abs(found - expected).max() <= 5e-6 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["camembert", "data2vec-text"])
def test_aliases_of_roberta(folder, kind):
    for prefix in ("", {"camembert": "roberta."}.get(kind, "data2vec_text.")):
        made = folder("roberta", prefix, model_type=kind, architectures=None)
        check(load(made), made)


def test_a_type_that_is_not_said(folder):
    with pytest.raises(ValueError, match=r"no key 'model_type'\. Write"):
        load(folder("bert", model_type=GONE))


class TestIgnoredKeys:
    def test_passes_over_them(self, folder):
        made = folder(surprise=3, note={"a": 1}, _num_labels=5)
        keys = ["surprise", "note", "_num_labels"]
        check(load(made, ignore_keys=keys), made)
        words = r"note=.*ignore_keys=\['surprise', 'note'\]` passes over them"
        with pytest.raises(ValueError, match=words):
            load(made, ignore_keys=["surprise"])

    @pytest.mark.parametrize(
        ("changes", "key", "words"),
        [
            ({}, "surprise", "has none of the name surprise"),
            ({}, "hidden_act", "must not name keys that .*: hidden_act='gelu'"),
            ({"is_decoder": True}, "is_decoder", "must not .*is_decoder=True"),
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
