"""Items that only the catalogue has are candidates of a served version at once."""

from __future__ import annotations

import gc
import json
import weakref
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from services.gateway import Question, new_items
from services.gateway.attributes import Slots
from shared.contracts.items_table import NEW_ITEMS
from shared.domain.catalogue import ItemWrite
from shared.domain.entity_ids import IdHash, IdKinds
from shared.domain.route import Route
from shared.serving.signature import BLANK
from shared.serving.text_column import text_arrays
from shared.testing.catalogue_suite import write
from tests.support.gateway_world import ITEMS, NOW, npy, npz, spec

pytestmark = pytest.mark.requirement("G-01")

SINCE = NOW - timedelta(hours=1)
GENRES = [{"input": "genres", "attribute": "genre"}]


def items(answer):
    return [item for item, _ in answer.items]


def reading(**changes: Any) -> bytes:
    return json.dumps({"since": SINCE.isoformat(), "inputs": GENRES, **changes}).encode()


@pytest.fixture
def serve(world, monkeypatch):
    """A gateway whose version scores items by their key."""
    monkeypatch.setattr(new_items, "SHORT", 10.0)

    def score(name, number, feed, patience=None):
        world.feeds.append((number, dict(feed)))
        return feed["movieId"].astype(np.float32)

    world.score = score
    world.routes["m"] = Route(1, generation=1)

    def started(files=None, **changes):
        world.add_version(1, **{NEW_ITEMS: reading(), **(files or {})})
        world.specs["m"] = spec(serve={"order": {"explore": {"rate": 0}}, **changes})
        gateway = world.gateway()
        gateway.refresh()
        return gateway

    return started


def put(world, gateway, *writes):
    world.catalogue.put("m", writes, world.clock.now(), True)
    world.clock.pass_by(seconds=0.25)
    gateway.refresh()


def test_a_new_item_is_scored_with_its_attributes_after_the_next_refresh(world, serve):
    gateway = serve()
    assert items(gateway.recommend("m", 1)) == [50, 40, 30, 20, 10]
    put(world, gateway, write(60, genre=["b", "a"]), write(55, genre=["c"]), write(45))
    answer = gateway.recommend("m", 1, 10)
    assert items(answer) == [60, 55, 50, 45, 40, 30, 20, 10]
    assert answer.fallback is None
    feed = world.feeds[-1][1]
    genres = dict(zip(feed["movieId"].tolist(), feed["genres"].tolist(), strict=True))
    assert genres == {item: ["a", ""] for item in ITEMS} | {60: ["b", "a"], 55: ["c", ""], 45: ["", ""]}
    assert [(item, score) for item, score in gateway.score("m", 1, [60, 99]).items] == [(60, 60.0), (99, None)]


def test_a_changed_new_item_is_scored_with_its_new_attributes_and_a_deleted_one_is_gone(world, serve):
    gateway = serve(filter=[{"not_seen": "ever"}])
    put(world, gateway, write(60, genre=["b"]), write(70, genre=["b"]))
    put(world, gateway, write(60, genre=["c"]))
    assert items(gateway.recommend("m", 1, 2)) == [70, 60]
    feed = world.feeds[-1][1]
    assert feed["genres"][feed["movieId"] == 60].tolist() == [["c", ""]]
    world.catalogue.delete("m", [70], world.clock.now())
    put(world, gateway, write(60, False))
    assert items(gateway.recommend("m", 1, 2)) == [50, 40], "deleted and unavailable items are no candidates, whatever the filter"
    put(world, gateway, write(60))
    assert items(gateway.recommend("m", 1, 2)) == [60, 50]


def test_an_item_that_the_items_table_has_removed_does_not_come_back_with_a_write(world, serve):
    world.catalogue.put("m", [write(60, genre=["a"])], SINCE - timedelta(days=1), True)
    gateway = serve()
    put(world, gateway, write(70, genre=["a"]), write(60, genre=["b"]))
    assert items(gateway.recommend("m", 1, 2)) == [70, 50]
    world.catalogue.delete("m", [60], world.clock.now())
    put(world, gateway, write(60))
    assert items(gateway.recommend("m", 1, 1)) == [70], "but a deleted item that is created again is new"
    assert 60 in items(gateway.recommend("m", 1, 9))


def test_a_change_of_an_older_new_item_does_not_make_it_the_newest(world, serve, monkeypatch):
    monkeypatch.setattr(new_items, "MOST", 1)
    gateway = serve()
    put(world, gateway, write(60))
    put(world, gateway, write(70))
    put(world, gateway, write(60, price=1))
    assert items(gateway.recommend("m", 1, 2)) == [70, 50]


def test_it_can_be_turned_off_and_on_for_the_served_version(world, serve):
    gateway = serve()
    put(world, gateway, write(60))
    for switch, first in ((False, 50), (True, 60)):
        world.specs["m"] = spec(serve={"new_items": switch})
        gateway.refresh()
        assert items(gateway.recommend("m", 1, 1)) == [first]


