"""The learning rate schedule of the paper."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive, check_positive_int
from keras_posenc.ops.named import NamedOptions


@keras.saving.register_keras_serializable(package="keras_posenc")
class NoamSchedule(
    NamedOptions, keras.optimizers.schedules.LearningRateSchedule
):
    """Grows linearly with the step, then falls with its inverse square root.

    >>> import keras
    >>> from keras_posenc import training
    >>> schedule = training.NoamSchedule(512)
    >>> print(f"{float(schedule(0)):.3e} {float(schedule(3_999)):.3e}")
    1.747e-07 6.988e-04
    >>> optimizer = keras.optimizers.Adam(  # the paper's
    ...     schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9
    ... )

    `scale * d_model**-0.5 * min(n**-0.5, n * warmup_steps**-1.5)`, where n is
    1 in the first step: Keras counts from 0, the paper from 1. The largest
    rate, `scale / sqrt(d_model * warmup_steps)`, is reached in step n =
    `warmup_steps`.

    Args:
        d_model: width of the model.
        warmup_steps: steps until the largest rate.
        scale: factor of the rate; the paper has none.

    Raises:
        ValueError: if an argument is not positive, or one of the first two not
            an integer.

    References:
        - Vaswani et al. 2017, [Attention Is All You Need](
          https://arxiv.org/abs/1706.03762), section 5.3
    """

    def __init__(
        self, d_model: int, *, warmup_steps: int = 4_000, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.d_model = check_positive_int("d_model", d_model)
        self.warmup_steps = check_positive_int("warmup_steps", warmup_steps)
        self.scale = check_positive("scale", scale)

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32") + 1.0
        # Separate roots: the powers themselves are small next to the factor.
        peak = self.scale * (self.d_model * self.warmup_steps) ** -0.5
        share = step / self.warmup_steps
        return peak * ops.minimum(ops.rsqrt(share), share)

    def get_config(self) -> dict[str, Any]:
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }
