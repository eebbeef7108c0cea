"""What becomes of an epoch where row groups turn out to be corrupt, and shall be left out.

Batches are planned before anything is read, so only the rows of the pool that such a group belongs to are fewer: its batches share evenly
what is left of it, every shard makes as many steps as before, and all other pools are as they would be. Which groups a pool has lost is
known before its first batch is made, wherever reading begins: an epoch that is resumed gives the same rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pipelines.loaders.plan import Left, Pool, drawn, in_order
from shared.domain.errors import BadData

Corruption = Literal["stop", "skip"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lost:
    """A row group, or a file whose end can't be read: how many rows that had, nobody knows."""

    name: str
    rows: int | None
    why: str


@dataclass
class Skipped:
    """What was left out so far: each group once, however many epochs went by."""

    lost: dict[str, Lost] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def rows(self) -> int:
        """Of groups; of files whose end can't be read nobody knows."""
        return sum(lost.rows or 0 for lost in self.lost.values())

    @property
    def groups(self) -> int:
        return sum(lost.rows is not None for lost in self.lost.values())

    @property
    def files(self) -> int:
        """Of which nothing could be read."""
        return len(self.lost) - self.groups

    def add(self, lost: Lost) -> None:
        with self._lock:
            new = lost.name not in self.lost
            self.lost[lost.name] = lost
        if new:
            _log.warning("left out: %s", lost.why)

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which has a lock of its own."""
        return Skipped, (dict(self.lost),)


def without(pool: Pool, lost: Collection[int], seed: tuple[int, int], shuffle: bool) -> Pool:
    """The pool, where these chunks can't be read: their parts are empty, and what was left of them is gone."""
    gone = np.isin(pool.left.chunks, list(lost))
    masks = [~gone, *(np.full(len(part), part.chunk not in lost) for part in pool.parts)]
    if all(mask.all() for mask in masks):
        return pool
    consumed = pool.takes.sum(axis=0).tolist()
    there = np.array([mask[:n].sum() for mask, n in zip(masks, consumed, strict=True)], np.int64)
    steps, rows = len(pool.takes), int(there.sum())
    if rows < steps:
        raise BadData(
            f"of the rows of {steps} batches from step {pool.step} on only {rows} are left, the others are lost with corrupt row groups:"
            " leave the files out, or give the loader more memory or a larger pool, so that other groups fill these batches"
        )
    sizes = np.diff(np.arange(steps + 1) * rows // max(1, steps)).tolist()
    takes = drawn(there, sizes, np.random.default_rng((*seed, 5, pool.step))) if shuffle else in_order(there, sizes)
    rest = np.concatenate([mask[n:] for mask, n in zip(masks, consumed, strict=True)])
    order = (np.cumsum(rest) - 1)[pool.order[rest[pool.order]]]
    parts = tuple(part if part.chunk not in lost else replace(part, last=part.first) for part in pool.parts)
    return Pool(pool.step, Left(pool.left.chunks[~gone], pool.left.places[~gone]), parts, takes, order)
