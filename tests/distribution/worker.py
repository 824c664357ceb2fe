"""What the tests have processes of their own do: `worker.py CASE OPTIONS`.

A process has the devices that XLA_FLAGS gives it before JAX begins, and is one
of several if KERAS_DISTRIBUTION_JOB_ADDRESSES says so. Options are JSON.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import keras
import numpy as np
from keras import ops

import keras_posenc as kp
from keras_posenc.training import TokenCrossentropy

# ---- Models, whose layers have names


def make_encoder(dropout=0.0):
    """With a gate, a matrix of relative positions, and a head of Keras's."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    encoder = kp.TransformerEncoderModel(
        50,
        d_model=16,
        num_layers=1,
        num_heads=4,
        intermediate_dim=32,
        dropout=dropout,
        input_position=kp.PositionEmbedding(12, name="positions"),
        attention=kp.positions.TransformerXLBias(name="xl"),
        use_gate=True,
        name="encoder_model",
    )
    x = kp.Pooling1D("mean", name="pooling")(encoder(ids))
    model = keras.Model(
        ids, keras.layers.Dense(3, name="scores")(x), name="judge"
    )
    model.loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model


def make_transformer():
    """Cross-attention, and logits with a table of theirs.

    Its 2 heads of keys and values are fewer than a model axis of 4.
    """
    model = kp.Transformer(
        40,
        target_vocabulary_size=44,
        d_model=16,
        num_layers=1,
        num_heads=4,
        attention=kp.Attention(
            kp.RotaryEmbedding(name="rotary"), num_key_value_heads=2
        ),
        intermediate_dim=32,
        dropout=0.0,
        embeddings="separate",
        name="transformer",
    )
    model.loss_of = TokenCrossentropy()
    return model


MODELS = {
    "encoder": make_encoder,
    "dropout": lambda: make_encoder(dropout=0.3),
    "transformer": make_transformer,
}


def make_data(kind, rows=8):
    """Rows of ids with padding behind, and what is to be answered."""
    rng = np.random.default_rng(1)

    def ids(vocabulary, length):
        found = rng.integers(1, vocabulary, (rows, length), dtype="int32")
        lengths = rng.integers(1, length + 1, (rows, 1))
        return np.where(np.arange(length) < lengths, found, 0).astype("int32")

    if kind == "transformer":
        target = ids(41, 7)
        following = np.pad(target[:, 1:], ((0, 0), (0, 1)))
        return {"source": ids(40, 10), "target": target}, following
    return ids(50, 10), rng.integers(0, 3, rows).astype("int32")


# ---- Distributions


def distribution_of(name, make, **options):
    """`"data"`, or the sizes of the axes `batch` and `model`."""
    if name == "data":
        return keras.distribution.DataParallel(**options)
    mesh = keras.distribution.DeviceMesh(
        tuple(name), ["batch", "model"], keras.distribution.list_devices()
    )
    with keras.StatelessScope(initialize_variables=False):
        layouts = kp.distribution.layout_map(make(), mesh)
    keras.utils.clear_session()
    return keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch", **options
    )


def own_slice(tree, distribution):
    """The rows of a batch that are of this process."""
    shards = min(distribution.num_model_replicas, distribution.num_processes)
    return keras.tree.map_structure(
        lambda x: np.split(x, shards)[distribution.data_shard_id], tree
    )


