"""Whatever the rows and the way of splitting: none is lost, none is in two parts, and nobody is judged on what was learned from."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipelines.data.split import split
from pipelines.data.stable_hash import stable_hash
from shared.contracts.split import Split
from shared.domain.errors import BadData

ROW = st.tuples(st.integers(-3, 6), st.integers(0, 4), st.sampled_from([0.0, 1.0, 1.0, 2.5, 7.0]), st.integers(0, 1))
WAYS = [{"by": "time"}, {"by": "leave_last_out"}, {"by": "random", "test": "40%"}]


def _frame(rows: list[tuple[int, int, float, int]]) -> pl.LazyFrame:
    schema = {"user": pl.Int64, "item": pl.Int64, "time": pl.Float64, "label": pl.Int8}
    return pl.LazyFrame(rows, schema=schema, orient="row").with_row_index("row")


def _parts(rows: list[tuple[int, int, float, int]], how: dict[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    try:
        parts = split(_frame(rows), Split.model_validate(how), "file")
    except BadData:
        assume(False)
    return parts.train.collect(engine="streaming"), parts.holdout.collect(engine="streaming")


@pytest.mark.parametrize("how", WAYS)
@settings(max_examples=25)
@given(rows=st.lists(ROW, min_size=2, max_size=40))
def test_every_row_is_in_exactly_one_part(how: dict[str, str], rows: list[tuple[int, int, float, int]]) -> None:
    train, holdout = _parts(rows, how)
    assert sorted([*train["row"], *holdout["row"]]) == list(range(len(rows)))


@settings(max_examples=25)
@given(rows=st.lists(ROW, min_size=2, max_size=40))
def test_leave_last_out_holds_out_one_row_a_user_and_nothing_later_is_learned_from(rows: list[tuple[int, int, float, int]]) -> None:
    train, holdout = _parts(rows, {"by": "leave_last_out"})
    users = [row[0] for row in rows]
    assert sorted(holdout["user"]) == sorted({user for user in users if users.count(user) > 1})
    both = train.join(holdout, on="user", suffix="_held")
    assert (both["time"] <= both["time_held"]).all()


@settings(max_examples=25)
@given(rows=st.lists(ROW, min_size=2, max_size=30, unique=True), data=st.data())
def test_leave_last_out_chooses_the_same_rows_in_whatever_order_they_come(
    rows: list[tuple[int, int, float, int]], data: st.DataObject
) -> None:
    rows = [(user, item, time, 1) for user, item, time, _ in dict.fromkeys((u, i, t, 1) for u, i, t, _ in rows)]
    shuffled = data.draw(st.permutations(rows))
    one, other = (_parts(each, {"by": "leave_last_out"})[1].drop("row").sort(pl.all()) for each in (rows, shuffled))
    assert one.equals(other)


@settings(max_examples=25)
@given(rows=st.lists(ROW, min_size=2, max_size=40), more=st.lists(ROW, max_size=40))
def test_a_random_split_keeps_each_user_on_one_side_for_ever(
    rows: list[tuple[int, int, float, int]], more: list[tuple[int, int, float, int]]
) -> None:
    how = {"by": "random", "test": "40%"}
    train, holdout = _parts(rows, how)
    later_train, later_holdout = _parts(rows + more, how)
    assert not {*train["user"]} & {*holdout["user"]}
    assert {*train["user"]} <= {*later_train["user"]} and {*holdout["user"]} <= {*later_holdout["user"]}


def test_a_random_split_holds_out_the_share_that_was_asked_for() -> None:
    frame = pl.LazyFrame({"user": range(100_000), "label": [1] * 100_000})
    parts = split(frame, Split(by="random", test=0.1), "file")
    assert abs(len(parts.holdout.collect()) - 10_000) < 300


def test_the_hash_is_splitmix64(subtests: pytest.Subtests) -> None:
    for key in [0, 1, -1, 12_345_678_901, 2**63 - 1, -(2**63)]:
        with subtests.test(key=key):
            whole = 2**64 - 1
            mixed = (key + 0x9E3779B97F4A7C15) & whole
            mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & whole
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & whole
            found = pl.LazyFrame({"key": [key]}).select(stable_hash(pl.col("key"))).collect(engine="streaming")
            assert found.item() == mixed ^ (mixed >> 31)


def test_a_split_that_leaves_nobody_is_refused() -> None:
    with pytest.raises(BadData, match=r"file: split\.test leaves no rows for holdout: no user has two interactions"):
        split(_frame([(1, 1, 1.0, 1), (2, 1, 1.0, 1)]), Split(by="leave_last_out"), "file")
    with pytest.raises(BadData, match="leaves no rows for holdout: too few users"):
        split(_frame([(1, 1, 1.0, 1), (1, 2, 1.0, 1)]), Split(by="random", test=0.0001), "file")
