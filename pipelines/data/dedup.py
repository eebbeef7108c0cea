"""Selects the interactions to use: one per user-item pair if the spec says so, and only users and items with enough interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from shared.contracts.data import Interactions

_ROW, _BEST = "thinning.row", "thinning.best"
"""No data column has these names, because of the dots."""
_PAIR = ("user", "item")


@dataclass(frozen=True)
class Deduplicated:
    """Selected interactions. `facts`: number of rows dropped by each rule of the spec."""

    frame: pl.LazyFrame
    facts: dict[str, int]


def thin(frame: pl.LazyFrame, settings: Interactions, parent_pairs: pl.LazyFrame | None = None) -> Deduplicated:
    """Applies the spec's rules. `parent_pairs`: pairs that a warm run's parent has learned; they count as interactions."""
    facts = {}
    if settings.duplicates != "all":
        before = _rows(frame)
        frame = one_per_pair(frame, settings.duplicates)
        facts["duplicates"] = before - _rows(frame)
    fewest = {
        key: least for key, least in (("user", settings.min_interactions.user), ("item", settings.min_interactions.item)) if least > 1
    }
    if fewest:
        before = _rows(frame)
        frame = frequent(frame, fewest, parent_pairs)
        facts["too_few"] = before - _rows(frame)
    return Deduplicated(frame, facts)


def one_per_pair(frame: pl.LazyFrame, keep: Literal["first", "last"]) -> pl.LazyFrame:
    """Keeps the oldest or newest interaction of each pair; for equal times the first or last in the data. Sorted by user and time."""
    rows, time, row = frame.with_row_index(_ROW), pl.col("time"), pl.col(_ROW)
    best = rows.group_by(_PAIR).agg((time.max() if keep == "last" else time.min()).alias(_BEST))
    tied = rows.join(best, on=_PAIR).filter(time == pl.col(_BEST))
    row_numbers = tied.group_by(_PAIR).agg(row.max() if keep == "last" else row.min()).select(_ROW)
    return rows.join(row_numbers, on=_ROW, how="semi").sort("user", "time", _ROW).drop(_ROW)


def frequent(frame: pl.LazyFrame, fewest: dict[str, int], parent_pairs: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """Keeps users and items with enough rows; repeats, as each drop lowers other counts. Parent pairs missing from the frame count too."""
    pairs = frame.select(_PAIR)
    older = parent_pairs.select(_PAIR).join(pairs, on=_PAIR, how="anti") if parent_pairs is not None else None
    gone: dict[str, pl.Series] = {}
    while True:
        left = pairs if older is None else pl.concat([pairs, older])
        few = {key: _few(_without(left, gone), key, least) for key, least in fewest.items()}
        if not any(len(keys) for keys in few.values()):
            return _without(frame, gone)
        gone = {key: pl.concat([gone[key], keys]) if key in gone else keys for key, keys in few.items()}


def _few(pairs: pl.LazyFrame, key: str, least: int) -> pl.Series:
    counted = pairs.group_by(key).len().filter(pl.col("len") < least).select(pl.col(key).sort())
    return counted.collect(engine="streaming")[key]


def _without(frame: pl.LazyFrame, gone: dict[str, pl.Series]) -> pl.LazyFrame:
    for key, keys in gone.items():
        frame = frame.filter(~pl.col(key).is_in(keys.implode()))
    return frame


def _rows(frame: pl.LazyFrame) -> int:
    return int(frame.select(pl.len()).collect(engine="streaming").item())
