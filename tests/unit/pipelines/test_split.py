"""The newest stretch is held out, and no moment is on both sides."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from pipelines.data.split import split_by_time
from shared.domain.errors import BadData


def _rows(times: list[float], labels: list[int] | None = None) -> pl.LazyFrame:
    return pl.LazyFrame({"time": times, "label": labels or [1] * len(times)}, schema={"time": pl.Float64, "label": pl.Int8})


def _times(part: pl.LazyFrame) -> list[float]:
    return part.collect()["time"].to_list()


def test_a_share_holds_out_the_newest_rows_in_whatever_order_they_come() -> None:
    parts = split_by_time(_rows([5, 1, 4, 2, 3, 9, 8, 7, 6, 10]), 0.2, "file")
    assert sorted(_times(parts.holdout)) == [9, 10]
    assert sorted(_times(parts.train)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_rows_of_one_moment_stay_together() -> None:
    parts = split_by_time(_rows([1, 2, 3, 3, 3, 3]), 0.3, "file")
    assert _times(parts.train) == [1, 2]
    assert _times(parts.holdout) == [3, 3, 3, 3]


def test_a_duration_holds_out_the_newest_stretch() -> None:
    parts = split_by_time(_rows([0, 3600, 7200, 7201, 10800]), timedelta(hours=1), "file")
    assert _times(parts.holdout) == [7201, 10800]


@pytest.mark.parametrize(("test", "side"), [(timedelta(days=2), "train"), (timedelta(0), "holdout")])
def test_an_empty_side_is_refused(test: timedelta, side: str) -> None:
    with pytest.raises(BadData, match=f"no rows for {side}"):
        split_by_time(_rows([0, 3600, 7200]), test, "file")


def test_a_side_without_a_positive_is_refused() -> None:
    with pytest.raises(BadData, match="no positive among the 2 rows for holdout"):
        split_by_time(_rows([1, 2, 3, 4], [1, 1, 0, 0]), 0.5, "file")
