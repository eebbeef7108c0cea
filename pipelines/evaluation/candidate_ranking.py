"""In which order a candidate would show items to a user, and where logged items stand in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.serving.nearest import best

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Line:
    """Of one user: the best items of the catalogue, best first, as far as answers and what is explored beyond them can need."""

    rows: Ints
    scores: Floats
    """Of all rows, in standard deviations of the user's candidates."""
    complete: bool
    """Whether nothing comes after them."""

    def without(self, hidden: Ints, count: int) -> Ints:
        """The first of them, less what may not be shown."""
        return (self.rows[~np.isin(self.rows, hidden)] if len(hidden) else self.rows)[:count]


def line_of(scores: Floats, keys: Ints, candidates: Ints | None, count: int) -> Line:
    """`candidates`: the rows that are retrieved; all where nothing is. Equal scores come in the order of the keys, as when served."""
    rows = np.arange(len(scores)) if candidates is None else candidates
    chosen = rows[best(scores[rows], keys[rows], min(count, len(rows)))]
    spread = float(scores[rows].std())
    return Line(chosen, (scores - scores[rows].mean()) / spread if spread > 0 else np.zeros(len(scores)), count >= len(rows))


def ranks_of(line: Ints, items: Ints) -> Ints:
    """The place of each item in a line, from 0; -1 where it isn't there."""
    if not len(line):
        return np.full(items.shape, -1, np.int64)
    order = np.argsort(line)
    places = np.minimum(np.searchsorted(line[order], items), len(line) - 1)
    return np.where(line[order][places] == items, order[places], -1)
