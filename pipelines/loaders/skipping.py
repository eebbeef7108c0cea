"""Leaves corrupt row groups out of an epoch.

Batches are planned before reading, so only the pool of a corrupt group has fewer rows: its batches share the remaining rows evenly, every
shard has the same number of steps, and all other pools are unchanged. A pool's lost groups are known before its first batch, wherever
reading begins: a resumed epoch gives the same rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pipelines.loaders.plan import LeftoverRows, PoolPlan, drawn, in_order
from shared.domain.errors import BadData

Corruption = Literal["stop", "skip"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SkippedData:
    """A row group, or a file whose footer cannot be read and whose number of rows is unknown."""

    name: str
    rows: int | None
    why: str


@dataclass
class SkipLog:
    """Data that was left out so far, each group once over all epochs."""

    lost: dict[str, SkippedData] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def rows(self) -> int:
        """Rows of groups; rows of files with an unreadable footer are unknown."""
        return sum(lost.rows or 0 for lost in self.lost.values())

    @property
    def groups(self) -> int:
        return sum(lost.rows is not None for lost in self.lost.values())

    @property
    def files(self) -> int:
        """Files of which nothing could be read."""
        return len(self.lost) - self.groups

    def add(self, lost: SkippedData) -> None:
        with self._lock:
            new = lost.name not in self.lost
            self.lost[lost.name] = lost
        if new:
            _log.warning("corrupt data: left out reason=%s", lost.why)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles without the lock: another process has its own."""
        return SkipLog, (dict(self.lost),)


def without(pool: PoolPlan, lost: Collection[int], seed: tuple[int, int], shuffle: bool) -> PoolPlan:
    """Returns the pool without the lost chunks: their parts and left rows become empty."""
    gone = np.isin(pool.left.chunks, list(lost))
    masks = [~gone, *(np.full(len(part), part.chunk not in lost) for part in pool.parts)]
    if all(mask.all() for mask in masks):
        return pool
    consumed = pool.takes.sum(axis=0).tolist()
    there = np.array([mask[:n].sum() for mask, n in zip(masks, consumed, strict=True)], np.int64)
    steps, rows = len(pool.takes), int(there.sum())
    if rows < steps:
        raise BadData(
            f"only {rows} rows are left for {steps} batches from step {pool.step} on: corrupt row groups had the others; leave these files "
            "out, or set more memory or a larger pool"
        )
    sizes = np.diff(np.arange(steps + 1) * rows // max(1, steps)).tolist()
    takes = drawn(there, sizes, np.random.default_rng((*seed, 5, pool.step))) if shuffle else in_order(there, sizes)
    rest = np.concatenate([mask[n:] for mask, n in zip(masks, consumed, strict=True)])
    order = (np.cumsum(rest) - 1)[pool.order[rest[pool.order]]]
    parts = tuple(part if part.chunk not in lost else replace(part, last=part.first) for part in pool.parts)
    return PoolPlan(pool.step, LeftoverRows(pool.left.chunks[~gone], pool.left.places[~gone]), parts, takes, order)
