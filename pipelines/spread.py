"""Spreads rows over files, so that a reader holds only a part of them in memory."""

from __future__ import annotations

from pathlib import Path

import polars as pl

_PART = "spread.part"
_ROW_GROUP = 32_768
"""Small, because the next row group of each file is held in memory."""


def spread(frame: pl.LazyFrame, part: pl.Expr, folder: Path) -> list[Path]:
    """Writes a parquet file for each number that `part` gives; the files do not contain that number."""
    target = pl.PartitionBy(folder, key=_PART, include_key=False, approximate_bytes_per_file=None)
    named = frame.with_columns(part.alias(_PART))
    named.sink_parquet(target, compression="lz4", statistics=False, mkdir=True, row_group_size=_ROW_GROUP)
    return sorted(folder.rglob("*.parquet"))
