"""Splits along users: the newest interaction of each, or everything of some of them."""

from __future__ import annotations

import polars as pl

from pipelines.data.split.parts import Parts
from pipelines.data.stable_hash import stable_hash

_PLACES = 1_000_000
_ROW = "split.row"
"""A name that no column has, for it has a dot."""


def leave_last_out(frame: pl.LazyFrame, name: str) -> Parts:
    """Each user's newest interaction is held out. Of several at one moment it is the one with the largest key of an item, and of equal
    ones the last in the data. A user's only one stays in train: nothing could be learned of the user otherwise."""
    rows = frame.with_row_index(_ROW)
    several = rows.group_by("user").agg(pl.len().alias("rows"), pl.col("time").max().alias("newest")).filter(pl.col("rows") > 1)
    candidates = rows.join(several, on="user").filter(pl.col("time") == pl.col("newest")).select("user", "item", _ROW)
    newest = candidates.sort("item", _ROW).unique("user", keep="last").select(_ROW)
    train = rows.join(newest, on=_ROW, how="anti", maintain_order="left").drop(_ROW)
    holdout = rows.join(newest, on=_ROW, how="semi", maintain_order="left").drop(_ROW)
    return Parts(train, holdout).checked(name, "no user has two interactions")


def split_at_random(frame: pl.LazyFrame, share: float, name: str) -> Parts:
    """A share of the users, by a hash of their keys: the same ones whatever else is in the data, and in whatever order."""
    in_holdout = stable_hash(pl.col("user")) % _PLACES < round(share * _PLACES)
    return Parts(frame.filter(~in_holdout), frame.filter(in_holdout)).checked(name, "there are too few users: choose a larger share")
