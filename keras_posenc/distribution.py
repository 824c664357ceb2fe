"""Models on several devices: sharding layouts, saving, resuming."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.keras_internals import layers_within, lent_values
from keras_posenc.positional.biases import TransformerXLBias
from keras_posenc.publish import publish_keras
from keras_posenc.transformer._models import DecodingModel
from keras_posenc.transformer.attention import CrossAttention, SelfAttention
from keras_posenc.transformer.blocks import FeedForward

__all__ = ["layout_map", "restore_checkpoint", "save_gathered"]

# ---- Layouts


def layout_map(
    model: Any, mesh: Any, *, axis: str = "model"
) -> keras.distribution.LayoutMap:
    """Returns which variables of a model are sharded over a mesh, and how.

    >>> import keras
    >>> import keras_posenc as kp
    >>> model = kp.TransformerEncoderModel(
    ...     50, d_model=8, num_layers=1, num_heads=2, intermediate_dim=16
    ... )
    >>> mesh = keras.distribution.DeviceMesh(
    ...     (1, 2), ["batch", "model"], ["cpu:0", "cpu:1"]
    ... )
    >>> layouts = kp.distribution.layout_map(model, mesh)
    >>> for path, layout in layouts.items():
    ...     if "query" in path:
    ...         print(path, layout.axes)
    encoder/block_0/attention/query_key_value/kernel (None, 'model')
    encoder/block_0/attention/query_key_value/bias ('model',)

    The layout is derived from the types of layers, not from names. Of each
    pair of projections the first is sharded by columns and the second by rows,
    so that the activations between them are sharded too:

    - `SelfAttention`: `query_key_value`, then `output_projection`. One matrix
      holds the queries, keys and values of all heads. It is sharded wherever
      the axis divides its columns, whether or not it divides its heads; XLA
      then moves each head to its device.
    - `CrossAttention`: `query`, then `output_projection`. Keys and values of
      grouped heads that the axis does not divide are replicated, and only the
      queries are sharded.
    - `FeedForward`: `intermediate` and its gate, then `output_projection`.
    - Embeddings of ids, Keras's own included, by columns; the logits of the
      package's models by columns.
    - The matrix of `TransformerXLBias`, and its biases, by heads.

    LoRA and int8 variables are sharded as their kernels are. Everything else
    is replicated: norms, tables of positions and of distances, layers that are
    not of this package, such as a head, variables that a subclass adds to an
    embedding, and whatever the axis does not divide. The results do not depend
    on the layout, except for rounding. An optimizer's variables are sharded as
    the variables that they belong to.

    Args:
        model: A built model, or layer. Its values are not read: a model made
            in `keras.StatelessScope(initialize_variables=False)` has none and
            takes no memory. Call `keras.utils.clear_session()` after it, or
            Keras initializes its variables with the next model.
        mesh: A `keras.distribution.DeviceMesh`.
        axis: The axis of the mesh to shard over.

    Returns:
        A `keras.distribution.LayoutMap` with an entry for the path of each
        variable, for `keras.distribution.ModelParallel`. Make the model again
        within that, with the same names, as `keras.models.clone_model` does:
        Keras replicates a variable at another path.

    Raises:
        ValueError: The mesh is not Keras's or has no such axis, a layer is not
            built, a variable has a quantization other than int8, or two
            variables have the same path, for want of names of layers.

    References:
        - [Shoeybi et al., 2019](https://arxiv.org/abs/1909.08053)
    """
    if not isinstance(mesh, keras.distribution.DeviceMesh):
        raise ValueError(
            "`mesh` must be a `keras.distribution.DeviceMesh`. "
            f"Received: mesh={mesh!r}"
        )
    if axis not in mesh.axis_names:
        raise ValueError(
            f"`axis` must be one of {list(mesh.axis_names)}, the axes of the "
            f"mesh. Received: axis={axis!r}"
        )
    size = mesh.shape[list(mesh.axis_names).index(axis)]
    sharded: dict[int, tuple[Any, ...]] = {}
    for layer in layers_within(model):
        if not layer.built:
            raise ValueError(
                f"`model` must be built. Received: model={model.name!r}, whose "
                f"{type(layer).__name__} '{layer.name}' is not"
            )
        for part, way, count in _parts_of(layer):
            if part is None or count % size:
                continue
            for variable in part.variables:
                axes = _axes_of(variable, part, way, axis)
                sharded[id(variable)] = axes
    layouts = keras.distribution.LayoutMap(mesh)
    for variable in model.variables:
        replicated = (None,) * len(variable.shape)
        layouts[variable.path] = sharded.get(id(variable), replicated)
    return layouts


def _parts_of(layer: Any) -> Iterator[tuple[Any, str, int]]:
    """Yields parts, by rows or columns, and how many pieces they can have."""
    match layer:
        case SelfAttention():
            units = layer.query_key_value.units
            yield layer.query_key_value, "columns", units
            yield layer.output_projection, "rows", layer.num_heads
        case CrossAttention():
            yield layer.query, "columns", layer.num_heads
            yield layer.key_value, "columns", layer.num_key_value_heads
            yield layer.output_projection, "rows", layer.num_heads
        case FeedForward():
            yield layer.gate, "columns", layer.intermediate_dim
            yield layer.intermediate, "columns", layer.intermediate_dim
            yield layer.output_projection, "rows", layer.intermediate_dim
        case TransformerXLBias():
            yield layer, "columns", layer.content_bias.shape[0]
        case keras.layers.Embedding():
            yield layer, "columns", layer.output_dim
        case DecodingModel(head=keras.layers.Dense() as head):
            yield head, "columns", head.units


def _axes_of(variable: Any, layer: Any, way: str, axis: str) -> tuple[Any, ...]:
    rows, columns = (axis, None) if way == "rows" else (None, axis)
    # Attribute names of Keras, with those of int8 and LoRA.
    known = {
        "kernel": (rows, columns),
        "bias": (columns,),
        "kernel_scale": (columns,),
        "lora_kernel_a": (rows, None),
        "lora_kernel_b": (None, columns),
        "content_bias": (columns, None),
        "position_bias": (columns, None),
    }
    mode = layer.quantization_mode
    axes = known.get(variable.name)
    if isinstance(layer, keras.layers.Embedding):
        # A subclass may have more variables: those are replicated.
        by_columns = variable.name in ("embeddings", "lora_embeddings_b")
        axes = (None,) * (len(variable.shape) - by_columns)
        axes = (*axes, columns) if by_columns else axes
    if axes is None or mode not in (None, "int8"):
        raise ValueError(
            "`model` has a variable without a known sharding: "
            f"'{variable.path}' of a {type(layer).__name__}"
            + (f" quantized to {mode}" if mode else "")
        )
    return axes


# ---- Files


def save_gathered(model: Any, path: Any) -> Path:
    """Saves a model whose variables are sharded over several processes.

    >>> import tempfile
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> folder = tempfile.mkdtemp()
    >>> kp.distribution.save_gathered(model, f"{folder}/model.keras").name
    'model.keras'

    Every process calls it, at the same point. Variables are gathered one after
    another: each device holds one of them completely for a moment, and the
    host of process 0 all of them. Process 0 writes a temporary file and renames
    it, so that there is always a complete file, the old or the new; the others
    wait. It is an ordinary file, with the optimizer's state, that loads on
    every backend and on one device.

    With one process, or without JAX, it writes what `model.save` writes.

    Args:
        model: A Keras model.
        path: A path that ends in `.keras`. Only process 0 writes there.

    Returns:
        The path.

    Raises:
        ExportError: On process 0, the folder cannot be written to, or the disk
            is full.
        ValueError: The path has another ending.
        Exception: On process 0, whatever Keras raised.
        RuntimeError: On every other process: writing failed on process 0.
    """
    path = Path(path).expanduser()
    if path.suffix != ".keras":
        raise ValueError(f"`path` must end in .keras. Received: path={path}")
    if keras.config.backend() != "jax":
        return publish_keras(model, path)
    import jax
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return publish_keras(model, path)

    is_first = jax.process_index() == 0
    values = []
    optimizer = getattr(model, "optimizer", None)
    for variable in (
        *model.variables,
        *model.metrics_variables,
        *getattr(optimizer, "variables", ()),
    ):
        value = variable.value
        if not value.is_fully_addressable:
            value = multihost_utils.process_allgather(value, tiled=True)
            if is_first:
                values.append((variable, value))
    failure = None
    if is_first:
        distribution = keras.distribution.distribution()
        try:
            # Variables that Keras makes while it writes are on this process.
            keras.distribution.set_distribution(None)
            with lent_values(values):
                publish_keras(model, path)
        except Exception as error:
            failure = error
        finally:
            keras.distribution.set_distribution(distribution)
    # Here the other processes wait, and learn whether it failed.
    failed = multihost_utils.broadcast_one_to_all(np.int32(failure is not None))
    if failure is not None:
        raise failure
    if failed:
        raise RuntimeError(f"Process 0 could not write '{path}'")
    return path


# ---- Resuming


def restore_checkpoint(model: Any, directory: Any) -> int:
    """Loads the latest checkpoint of `keras.callbacks.OrbaxCheckpoint`.

    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> model.compile("adam", "mse")
    >>> restore = kp.distribution.restore_checkpoint
    >>> restore(model, "checkpoints")  # doctest: +SKIP
    0

    Weights, the optimizer's state and the states of seed generators, such as
    those of dropouts, are restored on whatever devices and processes the model
    is on now. Keras's own `model.load_weights` silently leaves out what it
    does not find at its path, and does not return the epoch.

    Args:
        model: The model that was trained, made and compiled again. If layers
            have no names, it must be the first model of the process: Keras
            numbers them.
        directory: The folder of the callback, which saves all (not
            `save_weights_only`) at the end of each epoch
            (`save_freq="epoch"`). All processes must see it.

    Returns:
        The epoch to continue from, for `fit(initial_epoch=...)`; 0 where there
        is no checkpoint yet.

    Raises:
        ImportError: The library `orbax-checkpoint` is missing.
        ValueError: `directory` is a file or itself a checkpoint, the backend
            is not JAX, the model is not built or not compiled, processes see
            different checkpoints, or the latest one is incomplete, of another
            model (the message names the variables), or within an epoch.
    """
    directory = _folder(directory)
    if keras.config.backend() != "jax":
        raise ValueError(
            "`restore_checkpoint` needs the backend JAX. "
            f"Received: backend {keras.config.backend()!r}"
        )
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            "`model` must be compiled: a checkpoint holds the optimizer's "
            f"state. Received: model={model.name!r}, which is not"
        )
    if not model.built:
        raise ValueError(
            "`model` must be built: it has no weights yet. "
            f"Received: model={model.name!r}"
        )
    import jax
    from orbax.checkpoint import v1 as ocp

    with ocp.training.Checkpointer(directory) as checkpointer:
        latest = checkpointer.latest
    step = None if latest is None else int(latest.step)
    _check_shared(step, directory)
    if step is None:
        return 0
    path = os.path.join(directory, str(step))
    if not model.optimizer.built:  # building twice fails for some
        model.optimizer.build(model.trainable_variables)
    state = model.get_state_tree()
    # Metrics start again with each epoch, or are not built yet.
    del state["metrics_variables"]
    try:
        found = ocp.pytree_metadata(path, checkpointable_name="pytree")
    except ocp.errors.InvalidLayoutError as error:
        raise ValueError(
            f"'{path}' is not a checkpoint of `OrbaxCheckpoint`, or is "
            "incomplete. Remove it to resume from the one before"
        ) from error
    saved = dict(found.metadata)
    metrics = saved.pop("metrics_variables", {})
    own, other = (
        {
            f"{place}: {tuple(value.shape)} {value.dtype}"
            for place, value in _leaves(tree)
        }
        for tree in (state, saved)
    )
    if own != other:
        raise ValueError(
            f"The checkpoint '{path}' is of another model. "
            f"Missing there: {sorted(own - other) or None}; "
            f"not in the model: {sorted(other - own) or None}"
        )
    # To the current sharding, whatever it was when the state was saved.
    wanted = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
        state,
    )
    wanted["metrics_variables"] = jax.tree.map(
        lambda _: ocp.PLACEHOLDER, metrics
    )
    loaded = ocp.load_checkpointables(path, {"pytree": wanted})["pytree"]
    for place, value in _leaves(loaded["optimizer_variables"]):
        if place.endswith("iteration") and int(value) == step:
            raise ValueError(
                f"The checkpoint '{path}' was saved after {step} batches, not "
                "after an epoch. Give `OrbaxCheckpoint` the argument "
                "`save_freq='epoch'`"
            )
    model.set_state_tree({name: loaded[name] for name in state})
    return step + 1


def _folder(directory: Any) -> str:
    """Returns an absolute path; raises for a file, where Orbax would wait."""
    given = os.path.expanduser(os.fspath(directory))
    if "://" in given:  # cloud storage, which Orbax supports
        return given
    path = Path(given).absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise ValueError(
            "`directory` must be a folder, or a path that does not exist yet. "
            f"Received: directory='{given}', and '{there}' is a file"
        )
    if (path / "_CHECKPOINT_METADATA").exists():
        raise ValueError(
            "`directory` must be the folder of the callback, which holds the "
            f"checkpoints. Received: directory='{given}', which is one of them"
        )
    return str(path)


def _check_shared(step: int | None, directory: str) -> None:
    """Raises `ValueError`, on all processes, if they see different ones."""
    import jax
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return
    own = np.int32(-1 if step is None else step)
    found = multihost_utils.process_allgather(own).tolist()
    if len(set(found)) > 1:
        raise ValueError(
            "`directory` must be one that all processes see. Received: "
            f"directory={directory!r}, whose latest checkpoint is, for each "
            f"process, {[None if x < 0 else x for x in found]}"
        )


def _leaves(tree: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        here = f"{place}/{name}" if place else name
        if isinstance(value, dict):
            yield from _leaves(value, here)
        else:
            yield here, value
