"""Each row of a table is run: a file may have a wrong one."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.formats import litert_convert
from keras_posenc.export.probes import every_id
from keras_posenc.export.probes.generate import make_probes
from keras_posenc.export.probes.graphs import Graphs
from keras_posenc.export.signatures.resolve import resolve_signatures

pytestmark = pytest.mark.tensorflow

USERS, ITEMS = 20_000, 300


def table(name, count):
    ids = keras.Input((1,), dtype="int32", name=name)
    return ids, layers.Embedding(count, 4, name=f"of_{name}")(ids)


@pytest.fixture(scope="module")
def model():
    """Two inputs of ids: a score for a user and an item."""
    keras.utils.set_random_seed(0)
    (user, users), (item, items) = table("user", USERS), table("item", ITEMS)
    both = layers.Flatten()(layers.Concatenate()([users, items]))
    return keras.Model([user, item], layers.Dense(2, name="scores")(both))


@pytest.mark.parametrize(
    ("count", "rows"), [(ITEMS, [17]), (USERS, [USERS - 1])]
)
def test_rows_that_a_converter_damages(
    model, count, rows, tmp_path, monkeypatch
):
    rounded = litert_convert.rounded

    def damaged(*arguments):
        file = rounded(*arguments)
        for buffer in file.buffers:
            if buffer.data is not None and len(buffer.data) == 16 * count:
                values = np.array(buffer.data).view("float32")
                values.reshape(count, 4)[rows] += 1
                buffer.data = values.view("uint8")
        return file

    monkeypatch.setattr(litert_convert, "rounded", damaged)
    with pytest.raises(kp.ExportVerificationError, match="each id: largest"):
        kp.export_litert(model, tmp_path / "m.tflite", verbose=False)
    assert list(tmp_path.iterdir()) == []


def tried(model):
    """The ids of each input, of the batches for tables; and their number."""
    (signature,) = resolve_signatures(model, {"serving_default": model})
    call = Graphs(signature)

    def takes(inputs):
        try:
            call(inputs)
        except ValueError:
            return False
        return True

    made = make_probes(signature, [], 512, takes)
    probes = [each for each in made if each.is_of_tables]
    return {
        name: {int(x) for each in probes for x in each.inputs[name].flat}
        for name in signature.specs
    }, len(probes)


def sequences(count, outputs=2):
    ids = keras.Input((None,), dtype="int32", name="ids")
    mask = keras.Input((None,), dtype="bool", name="mask")
    x = layers.Embedding(count, 2)(ids)
    x = layers.Dense(outputs)(layers.MultiHeadAttention(1, 2)(x, x))
    return keras.Model([ids, mask], x)


def heavy():
    """Eight million weights for each of 20,000 tokens, and one output."""
    x = ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(20_000, 4)(x)
    x = layers.Dense(1)(layers.Dense(2_000)(layers.Dense(4_000)(x)))
    return keras.Model(ids, layers.GlobalAveragePooling1D()(x))


def test_every_id_of_each_input_is_run(model):
    every = {"user": {*range(USERS)}, "item": {*range(ITEMS)}}
    assert tried(model) == (every, 2)
    every = {"ids": {*range(250_000)}, "mask": {1}}  # none is masked
    assert tried(sequences(250_000)) == (every, 16)


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: sequences(2_000_000), "_MOST_BATCHES"),
        (lambda: sequences(1_000, outputs=50_000), "_MOST_NUMBERS"),
        (heavy, "_MOST_WORK"),
    ],
)
def test_what_is_too_much_is_not_run(make, limit, monkeypatch):
    model = make()
    assert tried(model)[1] == 0
    (signature,) = resolve_signatures(model, {"serving_default": model})
    (table,) = every_id.tables(signature)
    monkeypatch.setattr(every_id, limit, 2**60)
    assert every_id._plan(signature, {"ids": table.input_dim}, 16)[1] > 0


def test_the_report_says_so_once(model, tmp_path, monkeypatch):
    monkeypatch.setattr(every_id, "_MOST_WORK", 1_000)
    exported = kp.export_litert(
        model, tmp_path / "m.tflite", signatures={"a": model, "b": model}
    )
    (note,) = (x for x in exported.report.notes if "not each of 20,000" in x)
    assert note.endswith("ids was run, which would take long, in a, b")
