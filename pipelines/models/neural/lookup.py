"""Finds the distinct rows of a fused table that a batch reads, and the place of each code of the batch among these rows.

A step reads, differentiates and writes these rows only, so its cost does not follow from the table's size. Equal codes are found without
sorting: each code of the batch writes its position into a cell for that code, and the last position wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.inputs.tables import Codes
from pipelines.models.neural.fused import FusedTable
from pipelines.models.tables import Table
from shared.domain.errors import BadData

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
LEAST = 256
BEYOND = np.iinfo(np.int32).max
"""A place out of every table's range."""


@dataclass(frozen=True)
class ColumnList:
    """A column of lists, without padding."""

    places: Ints
    """Place of each value among the rows that are read."""
    segments: Ints
    """The batch row of each value, in ascending order."""
    offsets: Ints
    """Where each row's values begin, and at the end the number of values."""
    shares: Floats
    """[rows, 1]: factor for the sum of a row's vectors."""

    def part(self, rows: slice) -> ColumnList:
        first, last = (int(self.offsets[at]) for at in (rows.start, rows.stop))
        values = slice(first, last)
        offsets = self.offsets[rows.start : rows.stop + 1] - np.int32(first)
        return ColumnList(self.places[values], self.segments[values] - np.int32(rows.start), offsets, self.shares[rows])


@dataclass(frozen=True)
class Reading:
    rows: NDArray[Any]
    """Rows of the fused table, each once; or, where the whole table is read, [rows of the table, 1]: 1 for rows of the batch, else 0."""
    places: Ints
    """[columns, batch rows]: places for the columns with one code per row."""
    lists: tuple[ColumnList, ...]

    def part(self, rows: slice) -> Reading:
        """Returns the reading of some of the batch's rows, with places among the rows of the whole batch."""
        return Reading(self.rows, self.places[:, rows], tuple(column.part(rows) for column in self.lists))


def steady(reading: Reading) -> Reading:
    """Pads to a size that most batches of this many rows have, with places out of range."""
    rows = reading.rows if reading.rows.ndim == 2 else _filled(reading.rows)
    return Reading(rows, reading.places, tuple(map(_steady, reading.lists)))


def _steady(column: ColumnList) -> ColumnList:
    return ColumnList(_filled(column.places), _filled(column.segments), column.offsets, column.shares)


def _filled(places: NDArray[Any]) -> NDArray[Any]:
    count = len(places)
    step = max(LEAST, 1 << max(0, count.bit_length() - 3))  # at most a quarter is padding
    missing = -count % step
    return np.concatenate([places, np.full(missing, BEYOND, np.int32)]) if missing else places


class FusedTableReader:
    """Reads a fused table's codes; keeps four bytes for each row of the table to find equal codes, if it must find them."""

    def __init__(self, fused: FusedTable) -> None:
        self.fused = fused
        self._last: Ints | None = None

    def __call__(self, columns: Codes, dense: bool = False) -> Reading:
        """Reads the distinct rows of the batch; of a dense table, or with `dense`, all rows, so that codes are places."""
        single = [codes_of(columns, table) + start for table, start in self._starts(self.fused.single)]
        list_values = [(table, *values_of(codes_of(columns, table), start)) for table, start in self._starts(self.fused.lists)]
        codes = np.concatenate([*single, *(values for _, values, _ in list_values)])
        rows, places = (self._marked(codes), codes) if dense or self.fused.dense else self._distinct(codes)
        at = sum(map(len, single))
        lists = []
        for table, values, lengths in list_values:
            lists.append(_list(table, places[at : at + len(values)], lengths))
            at += len(values)
        count = len(single)
        return Reading(rows, places[: sum(map(len, single))].reshape(count, -1) if count else places[:0].reshape(0, 0), tuple(lists))

    def _starts(self, tables: Sequence[Table]) -> list[tuple[Table, int]]:
        return [(table, self.fused.start(table)) for table in tables]

    def _marked(self, codes: Ints) -> Floats:
        marks = np.zeros((self.fused.rows, 1), np.float32)
        marks[codes] = 1
        return marks

    def _distinct(self, codes: Ints) -> tuple[Ints, Ints]:
        if self._last is None:
            self._last = np.empty(self.fused.rows, np.int32)
        numbers = np.arange(len(codes), dtype=np.int32)
        self._last[codes] = numbers
        last = self._last[codes]
        own = last == numbers
        order = np.cumsum(own, dtype=np.int32) - np.int32(1)
        return codes[own], order[last]


def codes_of(columns: Codes, table: Table) -> Ints:
    codes = np.asarray(columns[table.column], np.int32)
    if codes.size and int(codes.view(np.uint32).max()) >= table.cardinality:
        odd = codes.max() if codes.max() >= table.cardinality else codes.min()
        raise BadData(f"feature '{table.column}': code {odd} is beyond its vocabulary of {table.cardinality:,}: run etl again")
    return codes


def values_of(codes: Ints, start: int = 0) -> tuple[Ints, Ints]:
    """Returns the values that are not padding, row after row, and their number in each row."""
    there = codes != NULL
    return codes[there] + np.int32(start), there.sum(axis=1, dtype=np.int32)


def _list(table: Table, places: Ints, lengths: Ints) -> ColumnList:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    segments = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    shares = np.ones(len(lengths), np.float32)
    if table.pooling == "mean":
        shares /= np.maximum(lengths, 1)
    return ColumnList(places, segments, offsets, shares[:, None])
