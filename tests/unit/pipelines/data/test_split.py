"""The newest stretch is held out, and no moment is on both sides."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from pipelines.data.split.by_time import split_by_time
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
    parts = split_by_time(_rows([1, 2, 3, 3, 3, 3]), 0.4, "file")
    assert _times(parts.train) == [1, 2]
    assert _times(parts.holdout) == [3, 3, 3, 3]


def test_a_duration_holds_out_the_newest_stretch() -> None:
    parts = split_by_time(_rows([0, 3600, 7200, 7201, 10800]), timedelta(hours=1), "file")
    assert _times(parts.holdout) == [7201, 10800]


def test_an_empty_side_is_refused(subtests: pytest.Subtests) -> None:
    for test, side in [(timedelta(days=2), "train"), (timedelta(0), "holdout")]:
        with subtests.test(side=side), pytest.raises(BadData, match=f"no rows for {side}"):
            split_by_time(_rows([0, 3600, 7200]), test, "file")


def test_a_side_without_a_positive_is_refused() -> None:
    with pytest.raises(BadData, match="no positive among the 2 rows for holdout"):
        split_by_time(_rows([1, 2, 3, 4], [1, 1, 0, 0]), 0.5, "file")


def test_the_cut_is_at_the_edge_of_a_tie_that_comes_nearer_to_the_share(subtests: pytest.Subtests) -> None:
    for tied, later, held in [(3, 3, [9, 9, 9]), (3, 2, [5, 5, 5, 9, 9]), (9, 3, [9, 9, 9]), (4, 1, [5, 5, 5, 5, 9])]:
        with subtests.test(tied=tied, later=later):
            earlier = [n / 100 for n in range(20 - tied - later)]
            parts = split_by_time(_rows([*earlier, *[5.0] * tied, *[9.0] * later]), 0.2, "file")
            assert sorted(_times(parts.holdout)) == held


def test_a_tie_that_would_swallow_the_training_rows_is_refused_with_both_shares() -> None:
    with pytest.raises(BadData, match=r"file: split.test cannot be met: 20.0% would hold out 98.6% .* 700 of 710 have the same time"):
        split_by_time(_rows([*range(10)] + [99] * 700), 0.2, "file")


def test_a_tie_of_all_rows_leaves_nothing_to_train_on() -> None:
    with pytest.raises(BadData, match=r"file: split.test leaves no rows for train: 20.0% would hold out 100.0%"):
        split_by_time(_rows([99] * 700), 0.2, "file")


def test_one_row_may_be_more_than_twice_a_tiny_share() -> None:
    assert _times(split_by_time(_rows([1, 2, 3, 4, 5]), 0.01, "file").holdout) == [5]
