"""The ETL benchmark's work in polars, as one would write it by hand: `python etl_polars.py ROWS.parquet FOLDER`.

Two passes over the file by the streaming engine: one for vocabularies and sums, one that writes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import polars as pl

FOLDS, SMOOTHING, BUCKETS, DAY = 5, 20.0, 10_000, 86_400
PRIME = 2**31 - 1


def hashed(buckets: int, *values: pl.Expr) -> pl.Expr:
    mixed = values[0] % PRIME
    for value in values[1:]:
        mixed = (mixed * 1_103_515_245 + value % PRIME + 12_345) % PRIME
    return (mixed * 1_812_433_253 + 12_345) % PRIME % buckets


def main() -> None:
    rows, folder = sys.argv[1:]
    began = time.monotonic()
    frame = pl.scan_parquet(rows).with_columns(
        label=(pl.col("rating") >= 4).cast(pl.Int8),
        fold=hashed(FOLDS, pl.col("userId"), pl.col("movieId"), pl.col("timestamp")).cast(pl.Int8),
        hour=pl.col("timestamp") // 3600 % 24 + 2,
    )
    users, films, genres, sums = pl.collect_all(
        [
            coded(frame, "userId"),
            coded(frame, "movieId"),
            coded(frame.select(pl.col("genres").explode(empty_as_null=False)), "genres"),
            frame.group_by("movieId", "fold").agg(pl.col("label").sum().cast(pl.Float64).alias("sum"), pl.len().alias("rows")),
        ],
        engine="streaming",
    )
    out = (
        frame.join(users.lazy(), on="userId", how="left")
        .join(films.lazy().drop("movieId_count"), on="movieId", how="left")
        .join(encoded(sums).lazy(), on=["movieId", "fold"], how="left")
        .with_columns(
            pl.col("genres").list.eval(
                pl.element().replace_strict(genres["genres"], genres["genres_code"], default=1, return_dtype=pl.Int32)
            ),
            (pl.col("timestamp") - pl.col("timestamp").shift(1).over("userId", order_by="timestamp"))
            .cast(pl.Float32)
            .fill_null(0.0)
            .alias("timestamp_lag"),
            *waves("timestamp_day", pl.col("timestamp") % DAY, DAY),
            *waves("timestamp_week", (pl.col("timestamp") % (7 * DAY) + 3 * DAY) % (7 * DAY), 7 * DAY),
        )
        .with_columns((pl.col("genres").cast(pl.List(pl.Int64)) * 64 + pl.col("hour")).list.eval(crossed()).alias("genres_x_hour"))
    )
    out.drop("userId", "movieId", "rating", "fold", "hour").sink_parquet(
        Path(folder) / "rows.parquet", compression_level=1, row_group_size=65_536
    )  # as Eyas writes
    sys.stdout.write(json.dumps({"seconds": time.monotonic() - began}) + "\n")


def coded(frame: pl.LazyFrame, column: str) -> pl.LazyFrame:
    """Codes from 2 on, the most frequent first and equal ones by value."""
    sizes = frame.group_by(column).agg(pl.len().alias(f"{column}_count"))
    ordered = sizes.sort([f"{column}_count", column], descending=[True, False]).with_row_index(f"{column}_code", 2)
    return ordered.with_columns(pl.col(f"{column}_code").cast(pl.Int32), pl.col(f"{column}_count").cast(pl.Float32))


def encoded(sums: pl.DataFrame) -> pl.DataFrame:
    """Of each film the mean label of all other folds."""
    names = ("sum", "rows")
    total, rows = (pl.col(name).sum().over("movieId") - pl.col(name) for name in names)
    mean = (sums["sum"].sum() - pl.col("sum").sum().over("fold")) / (sums["rows"].sum() - pl.col("rows").sum().over("fold"))
    return sums.select("movieId", "fold", ((total + SMOOTHING * mean) / (rows + SMOOTHING)).cast(pl.Float32).alias("movieId_te"))


def waves(name: str, within: pl.Expr, seconds: int) -> list[pl.Expr]:
    angle = within * (6.283185307179586 / seconds)
    return [angle.sin().cast(pl.Float32).alias(f"{name}_sin"), angle.cos().cast(pl.Float32).alias(f"{name}_cos")]


def crossed() -> pl.Expr:
    both = pl.element()
    return (hashed(BUCKETS, both // 64, both % 64) + 2).cast(pl.Int32)


if __name__ == "__main__":
    main()
