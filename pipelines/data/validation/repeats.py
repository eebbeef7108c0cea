"""Which rows repeat an earlier one's values: exact, in memory that doesn't grow with the rows.

What must be unique is spread over files by a hash of it; file by file the rows that come later are marked in a file of flags, one a row.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

_SPREAD = 500_000
"""Rows of one file, about."""
_PART = "validation.part"
_ROW_GROUP = 16_384
"""Small: each file's next one is held in memory."""


def mark_repeats(frame: pl.LazyFrame, unique: Sequence[str], row: str, rows: int, scratch: Path) -> tuple[pl.Expr, int]:
    """Whether a row repeats an earlier one, looked up by its number in the column `row`, all of which are below `rows`; and how many do.
    The flags lie in `scratch` as long as the expression is used."""
    scratch.mkdir(parents=True, exist_ok=True)
    flags = np.lib.format.open_memmap(scratch / "repeats.npy", mode="w+", dtype=np.bool_, shape=(rows,))  # type: ignore[no-untyped-call]
    count, folder = 0, scratch / "unique"
    parts = max(1, math.ceil(rows / _SPREAD))
    named = frame.select(row, *unique).with_columns((pl.struct(unique).hash() % parts).alias(_PART))
    target = pl.PartitionBy(folder, key=_PART, include_key=False, approximate_bytes_per_file=None)
    named.sink_parquet(target, compression="lz4", statistics=False, mkdir=True, row_group_size=_ROW_GROUP)
    for path in sorted(folder.rglob("*.parquet")):
        some = pl.read_parquet(path)
        later = some.select(pl.col(row).filter(pl.col(row) != pl.col(row).min().over(unique))).to_series().to_numpy()
        flags[later] = True
        count += len(later)
    shutil.rmtree(folder)
    flags.flush()
    looked_up = pl.col(row).map_batches(lambda at: pl.Series(np.asarray(flags[at.to_numpy()])), pl.Boolean, is_elementwise=True)
    return looked_up, count
