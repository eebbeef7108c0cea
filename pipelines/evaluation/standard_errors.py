"""Standard errors of a metric, and of the difference between two contenders on the same cases.

A user's cases are similar, so users are the independent unit. Each user has an influence on the metric: the change without this user, to
first order; the standard error is the root of the sum of squared influences. A difference uses the difference of influences, so that cases
that are hard for all contenders add no uncertainty. One more case with the opposite result is added: 0 hits in a hundred cases do not prove
a hit rate of 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST_USERS = 30
"""Fewest users: with fewer, this standard error is too small."""


@dataclass(frozen=True, eq=False)
class Influence:
    """Influence of each user on a metric, in the same order for all contenders."""

    users: Floats
    rests_on: int
    """Users with cases."""
    cases: int

    def error(self, other: Influence | None = None) -> float:
        moved = self.users if other is None else self.users - other.users
        own = float((moved**2).sum()) * self.rests_on / max(self.rests_on - 1, 1)
        return float(np.sqrt(own + (1 / self.cases) ** 2))


def of_mean(values: Floats, owners: Ints, users: int) -> Influence:
    """Returns the influence on the mean of a value per case; `owners` holds each case's user, from 0."""
    moved = (values - values.mean()) / len(values) if len(values) else values
    return Influence(_by_user(moved, owners, users), len(np.unique(owners)), max(len(values), 1))


def of_auc(labels: NDArray[np.int8], scores: Floats, owners: Ints, users: int) -> Influence:
    """Returns the influence on the AUC: each row by its comparison with all rows of the other label."""
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
    """Returns the share of the ordered values below each value, ties counting half."""
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / (2 * len(ordered))
