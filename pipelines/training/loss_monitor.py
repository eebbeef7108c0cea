"""Reads the losses of steps late, so that nothing waits for the device, and ends a training that diverges.

A training diverges if a loss is not finite, or if the mean of the last `RECENT` steps is above `FAR` times the mean of the first steps (as
many as make `FIRST_ROWS` rows). Both are detected at most `2 * LATE` steps later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.contracts.models import Training
from shared.domain.errors import Invalid

LATE = 64
"""Steps after which a loss is certainly computed, so that reading it does not wait."""
RECENT, FAR, FIRST_ROWS = 64, 2.0, 128
_LEAST = 0.1
"""Smallest first loss for the comparison: a multiple of nearly zero is not divergence."""


def one_by_one(losses: Sequence[Any]) -> list[float]:
    return [float(loss) for loss in losses]


@dataclass
class Losses:
    """Losses of a training over all epochs: `add` each step's loss; `settle` at an epoch's end and before reading the mean."""

    training: Training
    read: Callable[[Sequence[Any]], Sequence[float]] = one_by_one
    epoch: int = 1
    step: int = 0
    """Steps of this epoch whose losses are read."""
    rows: int = 0
    total: float = 0.0
    """Sum over this epoch's rows."""
    begun: list[tuple[float, int]] = field(default_factory=list)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    _unread: deque[tuple[Any, int]] = field(default_factory=deque)

    def add(self, loss: Any, rows: int) -> None:
        self._unread.append((loss, rows))
        if len(self._unread) >= 2 * LATE:
            self._read(LATE)

    def settle(self) -> None:
        self._read(0)

    def next_epoch(self) -> float:
        """Returns the mean loss of the epoch that has ended."""
        self.settle()
        mean = self.mean
        self.epoch, self.step, self.rows, self.total = self.epoch + 1, 0, 0, 0.0
        return mean

    @property
    def mean(self) -> float:
        """Mean over the rows of this epoch that are read so far."""
        return self.total / self.rows if self.rows else math.nan

    @property
    def state(self) -> dict[str, Any]:
        self.settle()
        names = ("epoch", "step", "rows", "total")
        return {name: getattr(self, name) for name in names} | {"begun": self.begun, "recent": list(self.recent)}

    def go_on(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.step, self.rows, self.total = (state[name] for name in ("epoch", "step", "rows", "total"))
        self.begun = [(value, rows) for value, rows in state["begun"]]
        self.recent = deque(state["recent"], maxlen=RECENT)

    def _read(self, left: int) -> None:
        due = [self._unread.popleft() for _ in range(len(self._unread) - left)]
        if due:
            for value, (_, rows) in zip(self.read([loss for loss, _ in due]), due, strict=True):
                self._check(value, rows)

    def _check(self, loss: float, rows: int) -> None:
        self.step += 1
        if not math.isfinite(loss):
            raise Invalid(self._divergence_message("the loss is not finite"))
        self.total, self.rows = self.total + loss * rows, self.rows + rows
        self.recent.append(loss)
        if sum(count for _, count in self.begun) < FIRST_ROWS:
            self.begun.append((loss, rows))
            return
        began = sum(value * count for value, count in self.begun) / sum(count for _, count in self.begun)
        now = sum(self.recent) / len(self.recent)
        if len(self.recent) == RECENT and now > FAR * max(began, _LEAST):
            raise Invalid(
                self._divergence_message(f"the loss diverges, from {began:.3g} at first to {now:.3g} over the last {RECENT} steps,")
            )

    def _divergence_message(self, symptom: str) -> str:
        rate, how = self.training.learning_rate, self.training.optimizer
        where = f"in epoch {self.epoch}, step {self.step:,}"
        return f"model.train.learning_rate: {symptom} {where}; {rate:g} with {how} is too high: lower it, for example to {rate / 10:g}"
