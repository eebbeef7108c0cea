"""Replay: older rows that a warm run keeps, and likes that a refit withholds.

`past.parquet`: older rows that the line may train on, in the format of training rows. `held.parquet`: likes that no model of the line
trains on, to measure forgetting. `withhold` chooses them from the holdout at the refit; without a refit, half of the holdout's likes are
taken. Both are uniform samples by a hash of the row, so a parent's sample plus its rows gives the sample of all rows.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from pipelines.data.stable_hash import stable_hash
from pipelines.features.prepared import Prepared
from pipelines.stages.runner import Context
from shared.contracts.refit import REFIT

PAST, HELD = "past.parquet", "held.parquet"
MOST_PAST, MOST_HELD = 1_000_000, 2_000
"""Maximum numbers of rows."""
_PAIR = ["user", "item"]
_FACTORS = (0xD6E8FEB86659FD93, 0x9FB21C651E98DF25, 0xA24BAED4963EE407)
"""Odd, so that sums of products (modulo 2**64) differ between rows."""


def held_out(context: Context, train: pl.LazyFrame) -> Path:
    """Writes likes from the holdouts of the parent's line that were new to their users and aren't trained on now."""
    parts = [pl.scan_parquet(context.fetch("parent", HELD))] if context.has("parent", HELD) else []
    if not context.has("parent", REFIT):
        there = _new_likes(*(pl.scan_parquet(context.fetch("parent", f"{name}.parquet")) for name in ("holdout", "history")))
        parts.append(there.filter(stable_hash(pl.col("user") * 3 + pl.col("item")) % 2 == 0))
    likes = pl.concat(parts).unique(_PAIR, keep="first").join(train.select(_PAIR), on=_PAIR, how="anti")
    path = context.out(HELD)
    drawn(likes, MOST_HELD, 0).collect(engine="streaming").write_parquet(path)
    return path


def withhold(train: pl.LazyFrame, holdout: pl.LazyFrame, history: pl.LazyFrame, before: pl.LazyFrame | None) -> pl.DataFrame:
    """Returns the likes that a refit doesn't learn: those of the line (`before`) and new ones, at most a tenth of the holdout's likes.
    Takes one like per user, and only if the user and the item have other rows."""
    rows = pl.concat([part.select(*_PAIR) for part in (train, holdout)])
    several = rows.group_by("user").agg(pl.col("item").n_unique()).filter(pl.col("item") > 1)
    likes = int(holdout.filter(pl.col("label") == 1).select(pl.len()).collect(engine="streaming").item())
    free = _new_likes(holdout, history).join(several, on="user", how="semi").join(train.select("item").unique(), on="item", how="semi")
    new = drawn(free, likes, 0).unique("user", keep="first", maintain_order=True).head(min(likes // 10, MOST_HELD))
    parts = [new] if before is None else [before.select(*_PAIR, "time"), new]
    return drawn(pl.concat(parts, how="vertical_relaxed").unique(_PAIR, keep="first", maintain_order=True), MOST_HELD, 0).collect()


def exclude_pairs(rows: pl.LazyFrame, withheld: pl.DataFrame) -> pl.LazyFrame:
    return rows.join(withheld.lazy().select(_PAIR), on=_PAIR, how="anti", maintain_order="left")


def _new_likes(holdout: pl.LazyFrame, history: pl.LazyFrame) -> pl.LazyFrame:
    """Returns the holdout's likes that their users had not liked before."""
    likes = holdout.filter(pl.col("label") == 1).select(*_PAIR, "time")
    return likes.join(history.filter(pl.col("before") == 1), on=_PAIR, how="anti")


def past_users(context: Context) -> pl.LazyFrame:
    """Returns the users of the parent's rows: each needs a row in the table of users."""
    return pl.concat([part.select("user") for part in _rows(context)]).unique()


def past(context: Context, ready: Prepared, held_path: Path) -> Path:
    """Writes the parent's rows with the features of their own time and row numbers of this run's tables."""
    rows = pl.concat(_rows(context), how="diagonal").join(pl.scan_parquet(held_path).select(_PAIR), on=_PAIR, how="anti")
    path = context.out(PAST)
    ready.placed(drawn(rows, MOST_PAST, 0)).sink_parquet(path, row_group_size=65_536, compression_level=1)
    return path


def drawn(rows: pl.LazyFrame, most: int, seed: int) -> pl.LazyFrame:
    """Draws a uniform, reproducible sample of at most `most` rows."""
    row = pl.lit(seed * 0x9E3779B97F4A7C15 % 2**64, pl.UInt64)
    for name, factor in zip((*_PAIR, "time"), _FACTORS, strict=True):
        row = row + pl.col(name).cast(pl.Int64).reinterpret(signed=False) * pl.lit(factor, pl.UInt64)
    order = stable_hash(row.reinterpret(signed=True)).alias("~drawn")
    return rows.with_columns(order).sort("~drawn", *_PAIR, "time").head(most).drop("~drawn")


def with_past(rows: Path, past: Path, share: float, seed: int, path: Path) -> int:
    """Writes the training rows with the given share of older rows; returns the number of older rows."""
    new, older = pl.scan_parquet(rows), pl.scan_parquet(past)
    wanted = round(int(new.select(pl.len()).collect().item()) * share / (1 - share))
    names = new.collect_schema().names()
    if "weight" in names:  # older rows have none if the parent's spec had no weights
        weight = pl.col("weight").fill_null(1) if "weight" in older.collect_schema() else pl.lit(1, pl.Float32)
        older = older.with_columns(weight=weight)
    replayed = drawn(older, wanted, seed + 1).select(names)
    pl.concat([new, replayed]).sink_parquet(path, row_group_size=65_536, compression_level=1)
    return min(wanted, int(older.select(pl.len()).collect().item()))


def _rows(context: Context) -> list[pl.LazyFrame]:
    """Returns the parent's rows; with a refit, its training rows contain the rest of its holdout."""
    wanted = (PAST, "train.parquet") if context.has("parent", REFIT) else (PAST, "train.parquet", "holdout.parquet")
    names = [name for name in wanted if context.has("parent", name)]
    return [pl.scan_parquet(context.fetch("parent", name)) for name in names]
