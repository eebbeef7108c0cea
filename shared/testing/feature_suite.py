"""Conformance suites of FeatureStore and FeatureHistory."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.errors import Invalid
from shared.domain.feature_values import StoredRow, instant, newest
from shared.ports import FeatureHistory, FeatureStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ODD: dict[str, Any] = {
    "whole": 2**63 - 1,
    "least": -(2**63),
    "half": 0.5,
    "tenth": 0.10000000149011612,
    "text": "Ä \U0001f600 '\"\\ \n",
    "empty": "",
    "none": (),
    "codes": (3, 1, 2),
    "weights": (0.5, None, -1e-30),
    "words": ("b", "", "a"),
}


def row(key: int, at: datetime = NOW, **values: Any) -> StoredRow:
    return StoredRow(key, at, values)


def some_rows(chance: random.Random, count: int) -> list[StoredRow]:
    """Returns rows with few keys and few times, so that many collide."""
    return [row(chance.randrange(-3, 4), NOW - chance.randrange(5) * DAY, n=chance.randrange(3)) for _ in range(count)]


class FeatureStoreSuite:
    """Subclasses provide `store`."""

    def test_what_is_written_is_read_exactly(self, store: FeatureStore) -> None:
        at = NOW - timedelta(microseconds=1)
        assert store.write("films", "user", [row(2**63 - 1, at, **ODD), row(-(2**63), at), row(0, at, n=1)]) == 3
        features = store.read("films", {"user": None}, [2**63 - 1, -(2**63), 0, 1], NOW)
        assert sorted(key for _, key in features.rows) == [-(2**63), 0, 2**63 - 1]
        stored = features.rows["user", 2**63 - 1]
        assert (stored.key, stored.at, dict(stored.values)) == (2**63 - 1, at, ODD)
        assert {name: type(value) for name, value in stored.values.items()} == {name: type(value) for name, value in ODD.items()}
        assert dict(features.rows["user", -(2**63)].values) == {}
        assert features.expired == {}

    def test_several_views_and_keys_are_read_at_once(self, store: FeatureStore) -> None:
        store.write("films", "user", [row(1, a=1), row(2, a=2)])
        store.write("films", "user@7", [row(1, b=1)])
        store.write("films", "item", [row(1, c=1)])
        store.write("books", "user", [row(1, a=9)])
        rows = store.read("films", {"user": None, "user@7": DAY}, [1, 2, 2, 3], NOW).rows
        assert {place: dict(stored.values) for place, stored in rows.items()} == {
            ("user", 1): {"a": 1},
            ("user", 2): {"a": 2},
            ("user@7", 1): {"b": 1},
        }
        assert store.read("films", {"user": None}, [], NOW).rows == {}
        assert store.read("films", {}, [1], NOW).rows == {}
        assert store.read("nobody", {"user": None}, [1], NOW).rows == {}

    def test_a_late_row_does_not_overwrite_a_newer_one(self, store: FeatureStore) -> None:
        assert store.write("films", "user", [row(1, NOW, a=1)]) == 1
        assert store.write("films", "user", [row(1, NOW - DAY, a=0, b=0)]) == 0
        assert dict(store.read("films", {"user": None}, [1], NOW).rows["user", 1].values) == {"a": 1}
        assert store.write("films", "user", [row(1, NOW + DAY, b=2)]) == 1
        assert dict(store.read("films", {"user": None}, [1], NOW + DAY).rows["user", 1].values) == {"b": 2}

    def test_writing_again_changes_nothing(self, store: FeatureStore) -> None:
        rows = [row(1, a=1), row(2, NOW - DAY, a=2)]
        assert store.write("films", "user", rows) == 2
        assert store.write("films", "user", rows) == 0

    @pytest.mark.parametrize("seed", range(5))
    def test_what_stands_follows_from_the_rows_alone(self, store: FeatureStore, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        rows = some_rows(chance, 60)
        for start in range(0, 60, 7):
            store.write("films", "user", rows[start : start + 7])
            store.write("films", "user", chance.sample(rows[: start + 7], 5))
        chance.shuffle(rows)
        store.write("films", "shuffled", rows)
        keys = range(-3, 4)
        stored = store.read("films", {"user": None, "shuffled": None}, keys, NOW).rows
        expected = {key: (latest.at, dict(latest.values)) for key, latest in newest(rows).items()}
        for view in ("user", "shuffled"):
            assert {key: (latest.at, dict(latest.values)) for (where, key), latest in stored.items() if where == view} == expected

    def test_writers_at_once_leave_what_counts_most(self, store: FeatureStore) -> None:
        rows = some_rows(random.Random(7), 400)  # noqa: S311
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda part: store.write("films", "user", part), [rows[n::4] for n in range(4)]))
        stored = store.read("films", {"user": None}, range(-3, 4), NOW).rows
        assert {key: latest.rank for (_, key), latest in stored.items()} == {key: latest.rank for key, latest in newest(rows).items()}

    def test_a_value_that_is_too_old_is_absent_and_said_to_be(self, store: FeatureStore) -> None:
        store.write("films", "user", [row(1, NOW - DAY, a=1), row(2, NOW - DAY - timedelta(microseconds=1), a=2)])
        features = store.read("films", {"user": DAY}, [1, 2, 3], NOW)
        assert list(features.rows) == [("user", 1)]
        assert features.expired == {("user", 2): NOW - DAY - timedelta(microseconds=1)}
        assert set(store.read("films", {"user": None}, [1, 2, 3], NOW).rows) == {("user", 1), ("user", 2)}

    def test_a_value_whose_time_is_still_to_come_is_not_there_yet(self, store: FeatureStore) -> None:
        store.write("films", "user", [row(1, NOW + timedelta(microseconds=1), a=1)])
        features = store.read("films", {"user": DAY}, [1], NOW)
        assert (features.rows, features.expired) == ({}, {})
        assert list(store.read("films", {"user": DAY}, [1], NOW + DAY).rows) == [("user", 1)]

    def test_marks_stand_until_the_next_one_and_go_with_the_rows(self, store: FeatureStore) -> None:
        store.write("films", "user", [row(1)])
        store.write("films", "empty", [])
        store.mark("films", "user@7", 9)
        store.mark("films", "user@7", 3)
        store.write("films", "user@7", [row(1)])
        assert store.marks() == {("films", "user"): 0, ("films", "empty"): 0, ("films", "user@7"): 3}
        store.forget("films", "user@7")
        store.forget("films", "nothing")
        assert store.marks() == {("films", "user"): 0, ("films", "empty"): 0}
        rows = store.read("films", {"user": None, "user@7": None}, [1], NOW).rows
        assert list(rows) == [("user", 1)]

    def test_many_rows_are_forgotten(self, store: FeatureStore) -> None:
        rows = [row(key, a=key) for key in range(6_000)]
        assert store.write("films", "user", rows) == 6_000
        store.write("books", "user", rows[:3])
        store.forget("films", "user")
        assert store.read("films", {"user": None}, [0, 3, 5_999], NOW).rows == {}
        assert store.marks() == {("books", "user"): 0}
        assert len(store.read("books", {"user": None}, range(9), NOW).rows) == 3

    def test_one_key_is_forgotten(self, store: FeatureStore) -> None:
        for view in ("user", "user@7"):
            store.write("films", view, [row(1, a=1), row(2, a=2)])
        store.write("books", "user", [row(1, a=1)])
        assert [store.forget_key("films", "user", key) for key in (1, 1, 3)] == [1, 0, 0]
        assert [sorted(store.keys("films", view)) for view in ("user", "user@7", "nothing")] == [[2], [1, 2], []]
        assert sorted(store.read("films", {"user": None, "user@7": None}, [1, 2], NOW).rows) == [("user", 2), ("user@7", 1), ("user@7", 2)]
        assert len(store.read("books", {"user": None}, [1], NOW).rows) == 1

    def test_names_do_not_reach_into_each_other(self, store: FeatureStore, subtests: pytest.Subtests) -> None:
        names = {"a:b", "a", "../x", "a b", "ä", "%3A", "*", "{a}"}
        for name in sorted(names):
            with subtests.test(recommender=name):
                store.write(name, "user", [row(1, a=1)])
                for other in names - {name}:
                    assert store.read(other, {"user": None}, [1], NOW).rows == {}
                assert list(store.marks()) == [(name, "user")]
                store.forget(name, "user")
                assert store.marks() == {}

    def test_a_view_is_called_by_a_plain_name(self, store: FeatureStore, subtests: pytest.Subtests) -> None:
        for view in ["", "User", "a:b", "a b", "a@", "a@x", "@1", "ü", "a" * 61, "a@1@2", "a\n"]:
            with subtests.test(view=view):
                with pytest.raises(Invalid, match="is not a view name"):
                    store.write("films", view, [row(1)])
                assert store.marks() == {}


class FeatureHistorySuite:
    """Subclasses provide `history`."""

    def test_what_counted_then_is_the_newest_that_was_not_later_nor_too_old(self, history: FeatureHistory) -> None:
        rows = [row(1, NOW - n * DAY, n=n) for n in (9, 5, 1)]
        assert history.append("films", "user", rows) == 3
        lookups = [(1, NOW - n * DAY) for n in (10, 9, 7, 5, 0)] + [(2, NOW)]

        def values(ttl: timedelta | None) -> list[object]:
            return [stored and stored.values["n"] for stored in history.as_of("films", "user", lookups, ttl)]

        assert values(None) == [None, 9, 9, 5, 1, None]
        assert values(DAY) == [None, 9, None, 5, 1, None]
        assert history.as_of("books", "user", lookups, None) == [None] * 6

    @pytest.mark.parametrize("seed", range(3))
    def test_the_order_of_writing_does_not_matter(self, history: FeatureHistory, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        rows = some_rows(chance, 40)
        for start in range(0, 40, 9):
            history.append("films", "a", rows[start : start + 9])
        history.append("films", "a", rows)
        history.append("films", "b", sorted(rows, key=lambda stored: stored.rank, reverse=True))
        lookups = [(key, NOW - n * DAY) for key in range(-3, 4) for n in range(6)]
        assert _plain(history.as_of("films", "a", lookups, None)) == _plain(history.as_of("films", "b", lookups, None))
        oracle = [
            max((stored for stored in rows if stored.key == key and stored.at <= at), key=lambda stored: stored.rank, default=None)
            for key, at in lookups
        ]
        assert _plain(history.as_of("films", "a", lookups, None)) == _plain(oracle)

    def test_the_newest_of_each_key_come_in_pages(self, history: FeatureHistory) -> None:
        rows = [row(key, NOW - n * DAY, n=n) for key in range(-5, 5) for n in (2, 0, 1)]
        history.append("films", "user", rows)
        history.append("films", "other", [row(100)])
        pages: list[StoredRow] = []
        while page := history.latest("films", "user", 4, pages[-1].key if pages else None):
            pages += page
        assert [(stored.key, stored.values["n"]) for stored in pages] == [(key, 0) for key in range(-5, 5)]

    def test_what_is_out_of_date_goes_and_nothing_that_will_still_count(self, history: FeatureHistory) -> None:
        rows = [row(key, NOW - n * DAY, n=n) for key in (1, 2) for n in (9, 7, 5, 3)] + [row(3, NOW - 20 * DAY, n=20)]
        history.append("films", "user", rows)
        history.append("books", "user", rows)
        before = NOW - 5 * DAY
        lookups = [(key, before + n * timedelta(hours=12)) for key in (1, 2, 3) for n in range(12)]
        expected = _plain(history.as_of("films", "user", lookups, None))
        assert history.trim("films", before) == 4
        assert history.trim("films", before) == 0
        assert _plain(history.as_of("films", "user", lookups, None)) == expected
        assert [stored.key for stored in history.latest("films", "user", 9)] == [1, 2, 3]
        assert history.as_of("books", "user", [(1, NOW - 9 * DAY)], None) != [None]

    def test_an_export_holds_every_row_before_the_moment(self, history: FeatureHistory, tmp_path: Path) -> None:
        rows = [row(2, NOW - DAY, **ODD), row(1, NOW - DAY, n=1), row(1, NOW - 2 * DAY, n=2), row(1, NOW, n=3)]
        history.append("films", "user", rows)
        history.append("films", "other", [row(1)])
        assert history.export("films", "user", NOW, tmp_path / "out.jsonl") == 3
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [(line["key"], line["at"]) for line in lines] == [
            (1, instant(NOW - 2 * DAY)),
            (1, instant(NOW - DAY)),
            (2, instant(NOW - DAY)),
        ]
        assert lines[2]["values"] == {name: list(value) if isinstance(value, tuple) else value for name, value in ODD.items()}
        assert history.export("films", "nothing", NOW, tmp_path / "none.jsonl") == 0
        assert (tmp_path / "none.jsonl").read_text() == ""

    def test_recommenders_are_kept_apart_and_forgotten(self, history: FeatureHistory) -> None:
        history.append("films", "user", [row(1)])
        history.append("films", "item", [row(1)])
        history.append("books", "user", [row(1)])
        assert sorted(history.views()) == [("books", "user"), ("films", "item"), ("films", "user")]
        history.forget("films")
        assert sorted(history.views()) == [("books", "user")]
        assert history.latest("films", "user", 9) == []

    def test_one_key_is_forgotten_in_all_views(self, history: FeatureHistory) -> None:
        for view in ("user", "shop"):
            history.append("films", view, [row(1), row(1, NOW - DAY), row(2)])
        history.append("books", "user", [row(1)])
        assert (history.forget_key("films", 1), history.forget_key("films", 1)) == (4, 0)
        assert [stored.key for view in ("user", "shop") for stored in history.latest("films", view, 9)] == [2, 2]
        assert (set(history.keys("films")), set(history.keys("books"))) == ({2}, {1})


def _plain(rows: Sequence[StoredRow | None]) -> list[object]:
    return [stored and (stored.key, stored.at, dict(stored.values)) for stored in rows]
