"""Point in time: over whole columns the same as, row by row, by definition."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipelines.features.asof import (
    AT,
    KEY,
    SINCE,
    ValidityPeriods,
    column_type,
    join_history,
    microseconds,
    read_history,
    stretches,
)
from services.featurestore.history import SqlFeatureHistory
from shared.contracts.online import OnlineColumn, View
from shared.domain.feature_values import StoredRow, instant, is_over, moment
from tests.support.databases import empty_engine
from tests.support.feature_histories import history_of

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
COLUMNS = (
    OnlineColumn(name="age", dtype="int64"),
    OnlineColumn(name="mean", dtype="float32"),
    OnlineColumn(name="town", dtype="string"),
    OnlineColumn(name="last", dtype="int64", width=2),
)
KEYS = some.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
TIMES = some.integers(-6, 6).map(lambda hours: START + hours * HOUR)
VALUES = some.fixed_dictionaries(
    {},
    optional={
        "age": some.integers(-(2**63), 2**63 - 1),
        "mean": some.floats(width=32, allow_nan=False, allow_infinity=False),
        "town": some.text(alphabet="aé日 ", max_size=3),
        "last": some.lists(some.one_of(some.none(), some.integers(-3, 3)), max_size=2).map(tuple),
    },
)
ROWS = some.lists(some.builds(StoredRow, KEYS, TIMES, VALUES), max_size=25)
ASKED = some.lists(some.tuples(KEYS, TIMES), max_size=25)
TTLS = some.sampled_from([None, timedelta(milliseconds=1), HOUR, 3 * HOUR])


def by_definition(rows: list[StoredRow], key: int, now: datetime, ttl: timedelta | None) -> dict[str, Any]:
    """The oracle: every row is looked at."""
    past = [row for row in rows if row.key == key and row.at <= now]
    best = max(past, key=lambda row: row.rank, default=None)
    return {} if best is None or is_over(best.at, ttl, now) else dict(best.values)


def unblanked(values: dict[str, Any]) -> dict[str, Any]:
    """A blank tells a served unit that there is no value."""
    return {name: value for name, value in values.items() if value not in ("", -(2**63))}


def columns(found: pl.DataFrame) -> list[dict[str, Any]]:
    """What is known, as values are held."""
    rows = found.select(one.name for one in COLUMNS).to_dicts()
    return [{name: tuple(one) if isinstance(one, list) else one for name, one in row.items() if one is not None} for row in rows]


@pytest.mark.requirement("G-08")
@settings(max_examples=80, deadline=None)
@given(ROWS, ASKED, TTLS)
def test_what_training_sees_is_what_counted_then(rows: list[StoredRow], asked: list[tuple[int, datetime]], ttl: timedelta | None) -> None:
    view = View(name="user", columns=COLUMNS, ttl=ttl)
    keys = pl.Series(sorted({key for key, _ in asked}), dtype=pl.Int64)
    nothing = [pl.lit(None, column_type(one)).alias(one.name) for one in COLUMNS]
    history, until = history_of(rows, view).lazy(), max((instant(at) for _, at in asked), default=0)
    joined = join_history(pl.DataFrame({"user": keys}).with_columns(nothing), "user", stretches(keys, history, view, until), history, view)
    frame = pl.DataFrame([(key, instant(at)) for key, at in asked], schema={"user": pl.Int64, "t": pl.Int64}, orient="row")
    places = frame.lazy().select(ValidityPeriods.of(joined["user"], joined[SINCE]).row("user", pl.col("t"))).collect().to_series()
    assert columns(joined[places]) == [unblanked(by_definition(rows, key, at, ttl)) for key, at in asked]


@pytest.mark.requirement("G-08")
@settings(max_examples=40, deadline=None)
@given(ROWS, ASKED, TTLS)
def test_training_and_the_history_say_the_same(rows: list[StoredRow], asked: list[tuple[int, datetime]], ttl: timedelta | None) -> None:
    history = SqlFeatureHistory(empty_engine())
    history.append("m", "user", rows)
    told = [dict(one.values) if one else {} for one in history.as_of("m", "user", asked, ttl)]
    assert told == [by_definition(rows, key, at, ttl) for key, at in asked]


@pytest.mark.requirement("G-08")
def test_an_exported_history_reads_as_it_was_written(tmp_path: Path) -> None:
    history = SqlFeatureHistory(empty_engine())
    rows = [
        StoredRow(1, START, {"age": 2**63 - 1, "mean": 0.10000000149011612, "town": 'Z"ü\n', "last": (1, None)}),
        StoredRow(1, START + HOUR, {"age": -(2**63)}),
        StoredRow(-3, START, {}),
    ]
    history.append("m", "user", rows)
    assert history.export("m", "user", START + 9 * HOUR, tmp_path / "history.jsonl") == 3
    view = View(name="user", columns=COLUMNS)
    read = read_history(tmp_path / "history.jsonl", view).collect()
    assert read.sort(KEY, AT).equals(history_of(rows, view).sort(KEY, AT))
    (tmp_path / "empty.jsonl").write_text("")
    assert read_history(tmp_path / "empty.jsonl", view).collect().schema == read.schema
    assert len(read_history(tmp_path / "empty.jsonl", view).collect()) == 0


def test_what_is_of_another_type_by_now_is_not_known(tmp_path: Path) -> None:
    lines = ['{"key":1,"at":5,"values":{"age":"x","town":"a","gone":[1]}}', '{"key":2,"at":6,"values":{"age":3.5,"last":"b"}}']
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    read = read_history(tmp_path / "history.jsonl", View(name="user", columns=COLUMNS)).collect()
    assert columns(read) == [{"town": "a"}, {}]


def test_a_table_has_a_row_for_each_stretch_in_which_the_same_counted() -> None:
    view = View(name="user", columns=COLUMNS, ttl=2 * HOUR)
    rows = [
        StoredRow(1, START, {"age": 5}),
        StoredRow(1, START + HOUR, {"age": 5}),
        StoredRow(1, START + 2 * HOUR, {"age": 6, "last": (1, None)}),
        StoredRow(2, START, {"age": -(2**63), "town": "a"}),
        StoredRow(3, START + 9 * HOUR, {"age": 7}),
        StoredRow(9, START, {"age": 8}),
    ]
    table = pl.DataFrame({"age": [10, 20, 30, None], "userId": [1, 2, 3, 4], "else": ["a", "b", "c", "d"], "last": [[9]] * 4})
    history = history_of(rows, view).lazy()
    joined = join_history(table, "userId", stretches(table["userId"], history, view, instant(START + 8 * HOUR)), history, view)
    assert joined.columns == ["age", "userId", "else", "last", SINCE]
    hours = [None if since == -(2**63) else (since - instant(START)) / 3.6e9 for since in joined[SINCE]]
    assert list(zip(joined["userId"], hours, joined["age"], joined["last"].to_list(), strict=True)) == [
        (1, None, 10, [9]),
        (1, 0.0, 5, [9]),
        (1, 2.0, 6, [1, None]),
        (1, 4 + 1 / 3.6e9, 10, [9]),
        (2, None, 20, [9]),
        (2, 0.0, None, [9]),
        (2, 2 + 1 / 3.6e9, 20, [9]),
        (3, None, 30, [9]),
        (4, None, None, [9]),
    ]
    assert joined["else"].to_list() == list("aaaabbbcd")


def test_a_row_is_searched_among_those_of_its_key() -> None:
    places = ValidityPeriods.of(pl.Series([-5, 3, 3, 3, 8], dtype=pl.Int64), pl.Series([-(2**63), 10, 20, 20, 7], dtype=pl.Int64))
    assert places.last.tolist() == [0, 3, 4]
    asked = [(-5, -9, 0), (-5, 99, 0), (3, 9, 1), (3, 10, 1), (3, 19, 1), (3, 20, 3), (3, 2**62, 3), (8, 6, 4), (8, 7, 4)]
    keys, times, rows = (np.array(one) for one in zip(*asked, strict=True))
    for apart in (0, 2**40):  # keys that lie close together are looked up in another way
        far = replace(places, keys=places.keys * (apart + 1))
        np.testing.assert_array_equal(far.rows(pl.Series(keys * (apart + 1)), times), rows)
    assert places.rows(pl.Series([], dtype=pl.Int64), times[:0]).tolist() == []


@given(some.integers(0, 4_102_444_800_000_000))
def test_a_time_in_seconds_is_the_microsecond_that_it_was(at: int) -> None:
    assert pl.select(microseconds(pl.lit(at / 1e6))).item() == at
    assert instant(moment(at)) == at


def test_columns_called_as_the_history_calls_its_own_are_the_view_s(tmp_path: Path) -> None:
    view = View(name="user", columns=(OnlineColumn(name="key", dtype="int64"), OnlineColumn(name="at", dtype="string")))
    history = SqlFeatureHistory(empty_engine())
    history.append("m", "user", [StoredRow(1, START, {"key": 5, "at": "x"})])
    history.export("m", "user", START + HOUR, tmp_path / "history.jsonl")
    read = read_history(tmp_path / "history.jsonl", view)
    assert read.collect().rows() == [(1, instant(START), 5, "x")]
    table = pl.DataFrame({"at": ["y"], "key": [7], "userId": [1]})
    joined = join_history(table, "userId", stretches(table["userId"], read, view, instant(START)), read, view)
    assert joined.rows() == [("y", 7, 1, -(2**63)), ("x", 5, 1, instant(START))]
