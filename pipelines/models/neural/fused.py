"""Joins tables of the same width into one table: a column's code is a row after the rows of the columns before.

So a batch reads and writes once for each width, not once for each column. A small table stays alone and is updated densely: a pass over all
its rows costs less than to find, gather and scatter the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from pipelines.models.neural.architecture import table_path
from pipelines.models.tables import Table

HOST_FACTOR, DEVICE_FACTOR, GROUP_FACTOR = 2, 4, 1
"""Most rows of a dense table for each code of a batch: where the host finds distinct rows, where a device does and waits for itself, and
where several processes send each other the gradients of whole tables."""


@dataclass(frozen=True)
class FusedTable:
    tables: tuple[Table, ...]
    dense: bool = False

    @property
    def width(self) -> int:
        return self.tables[0].width

    @property
    def rows(self) -> int:
        return sum(table.cardinality for table in self.tables)

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of each table."""
        return tuple(accumulate((table.cardinality for table in self.tables[:-1]), initial=0))

    @property
    def single(self) -> tuple[Table, ...]:
        """Tables with one code per row."""
        return tuple(table for table in self.tables if table.length is None)

    @property
    def lists(self) -> tuple[Table, ...]:
        return tuple(table for table in self.tables if table.length is not None)

    def start(self, table: Table) -> int:
        return self.starts[self.tables.index(table)]

    def joined(self, arrays: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """Returns the fused rows from the tables' arrays, by path."""
        return np.concatenate([arrays[table_path(table)] for table in self.tables])

    def parted(self, rows: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Returns views of the tables' rows, by path."""
        starts = self.starts
        return {table_path(table): rows[start : start + table.cardinality] for table, start in zip(self.tables, starts, strict=True)}


def fuse(tables: Sequence[Table], dense_rows: int = 0, apart: bool = False) -> tuple[FusedTable, ...]:
    """Fuses tables by width, in their order; with `apart` each table stays alone, as small tables do: `dense_rows` for one code per row."""
    by_width: dict[tuple[int, bool], list[Table]] = {}
    for number, table in enumerate(tables):
        dense = table.cardinality <= dense_rows * (table.length or 1)
        by_width.setdefault((number if apart or dense else table.width, dense), []).append(table)
    return tuple(FusedTable(tuple(some), dense) for (_, dense), some in by_width.items())
