"""What came before each row, for what looks at a user's rows in order, in memory that doesn't grow with their number.

The few columns that it takes are spread over files by a hash of the user; file by file the values are worked out, and laid down by the
row's number in a file that is mapped into memory. Rows themselves stay where they are, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.features.hashing import PRIME, bucket
from pipelines.features.operators.kinds import Ordered
from pipelines.features.operators.ordered import VALUES, before_name, in_order
from pipelines.features.statistics import Newest

ROW = "~row"
"""The number of a row."""
SPREAD = 400_000
"""Rows of one file of users, about."""
_PART = "~part"
_ROW_GROUP = 16_384
"""Small: each file's next one is held in memory."""


class History:
    """Of rows with their numbers, from 0 on."""

    def __init__(self, frame: pl.LazyFrame, operators: Iterable[Ordered], row: tuple[str, str, str], folder: Path, rows: int) -> None:
        names = dict.fromkeys((*row, *(name for one in operators for name in one.needs), ROW))
        self.row, self._folder, self._rows = row, folder, rows
        self.files = _spread(frame.select(list(names)), row[0], folder / "users", max(1, math.ceil(rows / SPREAD)))
        self._made: dict[str, np.memmap[Any, Any]] = {}

    def added(self, frame: pl.LazyFrame, operator: Ordered) -> pl.LazyFrame:
        """The frame, which has the rows' numbers, with what came before them."""
        values = self._values(operator)
        dtype = pl.Series(np.zeros((0, *operator.shape[1]), operator.shape[0])).dtype

        def taken(rows: pl.Series) -> pl.Series:
            return pl.Series(np.asarray(values[rows.to_numpy()]), dtype=dtype)

        return frame.with_columns(pl.col(ROW).map_batches(taken, dtype, is_elementwise=True).alias(before_name(operator.name)))

    def _values(self, operator: Ordered) -> np.memmap[Any, Any]:
        if operator.name not in self._made:
            dtype, shape = operator.shape
            path = self._folder / f"{len(self._made)}.npy"
            values = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(self._rows, *shape))  # type: ignore[no-untyped-call]
            for file in self.files:
                some = pl.read_parquet(file, columns=[*operator.needs, ROW])
                values[some[ROW].to_numpy()] = operator.before(some.select(operator.needs).to_struct())
            values.flush()
            self._made[operator.name] = values
        return self._made[operator.name]

    def newest(self, ask: Newest) -> pl.DataFrame:
        parts = []
        for file in self.files:
            rows = pl.read_parquet(file, columns=list(dict.fromkeys((*self.row, ask.of, *(["label"] if ask.liked else [])))))
            rows = rows.filter(pl.col("label") == 1) if ask.liked else rows
            order, users = in_order(rows.to_struct(), self.row)
            last = np.ones(len(users), bool)
            behind = max(0, len(users) - ask.count)
            last[:behind] = users[ask.count :] != users[:behind]
            newest = rows.select(ask.by, pl.col(ask.of).alias(VALUES))[order[last]]
            parts.append(newest.group_by(ask.by, maintain_order=True).agg(VALUES))
        whole: pl.DataFrame = pl.concat(parts).sort(ask.by)
        return whole


def _spread(frame: pl.LazyFrame, user: str, folder: Path, parts: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    if parts == 1:
        frame.sink_parquet(folder / "0.parquet", compression="lz4", statistics=False)
        return [folder / "0.parquet"]
    named = frame.with_columns(bucket(pl.col(user) % PRIME, parts).alias(_PART))
    target = pl.PartitionBy(folder, key=_PART, include_key=False, approximate_bytes_per_file=None)
    named.sink_parquet(target, compression="lz4", statistics=False, mkdir=True, row_group_size=_ROW_GROUP)
    return sorted(folder.rglob("*.parquet"))
