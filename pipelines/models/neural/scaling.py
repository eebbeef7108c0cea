"""What a loss is multiplied by where layers compute in float16, so that gradients of many rows' mean don't vanish below its least number.

Gradients are divided by it again, in float32. Where one of them is no number the step is skipped as a whole: nothing of the model moves,
and the skip is counted. A dynamic scale is halved then, and doubled after so many sound steps in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

FIRST, MOST = 2.0**15, 2.0**24
EVERY = 2_000
"""Sound steps in a row before the scale is doubled."""


class Scale:
    """`fixed`: None where it follows the gradients."""

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
        return [one / self._value.value for one in gradients]

    def follow(self, gradients: Sequence[Any]) -> Any:
        """Whether all of them are numbers, and the scale for the next step."""
        from keras import ops

        sound = reduce(ops.logical_and, [ops.all(ops.isfinite(one)) for one in gradients])
        self._skipped.assign(self._skipped.value + ops.where(sound, 0.0, 1.0))
        if self._dynamic:
            value, steps = self._value.value, ops.where(sound, self._sound.value + 1.0, 0.0)
            grows = steps >= EVERY
            grown = ops.where(grows, ops.minimum(value * 2.0, MOST), value)
            self._value.assign(ops.where(sound, grown, ops.maximum(value / 2.0, 1.0)))
            self._sound.assign(ops.where(grows, 0.0, steps))
        return sound
