"""What a warm run keeps of the time before its parent's snapshot, so that it needn't forget it; and what a refit may not learn.

`past.parquet`: rows that its line has trained on, or held out and now may train on, as rows to train on are. `held.parquet`: likes that
its line has held out and that none of it is ever to train on: what is forgotten is told by them. A refit learns the rest of the holdout, so
it chooses them (`withhold`); of a parent without a refit they are half of the likes of its holdout. Both files are even samples of all that
there was, drawn by a hash of the row: a run that has its parent's sample and its parent's rows alone draws what one would that has seen
everything.
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
"""Rows that are kept at most."""
_PAIR = ["user", "item"]
_FACTORS = (0xD6E8FEB86659FD93, 0x9FB21C651E98DF25, 0xA24BAED4963EE407)
"""Odd ones, so that sums of products tell rows apart; they wrap around."""


def held_out(context: Context, train: pl.LazyFrame) -> Path:
    """Of a warm run: likes of its parent's line that were held out and new to their users, without what is trained on now."""
    parts = [pl.scan_parquet(context.fetch("parent", HELD))] if context.has("parent", HELD) else []
    if not context.has("parent", REFIT):
        there = _new_likes(*(pl.scan_parquet(context.fetch("parent", f"{name}.parquet")) for name in ("holdout", "history")))
        parts.append(there.filter(stable_hash(pl.col("user") * 3 + pl.col("item")) % 2 == 0))
    likes = pl.concat(parts).unique(_PAIR, keep="first").join(train.select(_PAIR), on=_PAIR, how="anti")
    path = context.out(HELD)
    drawn(likes, MOST_HELD, 0).collect(engine="streaming").write_parquet(path)
    return path


def withhold(train: pl.LazyFrame, holdout: pl.LazyFrame, history: pl.LazyFrame, before: pl.LazyFrame | None) -> pl.DataFrame:
    """The likes that a refit doesn't learn: those of its line (`before`), and new ones, at most a tenth of the holdout's. Of a user it is
    one like, and only where other rows are left of the user and of the item."""
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
    """Of the holdout, those that their users had not liked before."""
    likes = holdout.filter(pl.col("label") == 1).select(*_PAIR, "time")
    return likes.join(history.filter(pl.col("before") == 1), on=_PAIR, how="anti")


def past_users(context: Context) -> pl.LazyFrame:
    """Whom its rows are of: they want a row in the table of users."""
    return pl.concat([part.select("user") for part in _rows(context)]).unique()


def past(context: Context, ready: Prepared, held_path: Path) -> Path:
    """Its rows, each with its own moment's features, as they were; and with its places in this run's tables."""
    rows = pl.concat(_rows(context), how="diagonal").join(pl.scan_parquet(held_path).select(_PAIR), on=_PAIR, how="anti")
    path = context.out(PAST)
    ready.placed(drawn(rows, MOST_PAST, 0)).sink_parquet(path, row_group_size=65_536, compression_level=1)
    return path


def drawn(rows: pl.LazyFrame, most: int, seed: int) -> pl.LazyFrame:
    """So many of them, evenly; always the same ones."""
    row = pl.lit(seed * 0x9E3779B97F4A7C15 % 2**64, pl.UInt64)
    for name, factor in zip((*_PAIR, "time"), _FACTORS, strict=True):
        row = row + pl.col(name).cast(pl.Int64).reinterpret(signed=False) * pl.lit(factor, pl.UInt64)
    order = stable_hash(row.reinterpret(signed=True)).alias("~drawn")
    return rows.with_columns(order).sort("~drawn", *_PAIR, "time").head(most).drop("~drawn")


def with_past(rows: Path, past: Path, share: float, seed: int, path: Path) -> int:
    """Writes the rows to train on with so large a share of older ones, and tells how many these are."""
    new, older = pl.scan_parquet(rows), pl.scan_parquet(past)
    wanted = round(int(new.select(pl.len()).collect().item()) * share / (1 - share))
    names = new.collect_schema().names()
    replayed = drawn(older, wanted, seed + 1).select(names)
    pl.concat([new, replayed]).sink_parquet(path, row_group_size=65_536, compression_level=1)
    return min(wanted, int(older.select(pl.len()).collect().item()))


def _rows(context: Context) -> list[pl.LazyFrame]:
    """A refitted parent's rows to train on have the rest of its holdout among them."""
    wanted = (PAST, "train.parquet") if context.has("parent", REFIT) else (PAST, "train.parquet", "holdout.parquet")
    names = [name for name in wanted if context.has("parent", name)]
    return [pl.scan_parquet(context.fetch("parent", name)) for name in names]
