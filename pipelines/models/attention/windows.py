"""Batches of windows over users' sequences, in an order from the seed: the training input of a transformer.

A user with more items than a window holds has several windows: each item is in one window per epoch, and the window borders are drawn again
in each epoch. Training can resume inside an epoch: a batch follows from the seed, the epoch and the batch's number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL, UNKNOWN
from pipelines.inputs.batch_stages import UNKNOWN_SHARE
from pipelines.inputs.batches import EpochPosition, TrainingBatch
from pipelines.models.attention.shape import BACKWARDS, BEGIN, HIDDEN, Shape
from pipelines.training.likes import LikesByRow

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """Implements Feed."""

    path: Path
    """File with the rows of the sequences."""
    sequences: LikesByRow
    """By user, the oldest item first."""
    shape: Shape
    batch_size: int
    seed: int
    reverse: bool = False
    """Whether each window is also read backwards."""
    mask: float = 0.0
    """For `masked`: the share of hidden items."""
    draw: int | None = None
    """Number of drawn items to compare the targets with; None for all items."""
    sought: NDArray[np.bool_] | None = None
    """For each item of the sequences, whether it can be a target; None means all can."""

    @cached_property
    def _users(self) -> Ints:
        return np.flatnonzero(self.sequences.lengths)

    @cached_property
    def _counts(self) -> Ints:
        """Number of windows of each user."""
        return -(-self.sequences.lengths[self._users] // self.shape.window)

    @cached_property
    def _before(self) -> Ints:
        """Number of targets before each place of all sequences."""
        assert self.sought is not None
        return np.append(0, np.cumsum(self.sought))

    def rows_per_epoch(self) -> int:
        return int(self._counts.sum()) * (2 if self.reverse else 1)

    @property
    def fingerprint(self) -> str:
        return f"{len(self.sequences.others)} items of {len(self._users)} users in windows of {self.shape.window}"

    def placed(self, number: int, start: EpochPosition = EpochPosition()) -> Iterator[tuple[TrainingBatch, EpochPosition]]:  # noqa: B008  a value
        begins, ends, backwards = self._windows(number)
        for at in range(start.batch, -(-len(begins) // self.batch_size)):
            some = slice(at * self.batch_size, (at + 1) * self.batch_size)
            random = np.random.default_rng((self.seed, 61, number, at))
            yield self._batch(begins[some], ends[some], backwards[some], random), EpochPosition(at + 1)

    def _windows(self, number: int) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Returns where each window begins and ends among all items, in the epoch's order. All windows of a user are full, except the
        oldest and the newest."""
        random, length = np.random.default_rng((self.seed, 59, number)), self.shape.window
        starts, lengths = self.sequences.start[self._users], self.sequences.lengths[self._users]
        rest = lengths - (self._counts - 1) * length
        newest = random.integers(rest, np.where(self._counts > 1, length, rest) + 1)
        at = np.arange(int(self._counts.sum())) - np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        ends = np.repeat(starts + lengths, self._counts) - np.where(at > 0, np.repeat(newest, self._counts) + (at - 1) * length, 0)
        begins = np.maximum(ends - np.where(at > 0, length, np.repeat(newest, self._counts)), np.repeat(starts, self._counts))
        backwards = np.zeros(len(begins), bool)
        if self.reverse:
            begins, ends, backwards = np.tile(begins, 2), np.tile(ends, 2), np.repeat([False, True], len(begins))
        if self.sought is not None:
            there = self._before[ends] > self._before[begins]
            begins, ends, backwards = begins[there], ends[there], backwards[there]
        order = random.permutation(len(begins))
        return begins[order], ends[order], backwards[order]

    def _batch(self, begins: Ints, ends: Ints, backwards: NDArray[np.bool_], random: np.random.Generator) -> TrainingBatch:
        lengths = ends - begins
        steps = np.arange(self.shape.window)[None, :]
        there = steps < lengths[:, None]
        places = np.where(backwards[:, None], ends[:, None] - 1 - steps, begins[:, None] + steps)
        items = np.full(there.shape, NULL, np.int32)
        items[there] = self.sequences.others[places[there]]
        shown = np.where(there & (random.random(items.shape) < UNKNOWN_SHARE), np.int32(UNKNOWN), items)
        eligible = there.copy()
        if self.sought is not None:
            eligible[there] = self.sought[places[there]]
        mark = np.where(backwards, self.shape.items + BACKWARDS, self.shape.items + BEGIN).astype(np.int32)[:, None]
        if self.shape.objective == "next":
            codes, sought = np.concatenate([mark, shown[:, :-1]], axis=1), eligible
            columns = {"codes": codes, "at": np.flatnonzero(sought), "wanted": items[sought]}
        else:
            sought = eligible & (random.random(items.shape) < self.mask)
            alone = ~sought.any(axis=1) | (random.random(len(items)) < self.mask)
            newest = self.shape.window - 1 - eligible[:, ::-1].argmax(axis=1)
            sought[alone] = steps == newest[alone, None]  # hide the last item, as in serving
            shown = np.where(sought, np.int32(self.shape.items + HIDDEN), shown)
            codes = np.concatenate([mark, shown], axis=1)
            columns = {"codes": codes, "at": np.flatnonzero(np.pad(sought, ((0, 0), (1, 0)))), "wanted": items[sought]}
        if self.draw is not None:
            columns["drawn"] = FIRST + random.choice(self.shape.items - FIRST, self.draw, replace=False, shuffle=False)
        return TrainingBatch(
            {name: np.ascontiguousarray(column, np.int32) for name, column in columns.items()}, np.ones(len(items), np.float32)
        )
