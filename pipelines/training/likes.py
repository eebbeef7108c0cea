"""Likes by position: as pairs, and row by row from either side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Positions = NDArray[np.int64] | NDArray[np.int32]


@dataclass(frozen=True)
class LikesByRow:
    """Likes by row of one side: positions on the other side, row after row."""

    start: Ints
    """Where each row begins in `others`, and at the end the total."""
    others: Positions
    weights: Floats | None = None
    """Weight of each like; None if all are 1."""

    @property
    def lengths(self) -> Ints:
        return np.diff(self.start)

    @cached_property
    def totals(self) -> Ints | Floats:
        """Returns the sum of the weights of each row's likes."""
        if self.weights is None:
            return self.lengths
        sums = np.concatenate([[0], np.cumsum(self.weights, dtype=np.float64)])
        return np.diff(sums[self.start]).astype(np.float32)

    def of(self, row: int) -> Positions:
        return self.others[self.start[row] : self.start[row + 1]]

    def rows(self, chosen: Positions) -> LikesByRow:
        """Returns the likes of these rows, in the order of `chosen`."""
        lengths = self.lengths[chosen]
        begin = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(begin[-1]) + np.repeat(self.start[chosen] - begin[:-1], lengths)
        return LikesByRow(begin, self.others[places], None if self.weights is None else self.weights[places])


@dataclass(frozen=True)
class LikePairs:
    """Likes as pairs of positions, each pair once, the oldest first."""

    users: Ints
    items: Ints
    user_count: int
    item_count: int
    in_order: bool = True
    """Whether the likes have times; without times the order has no meaning."""
    weights: Floats | None = None
    """Weight of each like; None if all are 1."""

    def __len__(self) -> int:
        return len(self.users)

    def take(self, chosen: Ints | slice) -> LikePairs:
        weights = None if self.weights is None else self.weights[chosen]
        return replace(self, users=self.users[chosen], items=self.items[chosen], weights=weights)

    def by_user(self) -> LikesByRow:
        return _likes(self.users, self.items, self.user_count, self.weights)

    def by_item(self) -> LikesByRow:
        return _likes(self.items, self.users, self.item_count, self.weights)


def _likes(rows: Ints, others: Ints, count: int, weights: Floats | None) -> LikesByRow:
    order, start = np.lexsort((others, rows)), np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
    return LikesByRow(start, others[order], None if weights is None else weights[order])
