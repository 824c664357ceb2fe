"""The comparison of positions in decoders: what it learns, and that it runs."""

import json

import keras
import numpy as np
import pytest

from tests.examples import scripts

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def example():
    return scripts.load("causal_positions")


def test_every_kind_sees_the_order_and_nothing_later(example):
    """Of a causal model without positions the last token sees no order."""
    assert set(example.KINDS) == set(example.kinds())
    draw = np.random.default_rng(0)
    ids = np.stack([draw.permutation(np.arange(1, 13)) for _ in range(8)])
    ids[:, -1] = 5
    later = np.concatenate([ids, ids[::-1]], axis=1)
    for name in example.KINDS:
        keras.utils.set_random_seed(0)
        model = example.make_model(name)
        answers = np.array(model(ids))[:, -1]
        if name != "randomized":  # its positions depend on the length
            np.testing.assert_allclose(
                np.array(model(later))[:, 11], answers, atol=1e-4, err_msg=name
            )
        # The second block reads what the first one has seen of earlier tokens.
        assert np.ptp(answers, axis=0).max() > 1e-3, name


@pytest.mark.slow
def test_goes_on_where_it_was_interrupted(example, tmp_path):
    folder = tmp_path / "causal_positions"
    arguments = "--quick", "--kinds", "none", "alibi"
    scripts.run("causal_positions", *arguments, folder=tmp_path)
    path = folder / "runs.json"
    kept = json.loads(path.read_text())
    del kept["runs"]["alibi"]["0"]
    kept["runs"]["none"]["0"]["text"]["64"] = 1.0  # a mark
    path.write_text(json.dumps(kept))
    scripts.run("causal_positions", *arguments, folder=tmp_path)
    runs = json.loads(path.read_text())["runs"]
    assert runs["none"]["0"]["text"]["64"] == 1.0
    assert set(runs["alibi"]["0"]) == {*example.TASKS}
    page = (folder / "tables.md").read_text(encoding="utf-8")
    assert page.count("\n| alibi |") == 4
    assert (folder / "tables.png").read_bytes().startswith(b"\x89PNG")
    kept["setting"]["steps"] = 7
    path.write_text(json.dumps(kept))
    refused = scripts.run_any("causal_positions", *arguments, folder=tmp_path)
    assert refused.returncode == 1
    assert "give another --out" in refused.stderr
