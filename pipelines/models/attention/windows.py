"""Batches of windows over users' sequences, in an order from the seed: the training input of a transformer.

A user with more items than a window holds has several windows: each item is in one window per epoch, and the window borders are drawn again
in each epoch. Short windows share a row of a batch (`packed`), so that a step has little padding. Training can resume inside an epoch: a
batch follows from the seed, the epoch and the batch's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

POPULAR = 0.9
"""Share of a sample that is drawn by popularity; the correction is small then for the items that models score highest."""
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


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
    sample: Callable[[np.random.Generator], tuple[Ints, NDArray[np.float32]]] | None = None
    """Draws the items to compare the targets with; None for all items."""
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
            codes, sought, filled = np.concatenate([mark, shown[:, :-1]], axis=1), eligible, there
        else:
            sought = eligible & (random.random(items.shape) < self.mask)
            alone = ~sought.any(axis=1) | (random.random(len(items)) < self.mask)
            newest = self.shape.window - 1 - eligible[:, ::-1].argmax(axis=1)
            sought[alone] = steps == newest[alone, None]  # hide the last item, as in serving
            codes = np.concatenate([mark, np.where(sought, np.int32(self.shape.items + HIDDEN), shown)], axis=1)
            sought, filled = (np.pad(flags, ((0, 0), (1, 0)), constant_values=first) for flags, first in ((sought, False), (there, True)))
            items = np.concatenate([mark, items], axis=1)
        columns = self._packed(codes, filled, sought) | {"targets": items[sought]}
        if self.sample is not None:
            columns["drawn"], shifts = self.sample(random)
        columns = {name: np.ascontiguousarray(column, np.int32) for name, column in columns.items()}
        return TrainingBatch(columns if self.sample is None else columns | {"shifts": shifts}, np.ones(len(items), np.float32))

    def _packed(self, codes: Ints, filled: Flags, sought: Flags) -> dict[str, Ints]:
        """Returns the windows in shared rows; `at` are the places of the targets among the places of all rows."""
        rows, offsets = packed(filled.sum(axis=1), self.shape.places)
        window, step = np.nonzero(filled)
        places = (rows * self.shape.places + offsets)[window] + step
        columns = {"codes": (NULL, codes[filled]), "steps": (0, step), "windows": (-1, window)}
        shape = int(rows.max()) + 1, self.shape.places
        arrays = {name: np.full(shape, empty) for name, (empty, _) in columns.items()}
        for name, (_, values) in columns.items():
            arrays[name].reshape(-1)[places] = values
        return arrays | {"at": places[sought[filled]]}


def packed(lengths: Ints, most: int) -> tuple[Ints, Ints]:
    """Assigns each window a row and its first place there: the longest first, each to the fullest row that has room."""
    rows, offsets = np.empty(len(lengths), np.int64), np.empty(len(lengths), np.int64)
    with_room: list[list[int]] = [[] for _ in range(most + 1)]
    """Rows by the number of free places."""
    count = 0
    for number in np.argsort(-lengths, kind="stable"):
        length = int(lengths[number])
        room = next((room for room in range(length, most) if with_room[room]), most)
        row = with_room[room].pop() if room < most else count
        count += room == most
        rows[number], offsets[number] = row, most - room
        with_room[room - length].append(row)
    return rows, offsets


@dataclass(frozen=True, eq=False)
class ItemSample:
    """Draws items for each step: most by their share of the likes, some from the whole catalogue. A step corrects for an item's chance."""

    counts: Ints
    """Likes by item code."""
    size: int

    @cached_property
    def _chances(self) -> NDArray[np.float64]:
        """Chance of each item in each draw."""
        likes = self.counts[FIRST:]
        chances: NDArray[np.float64] = POPULAR * likes / likes.sum() + (1 - POPULAR) / len(likes)
        return chances

    @cached_property
    def _bounds(self) -> NDArray[np.float64]:
        return np.cumsum(self._chances)

    def __call__(self, random: np.random.Generator) -> tuple[Ints, NDArray[np.float32]]:
        """Returns the distinct items of `size` draws, and for each the negative log of its chance to be among them."""
        drawn = np.unique(np.searchsorted(self._bounds, random.random(self.size) * self._bounds[-1], side="right"))
        is_drawn = -np.expm1(self.size * np.log1p(-self._chances[drawn]))
        return FIRST + drawn, -np.log(is_drawn).astype(np.float32)
