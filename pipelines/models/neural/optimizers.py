"""Optimizers of embedding tables: they update only the rows that a batch reads. Other weights use Keras' optimizers.

`adam` is lazy: a row's moments change only when a batch reads the row, and the bias correction counts those steps, so each row has an Adam
of its own. If every batch reads every row, this is plain Adam. Keras' Adam would move every row at every step by fading moments, at the
cost of a pass over the table.

`adagrad` is row-wise: it keeps one number per row instead of one per weight, the sum of the mean squares of the row's gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Name = Literal["adam", "adagrad", "sgd"]
Rate = Any
"""Learning rate: a number, or a Keras variable if the rate changes."""
Slots = Mapping[str, Any]
"""Optimizer state of each row, by name."""


class Rows(Protocol):
    def begin(self, rows: int, width: int) -> dict[str, NDArray[np.float32]]:
        """Returns the state of a table's rows before the first step."""

    def step(self, rows: Any, gradient: Any, slots: Slots, read: Any = 1.0) -> tuple[Any, dict[str, Any]]:
        """Returns the rows and their state after a step; `read` [rows, 1] is 1 for rows that the step looks up, and 0 for rows that it
        does not change. Their gradient is zero."""

    def move(self, rows: Any, gradient: Any, slots: Slots, read: Any) -> None:
        """Takes the step in place, on torch; the gradient's memory is overwritten."""


class LazyAdam:
    """Implements Rows."""

    def __init__(self, rate: Rate, first: float = 0.9, second: float = 0.999, least: float = 1e-7) -> None:
        self._rate, self._first, self._second, self._least = rate, first, second, least

    def begin(self, rows: int, width: int) -> dict[str, NDArray[np.float32]]:
        return {
            "moment": np.zeros((rows, width), np.float32),
            "velocity": np.zeros((rows, width), np.float32),
            "steps": np.zeros((rows, 1), np.float32),
        }

    def step(self, rows: Any, gradient: Any, slots: Slots, read: Any = 1.0) -> tuple[Any, dict[str, Any]]:
        from keras import ops

        steps = slots["steps"] + read
        moment = slots["moment"] + (gradient - slots["moment"]) * (read * (1 - self._first))
        velocity = slots["velocity"] + (ops.square(gradient) - slots["velocity"]) * (read * (1 - self._second))
        moved = rows - moment * self._rates(ops, steps, read) / (ops.sqrt(velocity) + self._least)
        return moved, {"moment": moment, "velocity": velocity, "steps": steps}

    def move(self, rows: Any, gradient: Any, slots: Slots, read: Any) -> None:
        import torch

        moment, velocity, steps = slots["moment"], slots["velocity"], slots["steps"].add_(read)
        moment.lerp_(gradient, read * (1 - self._first))
        velocity.mul_(1 - read * (1 - self._second)).addcmul_(gradient, gradient, value=1 - self._second)
        root = torch.sqrt(velocity, out=gradient).add_(self._least)
        rows.addcdiv_(moment, root.div_(self._rates(torch, steps, read)), value=-1)  # a rate of 0 gives a quotient of 0

    def _rates(self, library: Any, steps: Any, read: Any) -> Any:
        """Returns each row's learning rate with its bias correction: 0 for rows that are not read."""
        steps = library.maximum(steps, library.ones_like(steps))  # a row that no step has read has no correction
        first, second = (-library.expm1(steps * math.log(share)) for share in (self._first, self._second))  # 1 - share**steps, but faster
        return library.sqrt(second) / first * (read * _value(self._rate))


class RowwiseAdagrad:
    """Implements Rows."""

    def __init__(self, rate: Rate, begin: float = 0.1, least: float = 1e-7) -> None:
        self._rate, self._begin, self._least = rate, begin, least

    def begin(self, rows: int, width: int) -> dict[str, NDArray[np.float32]]:
        return {"squares": np.full((rows, 1), self._begin, np.float32)}

    def step(self, rows: Any, gradient: Any, slots: Slots, read: Any = 1.0) -> tuple[Any, dict[str, Any]]:
        from keras import ops

        squares = slots["squares"] + ops.mean(ops.square(gradient), axis=1, keepdims=True)
        return rows - gradient * (self._rate / (ops.sqrt(squares) + self._least)), {"squares": squares}

    def move(self, rows: Any, gradient: Any, slots: Slots, read: Any) -> None:
        squares = slots["squares"].add_(gradient.square().mean(1, keepdim=True))
        rows.sub_(gradient.div_(squares.sqrt().add_(self._least)).mul_(_value(self._rate)))


class Sgd:
    """Implements Rows."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate

    def begin(self, rows: int, width: int) -> dict[str, NDArray[np.float32]]:
        return {}

    def step(self, rows: Any, gradient: Any, slots: Slots, read: Any = 1.0) -> tuple[Any, dict[str, Any]]:
        return rows - gradient * self._rate, {}

    def move(self, rows: Any, gradient: Any, slots: Slots, read: Any) -> None:
        rows.sub_(gradient.mul_(_value(self._rate)))


def _value(rate: Rate) -> Any:
    return rate if isinstance(rate, float) else rate.value


class Decayed:
    """Implements Rows: adds the L2 of whole tables to another optimizer, without a pass over the tables.

    The loss of a step has the squares of all rows, read or not. A row that is read gets the gradients of all steps since it was last read.
    So a rare row is drawn to zero in each step, as a frequent one is, but has fewer examples against it. The pull of one step never moves a
    row beyond zero, however long ago the row was read.
    """

    def __init__(self, rows: Rows, strength: float, count: Any, rate: Rate) -> None:
        """`count` is a variable of Keras: the number of steps, the present one included."""
        self._rows, self._strength, self._count, self._rate = rows, strength, count, rate

    def begin(self, rows: int, width: int) -> dict[str, NDArray[np.float32]]:
        return self._rows.begin(rows, width) | {"read": np.zeros((rows, 1), np.float32)}

    def step(self, rows: Any, gradient: Any, slots: Slots, read: Any = 1.0) -> tuple[Any, dict[str, Any]]:
        since = self._since(slots, read)
        moved, after = self._rows.step(rows, gradient + self._pull(since) * rows, slots, read)
        return moved, after | {"read": slots["read"] + since}

    def move(self, rows: Any, gradient: Any, slots: Slots, read: Any) -> None:
        since = self._since(slots, read)
        slots["read"].add_(since)
        self._rows.move(rows, gradient.addcmul_(rows, self._pull(since)), slots, read)

    def _pull(self, since: Any) -> Any:
        from keras import ops

        return ops.minimum(self._strength * since, 1 / _value(self._rate))

    def _since(self, slots: Slots, read: Any) -> Any:
        """Returns the steps since each row was last read: 0 for rows that this step does not read."""
        from keras import ops

        return (ops.cast(self._count.value, "float32") - slots["read"]) * read


_ROWS: Mapping[Name, Callable[[Rate], Rows]] = {"adam": LazyAdam, "adagrad": RowwiseAdagrad, "sgd": Sgd}


def rows_of(name: Name, rate: Rate) -> Rows:
    return _ROWS[name](rate)


def dense_of(name: Name, rate: float) -> Any:
    """Returns Keras' optimizer."""
    from keras import optimizers

    kinds = {"adam": optimizers.Adam, "adagrad": optimizers.Adagrad, "sgd": optimizers.SGD}
    return kinds[name](learning_rate=float(rate))
