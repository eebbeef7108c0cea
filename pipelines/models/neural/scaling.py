"""Loss scaling for float16 layers, so that small gradients do not become zero.

Gradients are divided by the scale again, in float32. If a gradient is not finite, the whole step is skipped and counted. A dynamic scale is
halved after a skip, and doubled after enough sound steps in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

FIRST, MOST = 2.0**15, 2.0**24
EVERY = 2_000
"""Sound steps in a row before the scale is doubled."""


class LossScaling:
    """The scale of the loss: `fixed`, or dynamic if None."""

    def __init__(self, fixed: float | None = None) -> None:
        import keras

        self._dynamic = fixed is None
        self._value, self._sound, self._skipped = (
            keras.Variable(begun, trainable=False, dtype="float32", name=name)
            for name, begun in (("loss_scale", fixed or FIRST), ("sound_steps", 0.0), ("skipped_steps", 0.0))
        )

    @property
    def variables(self) -> list[Any]:
        return [self._value, self._sound, self._skipped]

    @property
    def value(self) -> float:
        return float(self._value)

    @property
    def skipped(self) -> int:
        return int(float(self._skipped))

    def scaled(self, loss: Any) -> Any:
        return loss * self._value.value

    def unscaled(self, gradients: Sequence[Any]) -> list[Any]:
        return [gradient / self._value.value for gradient in gradients]

    def sound(self, gradients: Sequence[Any]) -> Any:
        """Returns whether all gradients are finite."""
        from keras import ops

        return reduce(ops.logical_and, [ops.all(ops.isfinite(gradient)) for gradient in gradients])

    def follow(self, sound: Any) -> None:
        """Updates the scale for the next step. Makes no tensor of a Python number, because each would wait for the device."""
        from keras import ops

        applied = ops.cast(sound, "float32")
        skipped = 1.0 - applied
        self._skipped.assign(self._skipped.value + skipped)
        if self._dynamic:
            value, steps = self._value.value, (self._sound.value + 1.0) * applied
            grown = steps >= EVERY
            grows, halves = ops.cast(ops.logical_and(grown, value * 2.0 <= MOST), "float32"), skipped * ops.cast(value >= 2.0, "float32")
            self._value.assign(value * (1.0 + grows) * (1.0 - 0.5 * halves))
            self._sound.assign(steps * (1.0 - ops.cast(grown, "float32")))
