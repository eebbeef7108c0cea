"""Criteo's click logs: tab-separated; label, 13 counts and 26 hashed categories per row; files per day (`day_0`, ...) or `train.txt`.

The logs have no users, items or times: rows are read unchanged, with the day from the file's name.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipelines.data.spill import spill_chunks
from shared.domain.errors import BadData

COUNTS = tuple(f"i{n}" for n in range(1, 14))
CATEGORIES = tuple(f"c{n}" for n in range(1, 27))
_DAY = re.compile(r"day_(\d+)(?:\.gz)?")
_SCHEMA: dict[str, pl.DataType] = {
    "label": pl.Int8(), **dict.fromkeys(COUNTS, pl.Int64()), **dict.fromkeys(CATEGORIES, pl.String())
}  # fmt: skip
_PIECE = 32 << 20


def read_days(folder: Path, scratch: Path) -> dict[str, pl.LazyFrame]:
    days = {int(match[1]): path for path in folder.iterdir() if (match := _DAY.fullmatch(path.name))}
    if not days:
        days = {0: folder / "train.txt"}
    frames = [_day(path, scratch / f"day-{day}").with_columns(day=pl.lit(day, pl.Int64)) for day, path in sorted(days.items())]
    return {"interactions": pl.concat(frames)}


def _day(path: Path, scratch: Path) -> pl.LazyFrame:
    """Unpacks compressed files piece by piece, since polars can't scan them in place."""
    if path.suffix == ".gz":
        rows = spill_chunks(_unpacked(path), scratch, str(path)).frame
    else:
        rows = pl.scan_csv(path, separator="\t", has_header=False, schema=_SCHEMA, quote_char=None)
    return rows.with_columns(pl.col(CATEGORIES).str.to_integer(base=16, dtype=pl.Int64))


def _unpacked(path: Path) -> Iterator[pl.DataFrame]:
    rest = b""
    try:
        with gzip.open(path, "rb") as stream:
            while piece := stream.read(_PIECE):
                lines, _, rest = (rest + piece).rpartition(b"\n")
                if lines:
                    yield _read(lines)
    except (EOFError, gzip.BadGzipFile) as error:
        raise BadData(f"{path}: cannot be unpacked: {error}") from None
    if rest:
        yield _read(rest)


def _read(text: bytes) -> pl.DataFrame:
    return pl.read_csv(text, separator="\t", has_header=False, schema=_SCHEMA, quote_char=None)
