"""Days of events as Parquet: written from the platform's dumps, and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from pipelines.data.sources import readable
from shared.contracts.archive import COLUMNS, KEYS, EventTable, Kind
from shared.domain.errors import BadData

_DUMPED: dict[Kind, pl.DataType] = {
    "int32": pl.Int32(),
    "int64": pl.Int64(),
    "float": pl.Float64(),
    "text": pl.String(),
    "truth": pl.Boolean(),
    "moment": pl.Int64(),
    "ints": pl.List(pl.Int64()),
    "floats": pl.List(pl.Float64()),
    "texts": pl.List(pl.String()),
}
_ROW_GROUP = 65_536


def unwritten(table: EventTable, name: str, dump: Path, parts: Sequence[Path]) -> pl.DataFrame:
    """Returns the rows of a day's dump that its parts lack, oldest first."""
    with readable(name):
        rows = read_dump(table, dump)
    key = KEYS[table]
    if parts:
        written_keys = pl.concat([pl.read_parquet(path, columns=[key]) for path in parts])
        strange = written_keys.join(rows, on=key, how="anti")
        if len(strange):
            raise BadData(f"{name}: the database lacks {len(strange):,} rows that were written before; is it an older copy?")
        rows = rows.join(written_keys, on=key, how="anti")
    return rows.sort("at", key)


def read_dump(table: EventTable, dump: Path | None) -> pl.DataFrame:
    """Reads a day's dump with the columns of a part; no rows without a dump."""
    schema = {column: _DUMPED[kind] for column, kind in COLUMNS[table].items()}
    empty = dump is None or not dump.stat().st_size
    rows = pl.DataFrame(schema=schema) if dump is None or empty else pl.read_ndjson(dump, schema=schema)
    moments = [column for column, kind in COLUMNS[table].items() if kind == "moment"]
    return rows.with_columns(pl.col(moments).cast(pl.Datetime("us", "UTC")))


def write_part(rows: pl.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(path, compression="zstd", row_group_size=_ROW_GROUP)


def day_of(parts: Sequence[Path]) -> pl.LazyFrame:
    """Returns a day's interactions in the log's order, with the columns and values of an export."""
    columns = ("seq", "user", "item", "value", "kind", "at", "user_id", "item_id")  # later parts may have further columns
    events = pl.concat([_with_ids(pl.scan_parquet(path)).select(columns) for path in parts]).sort("at", "seq")
    # polars divides by a constant with a multiplication, which is off by a bit
    time = pl.col("at").dt.epoch("us").map_batches(lambda at: pl.Series(at.to_numpy() / 1e6), pl.Float64)
    return events.select("user", "item", "value", time.alias("time"), "kind", "user_id", "item_id")


def _with_ids(part: pl.LazyFrame) -> pl.LazyFrame:
    """Adds the columns of text ids to a part that was written before they existed."""
    missing = {"user_id", "item_id"} - set(part.collect_schema().names())
    return part.with_columns(pl.lit(None, pl.String).alias(name) for name in sorted(missing)) if missing else part
