"""The order in which a candidate shows items to a user, and the ranks of logged items in this order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.serving.nearest import best

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class UserRanking:
    """A user's best items of the catalogue, best first, as many as answers and exploration can need."""

    rows: Ints
    scores: Floats
    """Scores of all rows, in standard deviations of the user's candidates."""

    def without(self, hidden: Ints, count: int) -> Ints:
        """Returns the first `count` rows without the hidden items."""
        return (self.rows[~np.isin(self.rows, hidden)] if len(hidden) else self.rows)[:count]


def line_of(scores: Floats, keys: Ints, candidates: Ints | None, count: int) -> UserRanking:
    """Ranks a user's items. `candidates` are the retrieved rows, or None for all; equal scores are ordered by key, as in serving."""
    rows = np.arange(len(scores)) if candidates is None else candidates
    chosen = rows[best(scores[rows], keys[rows], min(count, len(rows)))]
    spread = float(scores[rows].std())
    return UserRanking(chosen, (scores - scores[rows].mean()) / spread if spread > 0 else np.zeros(len(scores)))


def ranks_of(line: Ints, items: Ints) -> Ints:
    """Returns the rank of each item in a line, from 0; -1 for items outside."""
    if not len(line):
        return np.full(items.shape, -1, np.int64)
    order = np.argsort(line)
    places = np.minimum(np.searchsorted(line[order], items), len(line) - 1)
    return np.where(line[order][places] == items, order[places], -1)
