"""Stage that adds sampled negatives: each positive of a batch gets rows with the same user and moment and another item.

Items are drawn uniformly from the catalogue, or from some of its items, by the batch's own generator, so they differ in every epoch and do
not depend on the number of threads. Without `liked`, an item may be one that the user likes. With `liked`, such items are drawn again, up
to `REDRAWS` times; the rest is drawn from all items that the user did not like. A user who liked all of them has no negatives: the positive
is repeated instead. So a batch of p positives and n others always has p * (1 + each) + n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.loaders.columns import Column, ListColumn, LongListBatch
from shared.domain.errors import Invalid

REDRAWS = 8
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Negatives:
    """Stage that adds negatives; items are numbers from 0 to `items` - 1."""

    items: int
    each: int
    """Negatives per positive."""
    item: str = "item_row"
    label: str = "label"
    """Name of the label column. A label above 0 marks a positive. A batch without the column has only positives; the column is added."""
    user: str = "user"
    liked: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.bool_]] | None = None
    """Returns whether these users liked these items; false positives are not negatives either."""
    draw: Callable[[Mapping[str, Column], np.random.Generator], NDArray[Any]] | None = None
    """Draws an item for each of these rows; None draws uniformly."""
    drawable: Ints | None = None
    """Items that can be drawn uniformly, every liked one among them; None: all."""

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        """Returns the rows in random order, so that any part of the batch is representative."""
        items = self._column(batch, self.item)
        labels = self._column(batch, self.label).astype(np.float32) if self.label in batch else np.ones(len(items), np.float32)
        positive = np.flatnonzero(labels > 0)
        source = np.concatenate([np.arange(len(items)), np.repeat(positive, self.each)])
        order = random.permutation(len(source))
        source = source.take(order)
        places = np.flatnonzero(order >= len(items))
        columns = {name: take_rows(column, source) for name, column in batch.items() if name not in (self.item, self.label)}
        drawn = self._drawn(columns, places, items.dtype, random)
        items, labels = items.take(source), labels.take(source)
        if self.liked is not None:
            there = self._verified(drawn, self._column(columns, self.user).take(places), random)
            drawn, places = drawn[there], places[there]
        items[places], labels[places] = drawn, 0
        return columns | {self.item: items, self.label: labels}

    def _drawn(self, rows: Mapping[str, Column], places: Ints, kind: Any, random: np.random.Generator) -> NDArray[Any]:
        if self.draw is None:
            return self._evenly(len(places), kind, random)
        return self.draw({name: take_rows(column, places) for name, column in rows.items()}, random).astype(kind, copy=False)

    def _verified(self, drawn: NDArray[Any], users: NDArray[Any], random: np.random.Generator) -> NDArray[np.bool_]:
        """Replaces liked items in place; returns False for users who liked everything."""
        assert self.liked is not None
        there = np.ones(len(drawn), np.bool_)
        left = np.flatnonzero(self.liked(users, drawn))
        for _ in range(REDRAWS):
            if not len(left):
                return there
            drawn[left] = self._evenly(len(left), drawn.dtype, random)
            left = left[self.liked(users[left], drawn[left])]
        catalogue = np.arange(self.items, dtype=drawn.dtype) if self.drawable is None else self.drawable.astype(drawn.dtype)
        for user in np.unique(users[left]):
            places = left[users[left] == user]
            free = catalogue[~self.liked(np.full(len(catalogue), user), catalogue)]
            there[places] = len(free) > 0
            if len(free):
                drawn[places] = random.choice(free, len(places))
        return there

    def _evenly(self, count: int, kind: Any, random: np.random.Generator) -> NDArray[Any]:
        if self.drawable is None:
            return random.integers(0, self.items, count, dtype=kind)
        drawn: NDArray[Any] = self.drawable[random.integers(0, len(self.drawable), count)].astype(kind)
        return drawn

    @staticmethod
    def _column(batch: Mapping[str, Column], name: str) -> NDArray[Any]:
        column = batch.get(name)
        if not isinstance(column, np.ndarray) or column.ndim != 1:
            there = ", ".join(name for name, array in batch.items() if isinstance(array, np.ndarray) and array.ndim == 1)
            raise Invalid(f"negatives: '{name}' is not a column with one value per row; set item=, user= and label= to columns ({there})")
        return column


def take_rows(column: Column, order: Ints) -> Column:
    return LongListBatch(column).take(order).lists if isinstance(column, ListColumn) else column.take(order, axis=0)
