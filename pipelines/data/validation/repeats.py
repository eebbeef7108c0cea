"""Marks rows that repeat an earlier row's values: exact, in bounded memory.

Unique values are spread over files by hash; file by file, later rows are marked in a file with a flag per row.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.spread import spread

_SPREAD = 500_000
"""Approximate rows per file."""


@dataclass(frozen=True)
class RepeatedRows:
    """Repeated rows. `marked`: whether a row repeats an earlier one, by row number. `example`: values of the first repeat, as text."""

    marked: pl.Expr
    count: int
    example: str


def mark_repeats(frame: pl.LazyFrame, unique: Sequence[str], row: str, rows: int, scratch: Path) -> RepeatedRows:
    """Marks repeats. Numbers in column `row` are below `rows`. The flags must stay in `scratch` as long as the expression is used."""
    scratch.mkdir(parents=True, exist_ok=True)
    flags = np.lib.format.open_memmap(scratch / "repeats.npy", mode="w+", dtype=np.bool_, shape=(rows,))
    count, folder, first, example = 0, scratch / "unique", rows, ""
    parts = max(1, math.ceil(rows / _SPREAD))
    for path in spread(frame.select(row, *unique), pl.struct(unique).hash() % parts, folder):
        some = pl.read_parquet(path)
        later = some.filter(pl.col(row) != pl.col(row).min().over(unique))
        places = later[row].to_numpy()
        flags[places] = True
        count += len(later)
        if len(later) and places.min() < first:
            first, *values = later.sort(row).select(row, *unique).row(0)
            example = ", ".join(str(value)[:40] for value in values)
    shutil.rmtree(folder)
    flags.flush()
    looked_up = pl.col(row).map_batches(lambda at: pl.Series(np.asarray(flags[at.to_numpy()])), pl.Boolean, is_elementwise=True)
    return RepeatedRows(looked_up, count, example)
