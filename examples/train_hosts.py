"""Trains on one host or several, by JAX, and goes on where it was ended.

    python examples/train_hosts.py --folder run

On every device that JAX finds: 1 host with n GPUs needs no more than that. On n
hosts the same command starts on each, and is told where process 0 is:

    python examples/train_hosts.py --folder /shared/run \
        --coordinator 10.0.0.1:1234 --processes 2 --process 0   # or 1

or by KERAS_DISTRIBUTION_JOB_ADDRESSES, KERAS_DISTRIBUTION_NUM_PROCESSES and
KERAS_DISTRIBUTION_PROCESS_ID. Under Slurm, `srun` says it all. Launchers for
Slurm and Kubernetes are in export/training/.

`--model-parallel m` shards the weights over m devices; the batch is split over
the rest. The folder is one that all hosts see. Each epoch leaves a checkpoint
there; the same command, started again, goes on behind the last one, with the
same numbers as if nothing had happened. It ends with `model.keras`, an ordinary
file for one device. It needs `pip install jax orbax-checkpoint`.
"""

import argparse
import gc
import os
import shutil
import sys
import traceback
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

import keras_posenc as kp

LENGTH, VOCABULARY = 16, 50


def make_data(rows, seed):
    """Rows of ids that hold 1 and 2 once. Does 1 come before 2?"""
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, VOCABULARY, (rows, LENGTH), dtype="int32")
    places = np.tile(np.arange(LENGTH), (rows, 1))
    places = rng.permuted(places, axis=1)[:, :2]
    np.put_along_axis(ids, places, [[1, 2]], axis=1)
    return ids, (places[:, 0] < places[:, 1]).astype("int32")


def make_model():
    """Layers have names, so that it has the same ones when it is made again."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    encoder = kp.TransformerEncoderModel(
        VOCABULARY,
        d_model=64,
        num_layers=2,
        num_heads=4,
        intermediate_dim=128,
        dropout=0.1,
        input_position="sinusoidal",
        name="encoder_model",
    )
    x = kp.Pooling1D("mean", name="pooling")(encoder(ids))
    scores = keras.layers.Dense(2, activation="softmax", name="scores")(x)
    return keras.Model(ids, scores, name="judge")


class Batches(keras.utils.PyDataset):
    """The part of each batch that is of this process.

    The order is that of the seed and the epoch alone: a run that goes on with
    epoch 7 sees what it would have seen.
    """

    def __init__(self, x, y, *, batch_size, distribution, epoch, seed):
        super().__init__()
        self.x, self.y = x, y
        self.batch_size = batch_size
        self.epoch, self.seed = epoch, seed
        # Processes that hold parts of one copy of the model share their rows.
        self.shards = min(
            distribution.num_model_replicas, distribution.num_processes
        )
        self.shard = distribution.data_shard_id
        if batch_size % distribution.num_model_replicas:
            raise ValueError(
                f"--batch-size must be a multiple of the "
                f"{distribution.num_model_replicas} copies of the model"
            )

    def __len__(self):
        return len(self.x) // self.batch_size

    def __getitem__(self, index):
        order = np.random.default_rng([self.seed, self.epoch])
        batches = order.permutation(len(self.x))[index * self.batch_size :]
        rows = np.split(batches[: self.batch_size], self.shards)[self.shard]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        self.epoch += 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model-parallel", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coordinator", help="HOST:PORT of process 0")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    return parser.parse_args()


def is_one_of_several(options):
    """Whether anything says so: what is missing then, JAX names."""
    given = (options.coordinator, options.processes, options.process)
    return (
        any(value is not None for value in given)
        or any(name.startswith("KERAS_DISTRIBUTION_") for name in os.environ)
        or int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1
    )


def end_at_once(*error):
    """At its exit JAX would wait for the others, who wait for this process."""
    try:
        traceback.print_exception(*error)
        sys.stdout.flush()
    finally:
        os._exit(1)


def main():
    options = arguments()
    if is_one_of_several(options):  # before JAX looks for devices
        sys.excepthook = end_at_once
        keras.distribution.initialize(
            options.coordinator, options.processes, options.process
        )
    devices = keras.distribution.list_devices()
    model_parallel = options.model_parallel
    own = jax.local_device_count()
    if (
        model_parallel < 1
        or len(devices) % model_parallel
        or max(own, model_parallel) % min(own, model_parallel)
    ):
        raise ValueError(
            f"--model-parallel must divide the {own} devices of a process, or "
            f"be a multiple of them that divides all {len(devices)}"
        )
    mesh = keras.distribution.DeviceMesh(
        (len(devices) // model_parallel, model_parallel),
        ["batch", "model"],
        devices,
    )
    # To read the layers takes no weights; Keras would make them later.
    with keras.StatelessScope(initialize_variables=False):
        layouts = kp.distribution.layout_map(make_model(), mesh)
    keras.utils.clear_session()
    distribution = keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
    )
    keras.distribution.set_distribution(distribution)

    keras.utils.set_random_seed(options.seed)
    model = make_model()
    model.compile(
        "adam", "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    checkpoints = options.folder.absolute() / "checkpoints"
    is_first = jax.process_index() == 0
    if is_first:  # what was being saved when a run was killed
        for left in checkpoints.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(left, ignore_errors=True)
    epoch = kp.distribution.restore_checkpoint(model, checkpoints)
    x, y = make_data(options.rows, options.seed)
    model.fit(
        Batches(
            x,
            y,
            batch_size=options.batch_size,
            distribution=distribution,
            epoch=epoch,
            seed=options.seed,
        ),
        initial_epoch=epoch,
        epochs=options.epochs,
        shuffle=False,  # the data are, by the epoch
        callbacks=[keras.callbacks.OrbaxCheckpoint(str(checkpoints))],
        verbose=2 if is_first else 0,
    )
    path = kp.distribution.save_gathered(model, options.folder / "model.keras")
    if is_first:
        print(f"Saved {path} behind epoch {options.epochs}")


if __name__ == "__main__":
    main()
    gc.freeze()  # else Python's exit goes through all that was imported