def test_versions_of_older_releases_have_no_new_items(world, serve):
    gateway = serve({NEW_ITEMS: None})
    put(world, gateway, write(60))
    assert items(gateway.recommend("m", 1, 1)) == [50]


def test_a_version_that_is_loaded_later_has_them_too(world, serve):
    gateway = serve()
    put(world, gateway, write(60))
    world.add_version(2, **{NEW_ITEMS: reading()})
    world.routes["m"] = Route(2, generation=2)
    gateway.refresh()
    answer = gateway.recommend("m", 1, 1)
    assert (answer.version, items(answer)) == (2, [60])


def test_answers_without_scores_begin_with_new_items_in_the_share_of_the_spec(world, serve):
    gateway = serve(fresh=0.5)
    put(world, gateway, write(60))
    world.clock.pass_by(seconds=1)
    put(world, gateway, write(70))
    assert items(gateway.recommend("m", 99, 4)) == [50, 70, 40, 60]


def test_a_rule_can_pin_a_new_item(world, serve):
    gateway = serve(order={"rules": [{"pin": 5, "at": 1}], "explore": {"rate": 0}})
    put(world, gateway, write(5))
    assert items(gateway.recommend("m", 1, 2)) == [5, 50]


def test_retrieved_candidates_get_the_newest_ones_beside_them(world, serve):
    vectors = {
        "embeddings.npz": npz(items=np.array(ITEMS), vectors=np.eye(5, dtype=np.float32)),
        "queries.npz": npz(users=np.array([1]), vectors=np.array([[5, 4, 3, 2, 1]], np.float32)),
    }
    gateway = serve(vectors, retrieve={"candidates": 4})
    put(world, gateway, write(60), write(70, regions=["x"]))
    world.clock.pass_by(seconds=1)
    put(world, gateway, write(80))
    assert items(gateway.recommend("m", 1, 10)) == [80, 40, 30, 20, 10], "a quarter of four candidates is one"
    similar = gateway.similar("m", 80, 3)
    assert similar.items == [], "a new item has no vector"
    gateway = serve(vectors, retrieve={"candidates": 4}, order={"diversity": 0.5, "explore": {"rate": 0}})
    put(world, gateway, write(90))
    assert 90 in items(gateway.recommend("m", 1, 3))


def test_likes_of_new_items_alone_tell_a_version_nothing(world, serve):
    inputs = [
        {"name": "userId", "dtype": "int64", "side": "user"},
        {"name": "movieId", "dtype": "int64", "side": "item"},
        {"name": "genres", "dtype": "string", "width": 2, "side": "item"},
        {"name": "recent", "dtype": "int64", "width": 3, "lists": "shared", "side": "context"},
    ]
    signature = {"user": "userId", "item": "movieId", "session": "recent", "inputs": inputs}
    gateway = serve({"signature.json": json.dumps(signature).encode()})
    put(world, gateway, write(60))
    unknown, known = gateway._answered([Question("m", 99, items=(60,)), Question("m", 99, items=(60, 10))])
    assert (unknown.fallback, known.fallback) == ("unknown user", None)


def test_an_irrelevant_change_keeps_the_columns_that_clients_cache(world, serve):
    gateway = serve()
    put(world, gateway, write(60, genre=["a"]))
    gateway.recommend("m", 1)
    put(world, gateway, write(10, price=3), write(60, genre=["a"], price=4))
    gateway.recommend("m", 1)
    first, second = (feed["movieId"] for _, feed in world.feeds)
    assert first is second


def test_only_the_newest_of_very_many_are_candidates(world, serve, monkeypatch):
    """The version has five items, and the limit is its number of items between the two bounds."""
    monkeypatch.setattr(new_items, "FEWEST", 2)
    monkeypatch.setattr(new_items, "MOST", 2)
    gateway = serve()
    for item in (60, 70, 80):
        put(world, gateway, write(item))
    assert items(gateway.recommend("m", 1, 3)) == [80, 70, 50]


def test_a_text_that_is_longer_than_all_of_the_version_is_an_unknown_word(world, serve):
    gateway = serve()
    put(world, gateway, write(60, genre=["a" * 200, "b"]))
    gateway.recommend("m", 1)
    feed = world.feeds[-1][1]
    words = set(feed["genres"][feed["movieId"] == 60].ravel().tolist())
    assert words == {"\uffff", "b"}
    assert feed["genres"].dtype == np.dtype("<U1")


NUMBERS = [
    {"name": "userId", "dtype": "int64", "side": "user"},
    {"name": "movieId", "dtype": "int64", "side": "item"},
    {"name": "price", "dtype": "float32", "side": "item"},
    {"name": "sizes", "dtype": "int64", "width": 3, "side": "item"},
]


