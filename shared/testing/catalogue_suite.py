"""Conformance suite of Catalogue."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.domain.attributes import MOST_NAMES
from shared.domain.catalogue import ItemWrite
from shared.domain.errors import Invalid, NotFound
from shared.ports import Catalogue, CatalogueItem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def write(item: int, available: bool | None = None, **attributes: Any) -> ItemWrite:
    return ItemWrite(item, attributes, available)


def plain(items: Sequence[CatalogueItem]) -> list[tuple[int, object]]:
    return [(item.item, dict(item.attributes)) for item in items]


class CatalogueSuite:
    """Subclasses provide `catalogue`, `forget` (deletes a recommender) and `revive` (applies a recommender again)."""

    def test_what_is_put_is_there_in_the_order_of_keys(self, catalogue: Catalogue) -> None:
        values: dict[str, Any] = {
            "age": 12,
            "price": 2.5,
            "title": "Ä \U0001f600 '",
            "adult": False,
            "genres": ("a", "b"),
            "sizes": (1, 2.5),
            "none": (),
        }
        assert catalogue.put("films", [write(7, **values), write(-3, False), write(2**63 - 1), write(-(2**63))], NOW, True) == 4
        assert [item.item for item in catalogue.page("films", 10)] == [-(2**63), -3, 7, 2**63 - 1]
        item = catalogue.get("films", 7)
        assert (dict(item.attributes), item.available, item.deleted, item.updated_at) == (values, True, False, NOW)
        assert [type(item.attributes[name]) for name in ("age", "price", "adult")] == [int, float, bool]
        assert (catalogue.get("films", -3).available, dict(catalogue.get("films", -3).attributes)) == (False, {})

    def test_pages_go_on_where_the_last_one_ended(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [write(item) for item in range(-5, 5)], NOW, True)
        catalogue.delete("films", [0], NOW)
        assert [item.item for item in catalogue.page("films", 4)] == [-5, -4, -3, -2]
        assert [item.item for item in catalogue.page("films", 4, after=-2)] == [-1, 1, 2, 3]
        assert [item.item for item in catalogue.page("films", 4, after=3)] == [4]
        assert catalogue.page("books", 4) == []

    def test_a_whole_write_leaves_nothing_of_what_was(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [write(1, False, age=12, price=3)], NOW, True)
        assert catalogue.put("films", [write(1, age=16)], LATER, True) == 1
        item = catalogue.get("films", 1)
        assert (dict(item.attributes), item.available, item.updated_at) == ({"age": 16}, True, LATER)

    def test_a_partial_write_changes_what_it_names_alone(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [write(1, False, age=12, price=3, title="x")], NOW, True)
        catalogue.put("films", [write(1, age=16, price=None, region="de"), write(2, age=3)], NOW, False)
        assert plain(catalogue.page("films", 10)) == [(1, {"title": "x", "age": 16, "region": "de"}), (2, {"age": 3})]
        assert [catalogue.get("films", item).available for item in (1, 2)] == [False, True]
        catalogue.put("films", [write(1, True)], NOW, False)
        assert catalogue.get("films", 1).available

    def test_an_item_named_twice_is_what_the_later_one_makes_of_it(self, catalogue: Catalogue) -> None:
        assert catalogue.put("films", [write(1, age=1, price=1), write(1, age=2)], NOW, True) == 1
        assert dict(catalogue.get("films", 1).attributes) == {"age": 2}
        assert catalogue.put("films", [write(1, price=1), write(1, price=None, age=3)], NOW, False) == 1
        assert dict(catalogue.get("films", 1).attributes) == {"age": 3}
        assert len(catalogue.changes("films", 0, 10)) == 1

    def test_what_changes_nothing_writes_nothing(self, catalogue: Catalogue) -> None:
        writes = [write(1, age=12, genres=("a",)), write(2)]
        for overwrite in (True, True, False):
            catalogue.put("films", writes, NOW, overwrite)
        before = catalogue.heads()["films"]
        assert before.revision == 2
        assert catalogue.put("films", writes, LATER, True) == catalogue.put("films", [], LATER, True) == 0
        assert (catalogue.heads()["films"], catalogue.get("films", 1).updated_at) == (before, NOW)
        assert catalogue.put("films", [write(1, age=12.0, genres=("a",))], LATER, True) == 1
        assert catalogue.put("films", [write(1, age=True, genres=("a",))], LATER, True) == 1

    def test_a_deleted_item_is_gone_and_says_so_to_who_reads_changes(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [write(1, age=12), write(2)], NOW, True)
        assert catalogue.delete("films", [1, 99, 1], LATER) == 1
        assert catalogue.delete("films", [1], LATER) == 0
        assert catalogue.delete("books", [1], LATER) == 0
        with pytest.raises(NotFound, match="no item is called '1'"):
            catalogue.get("films", 1)
        gone = catalogue.changes("films", 2, 10)
        assert [(item.item, item.deleted, item.available, dict(item.attributes)) for item in gone] == [(1, True, False, {})]
        assert catalogue.put("films", [write(1)], LATER, False) == 1
        assert (catalogue.get("films", 1).available, dict(catalogue.get("films", 1).attributes)) == (True, {})

    def test_too_many_attributes_together_write_nothing(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [ItemWrite(1, {f"a{n}": n for n in range(MOST_NAMES)})], NOW, True)
        with pytest.raises(Invalid, match=f"item 1 would have {MOST_NAMES + 1} attributes"):
            catalogue.put("films", [write(2), write(1, one_more=1)], NOW, False)
        assert [item.item for item in catalogue.page("films", 10)] == [1]
        catalogue.put("films", [write(1, one_more=1, a0=None)], NOW, False)

    def test_a_reader_of_changes_ends_with_what_is_there(self, catalogue: Catalogue) -> None:
        chance = random.Random(5)  # noqa: S311
        copy: dict[int, CatalogueItem] = {}
        since = 0
        for _ in range(30):
            some = [chance.randrange(40) for _ in range(12)]
            if chance.random() < 0.3:
                catalogue.delete("films", some, NOW)
            else:
                catalogue.put("films", [write(item, price=chance.randrange(3)) for item in some], NOW, chance.random() < 0.5)
            while changes := catalogue.changes("films", since, 5):
                revisions = [change.revision for change in changes]
                assert revisions == sorted(set(revisions)) and revisions[0] > since
                copy |= {change.item: change for change in changes}
                since = revisions[-1]
            assert since == catalogue.heads()["films"].revision
        assert [copy[item] for item in sorted(copy) if not copy[item].deleted] == list(catalogue.page("films", 100))

    def test_writers_at_once_lose_nothing_and_a_reader_beside_them_misses_nothing(self, catalogue: Catalogue) -> None:
        def put(n: int) -> int:
            return catalogue.put("films", [ItemWrite(item, {f"by{n}": 1}) for item in range(n, n + 20)], NOW, False)

        copy: dict[int, CatalogueItem] = {}
        since = 0

        def read() -> int:
            last = since
            for change in catalogue.changes("films", last, 1000):
                copy[change.item] = change
                last = change.revision
            return last

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(put, n) for n in range(12)]
            while not all(writer.done() for writer in writers):
                since = read()
        since = read()
        assert [writer.result() for writer in writers] == [20] * 12
        assert list(catalogue.page("films", 100)) == [copy[item] for item in sorted(copy)]
        assert catalogue.heads()["films"].revision == since == 240
        assert all(f"by{n}" in copy[item].attributes for n in range(12) for item in range(n, n + 20))

    def test_recommenders_do_not_see_each_others_items(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [write(1, age=1)], NOW, True)
        catalogue.put("books", [write(1, age=2), write(2)], NOW, True)
        assert {name: head.revision for name, head in catalogue.heads().items()} == {"films": 1, "books": 2}
        assert plain(catalogue.changes("films", 0, 10)) == [(1, {"age": 1})]

    def test_with_its_recommender_a_catalogue_goes_and_whoever_has_a_copy_hears_of_it(
        self, catalogue: Catalogue, forget: Callable[[str], None], revive: Callable[[str], None]
    ) -> None:
        revive("films")
        catalogue.put("films", [write(1, age=1), write(2)], NOW, True)
        catalogue.put("books", [write(5)], NOW, True)
        forget("films")
        assert (catalogue.page("films", 10), catalogue.changes("films", 0, 10)) == ([], [])
        head = catalogue.heads()["films"]
        assert head.cleared == head.revision == 3
        with pytest.raises(NotFound):
            catalogue.put("films", [write(9)], NOW, True)
        with pytest.raises(NotFound):
            catalogue.delete("films", [1], NOW)
        revive("films")
        assert catalogue.put("films", [write(3)], NOW, True) == 1
        assert [(change.item, change.revision) for change in catalogue.changes("films", head.cleared, 10)] == [(3, 4)]
        assert [item.item for item in catalogue.page("books", 10)] == [5]
