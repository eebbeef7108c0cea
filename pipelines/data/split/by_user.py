"""Splits by user: each user's newest interaction, or all interactions of some users."""

from __future__ import annotations

import polars as pl

from pipelines.data.split.parts import SplitRows
from pipelines.data.stable_hash import stable_hash

_PLACES = 1_000_000
_ROW = "split.row"
"""No data column has this name, because of the dot."""


def leave_last_out(frame: pl.LazyFrame, name: str) -> SplitRows:
    """Holds out each user's newest interaction. Ties: the largest item key, then the last in the data. A user's only interaction stays in
    train, where the user can be learned."""
    rows = frame.with_row_index(_ROW)
    several = rows.group_by("user").agg(pl.len().alias("rows"), pl.col("time").max().alias("newest")).filter(pl.col("rows") > 1)
    candidates = rows.join(several, on="user").filter(pl.col("time") == pl.col("newest")).select("user", "item", _ROW)
    newest = candidates.sort("item", _ROW).unique("user", keep="last").select(_ROW)
    train = rows.join(newest, on=_ROW, how="anti", maintain_order="left").drop(_ROW)
    holdout = rows.join(newest, on=_ROW, how="semi", maintain_order="left").drop(_ROW)
    return SplitRows(train, holdout).checked(name, "no user has two interactions")


def split_at_random(frame: pl.LazyFrame, share: float, name: str) -> SplitRows:
    """Holds out a share of the users by a hash of their keys, independent of other data and of order."""
    in_holdout = stable_hash(pl.col("user")) % _PLACES < round(share * _PLACES)
    return SplitRows(frame.filter(~in_holdout), frame.filter(in_holdout)).checked(name, "too few users; choose a larger share")
