"""The learning rate's schedule: after which epochs it falls to a tenth.

The rate itself is a variable of the step's optimizer, so checkpoints hold it; this class decides when it falls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.contracts.training import Schedule

FACTOR = 0.1
PATIENCE = 2
"""Epochs in a row without improvement before a fall of `plateau`: a single one is often noise, and an early fall cannot be undone."""
MOST = 3
"""Most falls of `plateau`: a smaller rate than a thousandth changes nothing."""


@dataclass
class RateSchedule:
    schedule: Schedule
    lowered: list[int] = field(default_factory=list)
    """Epochs after which the rate has fallen."""

    def falls(self, epoch: int, best: int | None) -> bool:
        """Returns whether the rate falls after this epoch. `best` is the number of the best epoch, None without a validation."""
        if self.schedule == "plateau":
            falls = best is not None and epoch - max(best, *self.lowered, 0) >= PATIENCE and len(self.lowered) < MOST
        else:
            falls = self.schedule != "constant" and epoch in self.schedule
        if falls:
            self.lowered.append(epoch)
        return falls