def numeric(serve):
    """A version whose items cost 1 to 5."""
    prices = np.array([1, 2, 3, np.nan, 5], np.float32)
    files = {
        "signature.json": json.dumps({"user": "userId", "item": "movieId", "inputs": NUMBERS}).encode(),
        "catalogue.npz": npz(movieId=np.array(ITEMS), price=prices, sizes=np.full((5, 3), 7)),
        NEW_ITEMS: reading(inputs=[{"input": name, "attribute": name} for name in ("price", "sizes")]),
    }
    return serve(files)


def test_numbers_that_no_network_can_score_are_unknown(world, serve):
    gateway = numeric(serve)
    put(world, gateway, write(60, price=1e39, sizes=[1e300, 4, -(2.0**80), 5, 6, 8]), write(70, price=1e30, sizes=[]), write(80, price=50))
    gateway.recommend("m", 1)
    feed = world.feeds[-1][1]
    rows = {item: at for at, item in enumerate(feed["movieId"].tolist())}
    np.testing.assert_array_equal(feed["price"][[rows[60], rows[70], rows[80]]], np.array([np.nan, np.nan, 50], np.float32))
    blank = BLANK["int64"]
    assert feed["sizes"][[rows[60], rows[70]]].tolist() == [[4, 5, 6], [blank, blank, blank]]


def test_new_items_that_cannot_be_read_cost_neither_filters_nor_other_versions(world, serve, monkeypatch):
    gateway = serve(filter=[{"available": True}])
    put(world, gateway, write(60))
    monkeypatch.setattr(new_items, "_columns", Mock(side_effect=OverflowError("planted")))
    put(world, gateway, write(70), write(50, False))
    assert items(gateway.recommend("m", 1, 2)) == [40, 30]
    monkeypatch.undo()
    monkeypatch.setattr(new_items.time, "monotonic", lambda: 1e9)
    world.clock.pass_by(seconds=0.25)
    gateway.refresh()
    assert items(gateway.recommend("m", 1, 2)) == [70, 60], "they are read again without another change"


def test_a_retired_version_leaves_the_memory(world, serve):
    gateway = serve()
    retired = weakref.ref(gateway._loader.snapshot.served["m"].units[1])
    put(world, gateway, write(10, price=1))
    world.add_version(2, **{NEW_ITEMS: reading()})
    world.routes["m"] = Route(2, generation=2)
    gateway.refresh()
    gc.collect()
    assert retired() is None


def test_a_request_sees_versions_and_attributes_of_one_state(world, serve, monkeypatch):
    """While the view of a change is made, requests have the view from before."""
    gateway = serve(filter=["not has(blocked)"])
    during = []
    align = Slots.align

    def asking(slots, unit):
        monkeypatch.setattr(Slots, "align", align)
        during.append(items(gateway.recommend("m", 1, 9)))
        return align(slots, unit)

    monkeypatch.setattr(Slots, "align", asking)
    put(world, gateway, write(60, blocked=True), write(70))
    assert during == [[50, 40, 30, 20, 10]], "the version with the new items is made, but not shown yet"
    assert items(gateway.recommend("m", 1, 9)) == [70, 50, 40, 30, 20, 10]


def test_changes_wait_for_the_end_of_a_rest_and_are_then_shown(world, serve, monkeypatch):
    clock = Mock(return_value=100.0)
    monkeypatch.setattr(new_items.time, "monotonic", clock)

    def slowly(*arguments):
        clock.return_value += 1.0
        return columns(*arguments)

    columns, gateway = new_items._columns, serve()
    monkeypatch.setattr(new_items, "SHORT", 0.5)
    monkeypatch.setattr(new_items, "_columns", slowly)
    put(world, gateway, write(60))
    put(world, gateway, write(70))
    assert items(gateway.recommend("m", 1, 1)) == [60]
    assert gateway.due() == 0.2
    clock.return_value += 10.0
    world.clock.pass_by(seconds=0.25)
    gateway.refresh()
    assert items(gateway.recommend("m", 1, 1)) == [70]
    assert gateway.due() is None


def test_answers_have_the_ids_of_new_items(world, serve, monkeypatch):
    hashed = IdHash(b"test")
    ordered = sorted(["x", "y", "z", "v", "w"], key=hashed.key)
    monkeypatch.setattr("tests.support.gateway_world.ITEMS", hashed.keys(ordered))
    world.kinds = IdKinds("text", "text")
    files = {"popular.npy": npy(hashed.keys(ordered)), "users.npy": npy([hashed.key("ada")])}
    gateway = serve(files | {"item_ids.npz": npz(**text_arrays(ordered))})
    put(world, gateway, ItemWrite(hashed.key("new é"), {}, None, "new é"), ItemWrite(hashed.key("newer"), {}, None, "newer"))
    answer = gateway.recommend("m", hashed.key("ada"), 10)
    assert sorted(items(answer)) == sorted([*ordered, "new é", "newer"])
