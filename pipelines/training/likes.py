"""Likes by position: as pairs, and row by row from either side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Positions = NDArray[np.int64] | NDArray[np.int32]


@dataclass(frozen=True)
class LikesByRow:
    """Likes by row of one side: positions on the other side, row after row."""

    start: Ints
    """Where each row begins in `others`, and at the end the total."""
    others: Positions

    @property
    def lengths(self) -> Ints:
        return np.diff(self.start)

    def of(self, row: int) -> Positions:
        return self.others[self.start[row] : self.start[row + 1]]

    def rows(self, chosen: Positions) -> LikesByRow:
        """Returns the likes of these rows, in the order of `chosen`."""
        lengths = self.lengths[chosen]
        begin = np.concatenate([[0], np.cumsum(lengths)])
        return LikesByRow(begin, self.others[np.arange(begin[-1]) + np.repeat(self.start[chosen] - begin[:-1], lengths)])


@dataclass(frozen=True)
class LikePairs:
    """Likes as pairs of positions, each pair once, the oldest first."""

    users: Ints
    items: Ints
    user_count: int
    item_count: int
    in_order: bool = True
    """Whether the likes have times; without times the order has no meaning."""

    def __len__(self) -> int:
        return len(self.users)

    def take(self, chosen: Ints | slice) -> LikePairs:
        return replace(self, users=self.users[chosen], items=self.items[chosen])

    def by_user(self) -> LikesByRow:
        return _likes(self.users, self.items, self.user_count)

    def by_item(self) -> LikesByRow:
        return _likes(self.items, self.users, self.item_count)


def _likes(rows: Ints, others: Ints, count: int) -> LikesByRow:
    order = np.lexsort((others, rows))
    return LikesByRow(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), others[order])
