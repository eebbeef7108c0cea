"""Repeated interactions and users with few of them are left out, and counted."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.dedup import frequent, one_per_pair, thin
from shared.contracts.data import Interactions

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60)


def _frame(pairs: list[tuple[int, int]], times: list[float] | None = None) -> pl.LazyFrame:
    found = pl.LazyFrame(pairs, schema={"user": pl.Int64, "item": pl.Int64}, orient="row")
    return found.with_columns(time=pl.Series(times or [float(n) for n in range(len(pairs))], dtype=pl.Float64))


def _core(pairs: list[tuple[int, int]], least: tuple[int, int]) -> list[tuple[int, int]]:
    """By hand: what has too few goes, one after the other."""
    while True:
        users, items = Counter(user for user, _ in pairs), Counter(item for _, item in pairs)
        kept = [(user, item) for user, item in pairs if users[user] >= least[0] and items[item] >= least[1]]
        if kept == pairs:
            return kept
        pairs = kept


@given(pairs=PAIRS, least=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_what_is_left_has_enough_on_both_sides_and_nothing_else_went(pairs: list[tuple[int, int]], least: tuple[int, int]) -> None:
    found = frequent(_frame(pairs), {"user": least[0], "item": least[1]}).collect()
    assert list(found.select("user", "item").iter_rows()) == _core(pairs, least)


@given(pairs=PAIRS, times=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=60, max_size=60), keep=st.sampled_from(["first", "last"]))
def test_one_interaction_of_each_pair_is_kept_sorted_by_user_and_time(pairs: list[tuple[int, int]], times: list[float], keep: str) -> None:
    times = times[: len(pairs)]
    found = one_per_pair(_frame(pairs, times).with_row_index("row"), keep).collect()  # type: ignore[arg-type]
    best = min if keep == "first" else max
    expected = {pair: best((times[n], n) for n, one in enumerate(pairs) if one == pair) for pair in pairs}
    assert {(user, item): (time, row) for row, user, item, time in found.iter_rows()} == expected
    assert list(zip(found["user"], found["time"], strict=True)) == sorted(zip(found["user"], found["time"], strict=True))


@pytest.mark.requirement("N-02")
def test_users_with_fewer_than_twenty_are_dropped_duplicates_removed_and_both_counted() -> None:
    pairs = [(1, n) for n in range(20)] + [(1, 3)] * 5 + [(2, n) for n in range(19)] + [(2, 4)] * 9
    thinned = thin(_frame(pairs), Interactions(uri="x", duplicates="last", min_interactions=20))  # type: ignore[arg-type]
    found = thinned.frame.collect()
    assert found["user"].unique().to_list() == [1] and len(found) == 20
    assert found.filter(pl.col("item") == 3)["time"].item() == 24, "the last of them is kept"
    assert found["time"].is_sorted()
    assert thinned.facts == {"duplicates": 14, "too_few": 19}
    assert len(found) + sum(thinned.facts.values()) == len(pairs)


def test_by_default_every_row_is_used() -> None:
    thinned = thin(_frame([(1, 1), (1, 1)]), Interactions(uri="x"))
    assert thinned.facts == {} and len(thinned.frame.collect()) == 2


def test_what_the_parent_has_learned_from_counts_for_a_warm_run() -> None:
    known = pl.LazyFrame({"user": [1, 1, 2], "item": [7, 8, 7]})
    found = frequent(_frame([(1, 8), (1, 9), (2, 9), (3, 9)]), {"user": 3}, known).collect()
    assert found["user"].to_list() == [1, 1], "two pairs and a new one; a pair that comes again counts once"
