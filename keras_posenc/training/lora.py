"""Low-rank adaptation (LoRA) of whole models."""

from typing import Any

import keras

from keras_posenc.checks import check_positive, check_positive_int
from keras_posenc.keras_internals import layers_within

_PROJECTIONS = (keras.layers.Dense, keras.layers.EinsumDense)


def enable_lora(
    model: keras.Layer, *, rank: int, alpha: float | None = None
) -> None:
    """Freezes a model, except for a low-rank change of each projection.

    >>> import keras_posenc as kp
    >>> encoder = kp.TransformerEncoderModel(
    ...     50, d_model=8, num_layers=1, num_heads=2
    ... )
    >>> kp.training.enable_lora(encoder, rank=2)
    >>> sorted({weight.name for weight in encoder.trainable_weights})
    ['lora_kernel_a', 'lora_kernel_b']

    The kernel of each `Dense` and `EinsumDense` within becomes `kernel +
    (alpha / rank) * a @ b`, by Keras's own `enable_lora` of the layer. `b` is
    zeros initially, so the outputs do not change. All other weights are frozen,
    including embeddings, biases and normalizations. Call it before `compile`,
    and afterwards add layers to be trained completely, such as a classifier.
    Weights are frozen one by one: `model.trainable = True` unfreezes all.
    On TensorFlow, a model around this one that has called `predict` keeps
    predicting without LoRA, unless it is a `PretrainedModel`: compile it, or
    call `outer.make_predict_function(force=True)`.

    `model.save` and `model.save_weights` write the sums: a model that is
    loaded again has no LoRA, and the same outputs. Adam's state of the
    matrices does not fit its weights: `load_model(path, compile=False)`.

    Args:
        model: A built model or layer.
        rank: The number of columns of `a`.
        alpha: The scale of the change; `rank` by default.

    Raises:
        ValueError: `rank` or `alpha` is not positive; or there is no
            projection within, or one that is not built, has a
            `kernel_constraint` or has LoRA already. The model is not changed.

    References:
        - Hu et al. 2021, [LoRA](https://arxiv.org/abs/2106.09685)
    """
    rank = check_positive_int("rank", rank)
    if alpha is not None:
        alpha = check_positive("alpha", alpha)
    found: list[Any] = [
        layer
        for layer in layers_within(model)
        if isinstance(layer, _PROJECTIONS)
    ]
    if not found or any(layer.lora_enabled for layer in found):
        raise ValueError(
            "`model` must have projections, Dense or EinsumDense, and no LoRA "
            f"yet. Received: model '{model.name}', with {len(found)} of them, "
            f"{sum(layer.lora_enabled for layer in found)} with LoRA"
        )
    for layer in found:
        if not layer.built or layer.kernel_constraint is not None:
            raise ValueError(
                "`model` must have projections that are built and have no "
                f"`kernel_constraint`. Received: '{layer.path}', "
                f"built={layer.built}, "
                f"kernel_constraint={layer.kernel_constraint}"
            )
    weights = model.weights
    for layer in found:
        layer.enable_lora(rank, lora_alpha=alpha)
    for weight in weights:
        weight.trainable = False
    forget_traces(model)


def forget_traces(model: keras.Layer) -> None:
    """Has models within trace again: what they traced lacks the change."""
    for each in layers_within(model):
        if isinstance(each, keras.Model):
            each.train_function = each.test_function = None
            each.predict_function = None
        if hasattr(each, "forget_traces"):  # a generator
            each.forget_traces()
