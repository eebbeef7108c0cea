"""Finds each item's nearest `count` neighbours: items that the same users like.

The nearness of items i and j, over the users who like both, where n(u) is the number of a user's likes:

    sum of n(u) ^ -damping  /  (weight(i) ^ pull * weight(j) ^ (1 - pull) + shrink)

An item's weight is the same sum over the users who like the item. With `damping` 0 and `pull` 1/2 this is the cosine of the items' columns
of likes. A higher `damping` reduces the effect of users with many likes; a higher `pull` scores popular items lower; `shrink` reduces the
effect of chance in small sums. The products are sparse and computed by blocks of items, a thread each.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.training.likes import LikePairs
from pipelines.training.sparse import blocks, sparse

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Nearness:
    count: int
    shrink: float
    damping: float
    pull: float


@dataclass(frozen=True)
class Neighbours:
    """[items, count]: each item's nearest items and their nearness; missing neighbours are `blank` with nearness 0."""

    items: NDArray[np.int32]
    nearness: Floats


def find_neighbours(pairs: LikePairs, how: Nearness, blank: int) -> Neighbours:
    by_user, by_item = pairs.by_user(), pairs.by_item()
    says = np.maximum(by_user.lengths, 1).astype(np.float32) ** np.float32(-how.damping)
    weighted = sparse(by_user, pairs.item_count, np.repeat(says, by_user.lengths))
    liked_by = sparse(by_item, pairs.user_count)
    weights = np.bincount(pairs.items, weights=says[pairs.users], minlength=pairs.item_count)
    own, other = weights**how.pull, weights ** (1 - how.pull)
    neighbours = Neighbours(np.full((pairs.item_count, how.count), blank, np.int32), np.zeros((pairs.item_count, how.count), np.float32))

    def fill(rows: slice) -> None:
        both = liked_by[rows] @ weighted
        for at, item in enumerate(range(rows.start, rows.stop)):
            span = slice(both.indptr[at], both.indptr[at + 1])
            items, sums = both.indices[span], both.data[span]
            near = sums / (own[item] * other[items] + how.shrink)
            near[items == item] = 0
            best = np.argpartition(-near, how.count)[: how.count] if len(near) > how.count else np.arange(len(near))
            best = best[np.lexsort((items[best], -near[best]))]
            best = best[near[best] > 0]
            neighbours.items[item, : len(best)], neighbours.nearness[item, : len(best)] = items[best], near[best]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, blocks(pairs.item_count, pairs.item_count)))
    return neighbours
