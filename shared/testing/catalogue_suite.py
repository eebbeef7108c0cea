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
from shared.ports import Catalogue, CatalogueItem, SeedProgress, SeedRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def write(item: int, available: bool | None = None, **attributes: Any) -> ItemWrite:
    return ItemWrite(item, attributes, available)


def plain(items: Sequence[CatalogueItem]) -> list[tuple[int, object]]:
    return [(item.item, dict(item.attributes)) for item in items]


class CatalogueOracle:
    """What a catalogue holds after writes and seeds: attributes, availability, and whether an item is deleted. `times`: newest write of a
    client by item and name."""

    NAMES = ("price", "age", "stock")

    def __init__(self) -> None:
        self.items: dict[int, tuple[dict[str, Any], bool, bool]] = {}
        self.times: dict[tuple[int, str], datetime] = {}

    def put(self, keys: Sequence[int], values: dict[str, Any], available: bool | None, now: datetime, overwrite: bool) -> None:
        for key in keys:
            attributes, was_available, deleted = self.items.get(key, ({}, True, True))
            if deleted or overwrite:
                attributes, was_available = {}, True
            self.items[key] = {**attributes, **values}, was_available if available is None else available, False
            self.times |= {(key, name): now for name in (self.NAMES if overwrite else values)}

    def delete(self, keys: Sequence[int], now: datetime) -> None:
        for key in keys:
            if key in self.items and not self.items[key][2]:
                self.items[key] = {}, False, True
                self.times |= {(key, name): now for name in self.NAMES}

    def seed(self, keys: Sequence[int], values: dict[str, Any], at: datetime) -> None:
        for key in keys:
            attributes, available, deleted = self.items.get(key, ({}, True, False))
            if not deleted:
                older = {name: value for name, value in values.items() if self.times.get((key, name), at) <= at}
                self.items[key] = {**attributes, **older}, available, False

    def stored(self) -> dict[int, tuple[dict[str, Any], bool]]:
        return {key: (attributes, available) for key, (attributes, available, deleted) in self.items.items() if not deleted}


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

    def test_an_item_keeps_the_time_of_its_creation_until_it_is_deleted(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [write(1, age=12)], NOW, True)
        catalogue.seed("films", {2: SeedRow({"age": 6})}, NOW)
        catalogue.put("films", [write(1, age=16), write(2, age=18)], LATER, True)
        catalogue.seed("films", {1: SeedRow({"price": 6})}, LATER)
        assert [item.created_at for item in catalogue.page("films", 10)] == [NOW, NOW]
        catalogue.delete("films", [1], LATER)
        catalogue.put("films", [write(1)], LATER, False)
        assert [item.created_at for item in catalogue.changes("films", 0, 10)] == [NOW, LATER]

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
        with pytest.raises(NotFound):
            catalogue.seed("films", {1: SeedRow({"age": 1})}, NOW)
        assert not catalogue.names("films")
        revive("films")
        assert catalogue.put("films", [write(3)], NOW, True) == 1
        assert [(change.item, change.revision) for change in catalogue.changes("films", head.cleared, 10)] == [(3, 4)]
        assert [item.item for item in catalogue.page("books", 10)] == [5]

    def test_a_seed_creates_items_and_changes_those_that_were_written_before_it(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [write(1, False, price=1, mood="calm"), write(2, price=2)], NOW, True)
        catalogue.put("films", [write(3, price=3)], LATER, False)
        catalogue.delete("films", [2], NOW)
        rows = {item: SeedRow({"price": 10 * item, "genres": ("a",)}) for item in (1, 2, 3, 4)}
        assert catalogue.seed("films", rows, NOW) == 3
        assert plain(catalogue.page("films", 10)) == [
            (1, {"price": 10, "mood": "calm", "genres": ("a",)}),
            (3, {"price": 3, "genres": ("a",)}),
            (4, {"price": 40, "genres": ("a",)}),
        ]
        items = {item.item: item for item in catalogue.page("films", 10)}
        assert [items[item].available for item in (1, 3, 4)] == [False, True, True]
        assert [items[item].updated_at for item in (1, 3, 4)] == [NOW, LATER, NOW]
        head = catalogue.heads()["films"]
        assert catalogue.seed("films", rows, NOW) == catalogue.seed("films", rows, LATER) - 1 == 0, "item 3 is older than the last one"
        assert catalogue.heads()["films"].revision == head.revision + 1

    def test_a_client_who_writes_one_attribute_leaves_the_others_to_the_table(self, catalogue: Catalogue) -> None:
        catalogue.seed("films", {1: SeedRow({"price": 1, "title": "a"})}, NOW)
        catalogue.put("films", [write(1, stock=5)], LATER, False)
        catalogue.put("films", [write(1, title=None)], LATER, False)
        between = NOW + (LATER - NOW) / 2
        catalogue.seed("films", {1: SeedRow({"price": 2, "title": "b", "stock": 0})}, between)
        assert dict(catalogue.get("films", 1).attributes) == {"price": 2, "stock": 5}
        catalogue.put("films", [write(1, stock=5)], LATER + timedelta(hours=2), False)
        catalogue.seed("films", {1: SeedRow({"stock": 0, "title": "b"})}, LATER + timedelta(hours=1))
        assert dict(catalogue.get("films", 1).attributes) == {"price": 2, "stock": 5, "title": "b"}, (
            "the same value was written again later"
        )

    def test_ids_of_text_stay_and_two_of_one_key_are_refused(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [ItemWrite(1, {}, id="a"), ItemWrite(2, {}, id="b")], NOW, True)
        catalogue.seed("films", {1: SeedRow({"price": 1}, "a"), 3: SeedRow({}, "c")}, NOW)
        assert [item.id for item in catalogue.page("films", 9)] == ["a", "b", "c"]
        refused: tuple[Callable[[], object], ...] = (
            lambda: catalogue.put("films", [ItemWrite(4, {}, id="d"), ItemWrite(2, {}, id="B")], LATER, False),
            lambda: catalogue.put("films", [ItemWrite(4, {}, id="d"), ItemWrite(4, {}, id="D")], LATER, False),
            lambda: catalogue.seed("films", {3: SeedRow({}, "C")}, LATER),
        )
        for write_equal_keys in refused:
            with pytest.raises(Invalid, match=r"items '[bcd]' and '[BCD]' have the same key: rename one of them"):
                write_equal_keys()
        assert [item.id for item in catalogue.page("films", 9)] == ["a", "b", "c"]
        catalogue.delete("films", [1], LATER)
        assert [change.id for change in catalogue.changes("films", 0, 9)] == ["b", "c", "a"]

    def test_a_seed_leaves_out_attributes_beyond_the_limit(self, catalogue: Catalogue) -> None:
        catalogue.put("films", [ItemWrite(1, {f"a{n}": n for n in range(MOST_NAMES - 1)})], NOW, True)
        catalogue.seed("films", {1: SeedRow({"first": 1, "second": 2, "a0": 7})}, LATER)
        attributes = catalogue.get("films", 1).attributes
        assert len(attributes) == MOST_NAMES
        assert (attributes["a0"], attributes["first"]) == (7, 1)

    def test_later_writes_win_in_any_order_of_puts_deletes_and_seeds(self, catalogue: Catalogue) -> None:
        chance, oracle, last_table = random.Random(11), CatalogueOracle(), NOW  # noqa: S311
        for step in range(150):
            now = NOW + timedelta(minutes=step)
            keys = sorted({chance.randrange(12) for _ in range(4)})
            values: dict[str, Any] = {name: chance.randrange(2) for name in CatalogueOracle.NAMES if chance.random() < 0.6}
            match chance.choice(("replace", "change", "delete", "seed", "seed")):
                case "delete":
                    catalogue.delete("films", keys, now)
                    oracle.delete(keys, now)
                case "seed":
                    last_table = chance.choice((last_table, last_table + (now - last_table) * chance.random()))
                    catalogue.seed("films", dict.fromkeys(keys, SeedRow(values)), last_table)
                    oracle.seed(keys, values, last_table)
                case way:
                    available = chance.choice((None, True, False))
                    catalogue.put("films", [write(key, available, **values) for key in keys], now, way == "replace")
                    oracle.put(keys, values, available, now, way == "replace")
            stored = {item.item: (dict(item.attributes), item.available) for item in catalogue.page("films", 99)}
            assert stored == oracle.stored(), step

    def test_the_progress_of_a_seed_is_stored_until_the_recommender_is_deleted(
        self, catalogue: Catalogue, forget: Callable[[str], None], revive: Callable[[str], None]
    ) -> None:
        revive("films")
        assert "films" not in catalogue.seeds()
        for progress in (SeedProgress(1, "a", 2), SeedProgress(1, "a", 0), SeedProgress(2, "b", 1)):
            catalogue.mark_seed("films", progress)
            assert catalogue.seeds()["films"] == progress
        catalogue.put("films", [write(1)], NOW, True)
        assert catalogue.seeds()["films"] == SeedProgress(2, "b", 1)
        forget("films")
        assert "films" not in catalogue.seeds()

    def test_the_names_are_those_of_all_attributes_ever_written(self, catalogue: Catalogue) -> None:
        assert not catalogue.names("films")
        catalogue.put("films", [write(1, age=1), write(2, price=2, region=None)], NOW, True)
        catalogue.put("films", [write(1, age=None, region="de")], NOW, False)
        catalogue.seed("films", {3: SeedRow({"title": "x"})}, NOW)
        assert set(catalogue.names("films")) == {"age", "price", "region", "title"}
