"""Splits by user or by pair: each user's newest interaction, all interactions of some users, or some pairs of user and item."""

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


def split_users(frame: pl.LazyFrame, share: float, name: str) -> SplitRows:
    """Holds out a share of the users by a hash of their keys, independent of other data and of order."""
    return _split_by_hash(frame, stable_hash(pl.col("user")), share).checked(name, "too few users; choose a larger share")


def split_pairs(frame: pl.LazyFrame, share: float, name: str) -> SplitRows:
    """Holds out a share of the pairs of user and item by a hash of both: repeated pairs stay together."""
    pair = stable_hash(stable_hash(pl.col("user")).reinterpret(signed=True) ^ pl.col("item"))
    return _split_by_hash(frame, pair, share).checked(name, "too few pairs; choose a larger share")


def _split_by_hash(frame: pl.LazyFrame, hash: pl.Expr, share: float) -> SplitRows:
    in_holdout = hash % _PLACES < round(share * _PLACES)
    return SplitRows(frame.filter(~in_holdout), frame.filter(in_holdout))
