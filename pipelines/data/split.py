"""The time split: the newest stretch is the holdout, so that a model is judged on what it couldn't have seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import polars as pl

from shared.domain.errors import BadData


@dataclass(frozen=True)
class Parts:
    train: pl.LazyFrame
    holdout: pl.LazyFrame
    cut: float


def split_by_time(frame: pl.LazyFrame, test: timedelta | float, name: str) -> Parts:
    """Splits at one moment: rows of one time are never on both sides. Both sides need a positive."""
    times = frame.select(
        oldest=pl.col("time").min(),
        newest=pl.col("time").max(),
        at_share=pl.col("time").sort().gather(((1 - test) * pl.len()).floor().cast(pl.Int64).clip(0, pl.len() - 1)).first()
        if not isinstance(test, timedelta)
        else pl.lit(None, dtype=pl.Float64),
    )
    oldest, newest, at_share = times.collect(engine="streaming").row(0)
    cut = newest - test.total_seconds() if isinstance(test, timedelta) else at_share
    if isinstance(test, timedelta):
        train, holdout = frame.filter(pl.col("time") <= cut), frame.filter(pl.col("time") > cut)
    else:
        train, holdout = frame.filter(pl.col("time") < cut), frame.filter(pl.col("time") >= cut)
    for side, part in (("train", train), ("holdout", holdout)):
        _check(part, side, name, newest - oldest)
    return Parts(train, holdout, float(cut))


def _check(part: pl.LazyFrame, side: str, name: str, span: float) -> None:
    rows, positives = part.select(pl.len(), pl.col("label").cast(pl.Int64).sum()).collect(engine="streaming").row(0)
    if not rows:
        raise BadData(f"{name}: split.test leaves no rows for {side}: the data spans {_span(span)}; choose a share that fits")
    if not positives:
        raise BadData(f"{name}: split.test leaves no positive among the {rows:,} rows for {side}")


def _span(seconds: float) -> str:
    return f"{seconds / 86400:,.1f} days" if seconds >= 86400 else f"{seconds:,.0f} seconds"
