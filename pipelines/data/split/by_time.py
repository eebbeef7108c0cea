"""Time split: the newest stretch is the holdout, so that models are judged on the future."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from pipelines.data.split.parts import SplitRows
from shared.domain.errors import BadData


def split_by_time(frame: pl.LazyFrame, test: timedelta | float, name: str) -> SplitRows:
    """Splits at one moment: rows of equal time stay together. Both sides need a positive."""
    oldest, newest = frame.select(oldest=pl.col("time").min(), newest=pl.col("time").max()).collect(engine="streaming").row(0)
    if isinstance(test, timedelta):
        cut = newest - test.total_seconds()
        train, holdout = frame.filter(pl.col("time") <= cut), frame.filter(pl.col("time") > cut)
    else:
        cut = _cut(frame, test, name)
        train, holdout = frame.filter(pl.col("time") < cut), frame.filter(pl.col("time") >= cut)
    return SplitRows(train, holdout, float(cut)).checked(name, f"the data spans {_span(newest - oldest)}; choose another share")


def _cut(frame: pl.LazyFrame, test: float, name: str) -> float:
    """Returns the first time of the holdout: of the two edges of the tie at the requested share, the nearer one."""
    place = ((1 - test) * pl.len()).floor().cast(pl.Int64).clip(0, pl.len() - 1)
    rows, tie = frame.select(pl.len(), tie=pl.col("time").sort().gather(place).first()).collect(engine="streaming").row(0)
    time = pl.col("time")
    facts = frame.select(
        (time >= tie).sum().alias("with"), (time > tie).sum().alias("without"), time.filter(time > tie).min().alias("next")
    )
    with_tie, without, following = facts.collect(engine="streaming").row(0)
    edges = [(holdout_rows, at) for holdout_rows, at in ((with_tie, tie), (without, following)) if 0 < holdout_rows < rows]
    holdout_rows, cut = min(edges, key=lambda edge: abs(edge[0] / rows - test), default=(rows, tie))
    if holdout_rows == rows or holdout_rows > 2 * max(1.0, test * rows):
        left = "leaves no rows for train" if holdout_rows == rows else "cannot be met"
        raise BadData(
            f"{name}: split.test {left}: {test:.1%} would hold out {holdout_rows / rows:.1%} of the rows, because "
            f"{with_tie - without:,} of {rows:,} have the same time; write finer times, or choose another split.test"
        )
    return float(cut)


def _span(seconds: float) -> str:
    return f"{seconds / 86400:,.1f} days" if seconds >= 86400 else f"{seconds:,.0f} seconds"
