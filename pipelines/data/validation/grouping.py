"""Sums by key in bounded memory, whatever the numbers of rows and keys.

Batches are summed one by one; above the limit, sums are spread over files by a hash of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

KEY = "key"
_BATCH = 500_000
_MOST_SUMS = 500_000
"""Approximate maximum of sums in memory."""
_FILES = 64


def grouped(frame: pl.LazyFrame, sums: Sequence[pl.Expr], scratch: Path) -> Iterator[pl.DataFrame]:
    """Yields frames of sums by column `key`, sorted; each key is in one frame. `sums`: named expressions whose results add up."""
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
    """Writes sums to folders by hash; a key's folder is always the same."""
    place = "key.part"
    for (part,), some in sums.with_columns((pl.col(KEY).hash() % _FILES).alias(place)).partition_by(place, as_dict=True).items():
        folder = scratch / f"{part:02}"
        folder.mkdir(parents=True, exist_ok=True)
        some.drop(place).write_parquet(folder / f"{number}.parquet", compression="lz4")
