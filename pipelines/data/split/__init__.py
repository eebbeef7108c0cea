"""Splits interactions into training rows and holdout; each row is in exactly one part."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from pipelines.data.split.by_time import split_by_time
from pipelines.data.split.by_user import leave_last_out, split_pairs, split_users
from pipelines.data.split.parts import SplitRows
from shared.contracts.split import Split

__all__ = ["SplitRows", "split"]


def split(frame: pl.LazyFrame, how: Split, name: str) -> SplitRows:
    """Splits interactions: user, item, time, label and any further columns."""
    if how.by == "leave_last_out":
        return leave_last_out(frame, name)
    if how.by == "random":
        assert not isinstance(how.test, timedelta)  # excluded by the spec's validation
        return split_users(frame, how.test, name)
    if how.by == "pairs":
        assert not isinstance(how.test, timedelta)  # excluded by the spec's validation
        return split_pairs(frame, how.test, name)
    return split_by_time(frame, how.test, name)
