"""How sure a metric is: the standard error of its value, and of the difference between two contenders on the same cases.

A user's cases resemble each other, so users are what is independent. Each adds its influence to a metric: by how much the metric would move
without it, to first order; the root of the squared influences' sum is the standard error. Differences are those of influences, so what is
hard for all contenders alike makes none of them less sure. One case more that says the contrary is added to the spread: of a hundred
misses in a row the hit rate is not known to be nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST_USERS = 30
"""With fewer, an error by this measure is too small."""


@dataclass(frozen=True, eq=False)
class Influence:
    """Of each user on a metric, in the same order for all contenders."""

    users: Floats
    rests_on: int
    """Users with cases."""
    cases: int

    def error(self, other: Influence | None = None) -> float:
        moved = self.users if other is None else self.users - other.users
        own = float((moved**2).sum()) * self.rests_on / max(self.rests_on - 1, 1)
        return float(np.sqrt(own + (1 / self.cases) ** 2))


def of_mean(values: Floats, owners: Ints, users: int) -> Influence:
    """Of the mean of a value a case. `owners`: of each case its user, from 0."""
    moved = (values - values.mean()) / len(values) if len(values) else values
    return Influence(_by_user(moved, owners, users), len(np.unique(owners)), max(len(values), 1))


def of_auc(labels: NDArray[np.int8], scores: Floats, owners: Ints, users: int) -> Influence:
    """Of the chance that a positive scores above a negative: each row by how it does against all of the other kind."""
    positive = labels.astype(bool)
    high, low = np.sort(scores[positive]), np.sort(scores[~positive])
    beats = _share_below(low, scores[positive])
    beaten = 1 - _share_below(high, scores[~positive])
    area = float(beats.mean())
    moved = np.empty(len(scores))
    moved[positive] = (beats - area) / len(high)
    moved[~positive] = (beaten - area) / len(low)
    return Influence(_by_user(moved, owners, users), len(np.unique(owners)), min(len(high), len(low)))


def _by_user(moved: Floats, owners: Ints, users: int) -> Floats:
    return np.bincount(owners, moved, minlength=users).astype(np.float64)


def _share_below(ordered: Floats, values: Floats) -> Floats:
    """Of the ordered ones, how many each value is above, ties counting half."""
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / (2 * len(ordered))
