"""Which value of a key counts, and what a column holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shared.contracts.online import OnlineColumn, View
from shared.domain.errors import Invalid
from shared.domain.feature_values import StoredRow, instant, is_over, moment, newest, own_place, read_row, take, version_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCALARS = some.one_of(
    some.integers(-(2**63), 2**63 - 1), some.floats(width=32, allow_nan=False, allow_infinity=False), some.text(max_size=9)
)
VALUES = some.dictionaries(some.text(max_size=5), some.one_of(SCALARS, some.lists(SCALARS, max_size=3).map(tuple)), max_size=4)


@given(VALUES)
def test_a_row_is_read_as_it_was_written(values: dict[str, Any]) -> None:
    row = StoredRow(7, NOW, values)
    again = read_row(7, NOW, row.text)
    assert (dict(again.values), again.text, again.rank) == (values, row.text, row.rank)


@given(some.lists(some.tuples(some.integers(0, 2), some.integers(0, 3), some.integers(0, 2)), max_size=12), some.randoms())
def test_what_counts_follows_from_the_rows_whatever_their_order(said: list[tuple[int, int, int]], chance: Any) -> None:
    rows = [StoredRow(key, NOW + timedelta(days=at), {"n": n}) for key, at, n in said]
    shuffled = chance.sample(rows, len(rows))
    assert {key: row.rank for key, row in newest(rows).items()} == {key: row.rank for key, row in newest(shuffled + rows).items()}


@given(some.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=some.just(UTC)))
def test_times_are_kept_to_the_microsecond(at: datetime) -> None:
    assert moment(instant(at)) == at


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="event time without a time zone"):
        instant(datetime(2026, 1, 1))


def test_a_value_is_over_once_it_is_older_than_it_may_be() -> None:
    hour = timedelta(hours=1)
    assert not is_over(NOW - hour, hour, NOW)
    assert is_over(NOW - hour - timedelta(microseconds=1), hour, NOW)
    assert not is_over(NOW - 10_000 * hour, None, NOW)


def test_a_versions_own_values_have_a_place_of_their_own() -> None:
    assert (own_place("user", 7), version_of("user@7"), version_of("user")) == ("user@7", 7, None)


VALID_VALUES: list[tuple[Any, Any, int | None, Any]] = [
    (3, "int64", None, 3),
    (2**63 - 1, "int64", None, 2**63 - 1),
    (0.1, "float32", None, 0.10000000149011612),
    (3, "float32", None, 3.0),
    ("x", "string", None, "x"),
    ([1, None, 3], "int64", 3, (1, None, 3)),
    ([], "string", 2, ()),
    (None, "int64", None, None),
    (None, "int64", 3, None),
]


def test_a_column_holds_values_of_its_type(subtests: pytest.Subtests) -> None:
    for value, dtype, width, expected in VALID_VALUES:
        with subtests.test(value=value, dtype=dtype, width=width, expected=expected):
            assert take(value, dtype, width, "x") == expected


INVALID_VALUES: list[tuple[Any, Any, int | None]] = [
    (2**63, "int64", None),
    (1.0, "int64", None),
    (True, "int64", None),
    ("1", "int64", None),
    (1e39, "float32", None),
    (float("nan"), "float32", None),
    (float("inf"), "float32", None),
    (10**400, "float32", None),
    (True, "float32", None),
    ("a\0", "string", None),
    ("\ud800", "string", None),
    ("a" * 501, "string", None),
    (1, "string", None),
    (1, "int64", 2),
    ([1, 2, 3], "int64", 2),
    ([1, "x"], "int64", 2),
    ("ab", "string", 2),
]


def test_a_value_of_another_type_is_refused_with_its_column(subtests: pytest.Subtests) -> None:
    for value, dtype, width in INVALID_VALUES:
        with subtests.test(value=value, dtype=dtype, width=width), pytest.raises(Invalid, match=r"^x: expected"):
            take(value, dtype, width, "x")


def test_a_view_takes_what_its_columns_say() -> None:
    view = View(name="user", columns=(OnlineColumn(name="age", dtype="int64"), OnlineColumn(name="tags", dtype="string", width=2)))
    assert dict(view.row(1, NOW, {"age": 3, "tags": None}).values) == {"age": 3}
    with pytest.raises(Invalid, match="unknown column 'agee': did you mean 'age'"):
        view.row(1, NOW, {"agee": 3})
    big = View(name="user", columns=tuple(OnlineColumn(name=f"c{n}", dtype="string", width=100) for n in range(4)))
    with pytest.raises(Invalid, match="more than 65536 bytes"):
        big.row(1, NOW, {f"c{n}": ["x" * 500] * 100 for n in range(4)})