def one_step(kind, name):
    """The loss of a row, and the weights behind a step of SGD.

    They differ as gradients do. The loss is a sum where a mean would not show
    that every process gave all rows.
    """
    make = MODELS[kind]
    distribution = None
    if name is not None:
        distribution = distribution_of(name, make, auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(0)
    model = make()
    x, y = make_data(kind)
    rows = 1 if kind == "transformer" else len(y)
    if rows > 1:
        model.loss_of.reduction = "sum"
    optimizer = keras.optimizers.SGD(1 / rows, momentum=0.5)
    model.compile(optimizer, model.loss_of)
    batch = (x, y) if distribution is None else own_slice((x, y), distribution)
    data = (each for each in [batch])  # Keras takes generators alone
    loss = model.fit(data, verbose=0, shuffle=False).history["loss"][0]
    keras.distribution.set_distribution(None)
    return loss / rows, model


def whole(variable):
    value = variable.value
    if not value.is_fully_addressable:
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(value, tiled=True)
    return np.asarray(value)


def compare(kinds, distributions):
    """How far one step is from that on one device, and what was sharded."""
    report = {}
    for kind in kinds:
        # Of this process alone, and on its first device.
        loss, alone = one_step(kind, None)
        for name in distributions:
            found, model = one_step(kind, name)
            pairs = zip(alone.weights, model.weights, strict=True)
            momenta = zip(
                # They come after the number of steps and the learning rate.
                model.optimizer.variables[2:],
                model.trainable_variables,
                strict=True,
            )
            report[f"{kind} {name}"] = {
                "loss": abs(found - loss),
                "weights": max(
                    float(np.max(np.abs(whole(own) - whole(other))))
                    for own, other in pairs
                ),
                "sharded": sum(
                    not weight.value.sharding.is_fully_replicated
                    for weight in model.weights
                ),
                "astray": [
                    momentum.path
                    for momentum, weight in momenta
                    if momentum.value.sharding != weight.value.sharding
                ],
            }
    return report


# ---- Files


def save(path, mesh, fail=False):
    """Trains a step, saves it, and keeps what it answered beside it."""
    _, model = one_step("encoder", mesh)
    if fail:
        try:
            kp.distribution.save_gathered(model, Path(__file__) / "model.keras")
        except (OSError, RuntimeError) as error:
            return type(error).__name__
    kp.distribution.save_gathered(model, path)
    weights = [whole(weight) for weight in model.weights]
    if os.environ.get("KERAS_DISTRIBUTION_PROCESS_ID", "0") == "0":
        np.savez(Path(path).with_suffix(".npz"), *weights)
    return None


def load(path, export=None):
    """Loads it on this backend; with `export`, makes a SavedModel of it."""
    model = keras.saving.load_model(path)
    with np.load(Path(path).with_suffix(".npz")) as kept:
        pairs = zip(kept.values(), model.weights, strict=True)
        difference = max(
            float(np.max(np.abs(own - ops.convert_to_numpy(other))))
            for own, other in pairs
        )
    report = {"difference": difference, "parameters": model.count_params()}
    report["iterations"] = int(ops.convert_to_numpy(model.optimizer.iterations))
    if export:
        exported = kp.export_saved_model(model, export, max_length=12)
        report["passed"] = exported.report.passed
    return report


# ---- Checkpoints


def make_dense(width=2, optimizer="sgd"):
    keras.utils.clear_session()
    layers = [keras.Input((3,)), keras.layers.Dense(width)]
    model = keras.Sequential(layers)
    model.compile(optimizer, "mse")
    return model


def said(model, folder):
    """What `restore_checkpoint` answers, or what its error says."""
    try:
        return kp.distribution.restore_checkpoint(model, folder)
    except ValueError as error:
        return str(error)


def restore(folder):
    """What comes of checkpoints, by what is done with them."""

    x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    path = os.path.join(folder, "epochs")
    saving = keras.callbacks.OrbaxCheckpoint(path)
    model = make_dense(optimizer="adam")
    model.fit(x, y, 2, epochs=3, verbose=0, callbacks=[saving])
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    built = make_dense(optimizer=scaled)
    scaled.build(built.trainable_variables)
    torn = shutil.copytree(path, os.path.join(folder, "torn"))
    for file in ("_METADATA", "manifest.ocdbt"):
        os.remove(os.path.join(torn, "2", "pytree", file))
    return {
        "epochs": said(make_dense(optimizer="adam"), path),
        "width": said(make_dense(4, optimizer="adam"), path),
        "optimizer": said(built, path),
        "torn": said(make_dense(optimizer="adam"), torn),
    }


if __name__ == "__main__":
    case, options = sys.argv[1], json.loads(sys.argv[2])
    if "KERAS_DISTRIBUTION_JOB_ADDRESSES" in os.environ:
        keras.distribution.initialize()
    cases = (compare, save, load, restore)
    report = {each.__name__: each for each in cases}[case](**options)
    print("\n" + json.dumps(report))  # behind what Gloo prints
