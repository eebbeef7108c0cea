"""History of each row for operators that read a user's rows in order, in bounded memory.

The needed columns are spread over files by a hash of the user. Values are computed file by file and written to a file of their own by row
number. The rows themselves stay in place and in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.hashing import PRIME, bucket
from pipelines.features.operators.kinds import Ordered
from pipelines.features.operators.ordered import VALUES, before_name, in_order
from pipelines.features.statistics import NewestValues
from pipelines.spread import spread

ROW = "~row"
"""Row number."""
SPREAD, FEW = 400_000, 16
"""Approximate rows per file of users, up to `FEW` files; beyond, both size and number grow, because open files and read rows need
memory."""
_THREADS = 2
_APART = 65_536


@dataclass(frozen=True)
class ValueFile:
    """Values by row in a file; each has `shape`."""

    path: Path
    dtype: type[Any]
    shape: tuple[int, ...]

    def at(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Reads a batch, whose rows are mostly adjacent, in one read."""
        if not len(rows):
            return np.zeros((0, *self.shape), self.dtype)
        first, last = int(rows.min()), int(rows.max())
        if last - first > _APART + 8 * len(rows):
            return np.array(np.memmap(self.path, self.dtype, "r").reshape(-1, *self.shape)[rows])
        cells = math.prod(self.shape)
        start = first * cells * np.dtype(self.dtype).itemsize
        values = np.fromfile(self.path, self.dtype, (last + 1 - first) * cells, offset=start).reshape(-1, *self.shape)
        return values if len(values) == len(rows) and (rows[1:] > rows[:-1]).all() else values[rows - first]


class RowHistory:
    """History of rows numbered from 0. `pages`: page views (user, item, time) among the rows, without a number."""

    def __init__(
        self,
        frame: pl.LazyFrame,
        operators: Iterable[Ordered],
        row: tuple[str, str, str],
        folder: Path,
        rows: int,
        pages: pl.LazyFrame | None = None,
    ) -> None:
        names = dict.fromkeys((*row, *(name for operator in operators for name in operator.needs), ROW))
        self.row, self._folder, self._rows, self._paged = row, folder, rows, pages is not None
        frame, views = frame.select(list(names)), 0
        if pages is not None:
            frame, views = pl.concat([frame, pages.select(row)], how="diagonal"), pages.select(pl.len()).collect(engine="streaming").item()
        self.files = _spread(frame, row[0], folder / "users", _parts(rows + views))
        self._made: dict[str, ValueFile] = {}

    def scan(self, pages: bool) -> pl.LazyFrame:
        """Scans all rows in any order, with page views if wanted."""
        rows = pl.scan_parquet(self.files)
        return rows if pages or not self._paged else rows.filter(pl.col(ROW).is_not_null())

    def _read(self, file: Path, columns: Iterable[str], pages: bool) -> pl.DataFrame:
        """Reads all rows of a file's users."""
        some = pl.read_parquet(file, columns=list(dict.fromkeys((*columns, ROW) if self._paged else columns)))
        return some if pages or not self._paged else some.filter(pl.col(ROW).is_not_null())

    def added(self, frame: pl.LazyFrame, operator: Ordered) -> pl.LazyFrame:
        """Adds the operator's history values to a frame with row numbers."""
        value_file = self._value_file(operator)
        dtype = pl.Series(np.zeros((0, *value_file.shape), value_file.dtype)).dtype
        values = pl.col(ROW).map_batches(lambda rows: pl.Series(value_file.at(rows.to_numpy()), dtype=dtype), dtype, is_elementwise=True)
        return frame.with_columns(values.alias(before_name(operator.name)))

    def _value_file(self, operator: Ordered) -> ValueFile:
        if operator.name not in self._made:
            value_file = ValueFile(self._folder / f"{len(self._made)}.values", *operator.shape)
            values = np.memmap(value_file.path, value_file.dtype, "w+", shape=(self._rows, *value_file.shape))

            def lay(file: Path) -> None:
                some = self._read(file, (*operator.needs, ROW), operator.pages)
                before, rows = operator.before(some.select(operator.needs).to_struct()), some[ROW]
                if rows.null_count():
                    before, rows = before[rows.is_not_null().to_numpy()], rows.drop_nulls()
                values[rows.to_numpy()] = before

            with ThreadPoolExecutor(_THREADS) as threads:
                list(threads.map(lay, self.files))
            values.flush()
            self._made[operator.name] = value_file
        return self._made[operator.name]

    def newest(self, ask: NewestValues) -> pl.DataFrame:
        parts = []
        for file in self.files:
            rows = self._read(file, (*self.row, ask.of, *(["label"] if ask.liked else [])), ask.pages)
            rows = rows.filter(pl.col("label") == 1) if ask.liked else rows
            order, users = in_order(rows.to_struct(), self.row)
            last = np.ones(len(users), bool)
            behind = max(0, len(users) - ask.count)
            last[:behind] = users[ask.count :] != users[:behind]
            newest = rows.select(ask.by, pl.col(ask.of).alias(VALUES))[order[last]]
            parts.append(newest.group_by(ask.by, maintain_order=True).agg(VALUES))
        merged: pl.DataFrame = pl.concat(parts).sort(ask.by)
        return merged


def _parts(rows: int) -> int:
    return max(1, min(math.ceil(rows / SPREAD), max(FEW, math.isqrt(FEW * rows // SPREAD))))


def _spread(frame: pl.LazyFrame, user: str, folder: Path, parts: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    if parts == 1:
        frame.sink_parquet(folder / "0.parquet", compression="lz4", statistics=False)
        return [folder / "0.parquet"]
    return spread(frame, bucket(pl.col(user) % PRIME, parts), folder)
