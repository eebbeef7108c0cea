"""Point in time: over whole columns the same as, row by row, by definition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipelines.features.asof import as_of, history_of, overlaid, read_history
from shared.contracts.online import OnlineColumn, View
from shared.domain.stored import StoredRow, instant, is_over, moment
from shared.testing.fake_features import FakeFeatureHistory

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


def columns(found: pl.DataFrame) -> list[dict[str, Any]]:
    """What is known, as values are held."""
    rows = found.select(one.name for one in COLUMNS).to_dicts()
    return [{name: tuple(one) if isinstance(one, list) else one for name, one in row.items() if one is not None} for row in rows]


@pytest.mark.requirement("G-08")
@settings(max_examples=300, deadline=None)
@given(ROWS, ASKED, TTLS)
def test_what_training_sees_is_what_counted_then(rows: list[StoredRow], asked: list[tuple[int, datetime]], ttl: timedelta | None) -> None:
    view = View(name="user", columns=COLUMNS, ttl=ttl)
    frame = pl.DataFrame(
        {"user": [key for key, _ in asked], "t": [instant(at) for _, at in asked], "n": range(len(asked))},
        schema={"user": pl.Int64, "t": pl.Int64, "n": pl.Int64},
    )
    found = as_of(frame.lazy(), history_of(rows, view).lazy(), view, "user", "t").collect()
    assert found["n"].to_list() == list(range(len(asked))), "the rows stay in their order"
    assert columns(found) == [by_definition(rows, key, at, ttl) for key, at in asked]


@pytest.mark.requirement("G-08")
@settings(max_examples=100, deadline=None)
@given(ROWS, ASKED, TTLS)
def test_training_and_the_history_say_the_same(rows: list[StoredRow], asked: list[tuple[int, datetime]], ttl: timedelta | None) -> None:
    history = FakeFeatureHistory()
    history.append("m", "user", rows)
    told = [dict(one.values) if one else {} for one in history.as_of("m", "user", asked, ttl)]
    assert told == [by_definition(rows, key, at, ttl) for key, at in asked]


@pytest.mark.requirement("G-08")
def test_an_exported_history_reads_as_it_was_written(tmp_path: Path) -> None:
    history = FakeFeatureHistory()
    rows = [
        StoredRow(1, START, {"age": 2**63 - 1, "mean": 0.10000000149011612, "town": 'Z"ü\n', "last": (1, None)}),
        StoredRow(1, START + HOUR, {"age": -(2**63)}),
        StoredRow(-3, START, {}),
    ]
    history.append("m", "user", rows)
    assert history.export("m", "user", START + 9 * HOUR, tmp_path / "history.jsonl") == 3
    view = View(name="user", columns=COLUMNS)
    read = read_history(tmp_path / "history.jsonl", view).collect()
    assert read.sort("key", "at").equals(history_of(rows, view).sort("key", "at"))
    (tmp_path / "empty.jsonl").write_text("")
    assert read_history(tmp_path / "empty.jsonl", view).collect().schema == read.schema
    assert len(read_history(tmp_path / "empty.jsonl", view).collect()) == 0


def test_what_is_of_another_type_by_now_is_not_known(tmp_path: Path) -> None:
    lines = ['{"key":1,"at":5,"values":{"age":"x","town":"a","gone":[1]}}', '{"key":2,"at":6,"values":{"age":3.5,"last":"b"}}']
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    read = read_history(tmp_path / "history.jsonl", View(name="user", columns=COLUMNS)).collect()
    assert columns(read) == [{"town": "a"}, {}]


def test_a_table_takes_what_the_view_knew_at_a_moment(tmp_path: Path) -> None:
    view = View(name="user", columns=COLUMNS, ttl=2 * HOUR)
    rows = [
        StoredRow(1, START, {"age": 5}),
        StoredRow(2, START - 3 * HOUR, {"age": 6}),
        StoredRow(3, START + HOUR, {"age": 7}),
        StoredRow(9, START, {"age": 8}),
    ]
    table = pl.DataFrame({"userId": [1, 2, 3, 4], "age": [10, 20, 30, None], "else": ["a", "b", "c", "d"]})
    found = overlaid(table.lazy(), "userId", history_of(rows, view).lazy(), view, instant(START)).collect()
    assert found.to_dict(as_series=False) == {"userId": [1, 2, 3, 4], "age": [5, 20, 30, None], "else": ["a", "b", "c", "d"]}
    assert moment(instant(START)) == START
