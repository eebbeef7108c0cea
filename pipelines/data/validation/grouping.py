"""Sums by key, in memory that grows neither with the rows nor with the keys.

Batches are summed one after the other; where there are more keys than are held at once, sums are spread over files by a hash of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

KEY = "key"
_BATCH = 500_000
_MOST_SUMS = 500_000
"""So many sums are held at once, about."""
_FILES = 64


def grouped(frame: pl.LazyFrame, sums: Sequence[pl.Expr], scratch: Path) -> Iterator[pl.DataFrame]:
    """`frame` has a column `key`. Each key is in one of the frames, which are ordered by it. `sums`: named; what adds up, or counts."""
    buffer: list[pl.DataFrame] = []
    spread = 0
    for batch in frame.collect_batches(chunk_size=_BATCH, maintain_order=False, engine="streaming"):
        buffer.append(batch.group_by(KEY).agg(sums))
        if sum(map(len, buffer)) > _MOST_SUMS:
            buffer = [_added(buffer)]
            if len(buffer[0]) > _MOST_SUMS // 2:
                _spread(buffer.pop(), scratch, spread)
                spread += 1
    if not spread:
        yield from [_added(buffer)] if buffer else []
        return
    if buffer:
        _spread(_added(buffer), scratch, spread)
    for part in sorted(scratch.iterdir()):
        yield _added([pl.read_parquet(path) for path in sorted(part.iterdir())])
        for path in part.iterdir():
            path.unlink()
        part.rmdir()


def _added(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by(KEY).agg(pl.all().sum()).sort(KEY)


def _spread(sums: pl.DataFrame, scratch: Path, number: int) -> None:
    """A key lies in the same file's folder each time."""
    place = "key.part"
    for (part,), some in sums.with_columns((pl.col(KEY).hash() % _FILES).alias(place)).partition_by(place, as_dict=True).items():
        folder = scratch / f"{part:02}"
        folder.mkdir(parents=True, exist_ok=True)
        some.drop(place).write_parquet(folder / f"{number}.parquet", compression="lz4")
