"""Items that only the catalogue has are candidates of a served version at once."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from services.gateway import Question, new_items
from shared.contracts.items_table import NEW_ITEMS
from shared.domain.catalogue import ItemWrite
from shared.domain.entity_ids import IdHash, IdKinds
from shared.domain.route import Route
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
def serve(world):
    """A gateway whose version scores items by their key."""

    def score(name, number, feed, patience=None):
        world.feeds.append((number, dict(feed)))
        return feed["movieId"].astype(np.float32)

    world.score = score
    world.routes["m"] = Route(1, generation=1)

    def made(files=None, **changes):
        world.add_version(1, **{NEW_ITEMS: reading(), **(files or {})})
        world.specs["m"] = spec(serve={"order": {"explore": {"rate": 0}}, **changes})
        gateway = world.gateway()
        gateway.refresh()
        return gateway

    return made


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
    genres = {item: sorted(words) for item, words in zip(feed["movieId"].tolist(), feed["genres"].tolist(), strict=True)}
    assert genres == {item: ["", "a"] for item in ITEMS} | {60: ["a", "b"], 55: ["", "c"], 45: ["", ""]}
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


def test_an_item_that_the_items_table_has_removed_does_not_come_back(world, serve):
    world.catalogue.put("m", [write(60, genre=["a"])], SINCE - timedelta(days=1), True)
    gateway = serve()
    put(world, gateway, write(70, genre=["a"]))
    assert items(gateway.recommend("m", 1, 2)) == [70, 50]


def test_it_can_be_turned_off_and_on_for_the_served_version(world, serve):
    gateway = serve()
    put(world, gateway, write(60))
    for wanted, first in ((False, 50), (True, 60)):
        world.specs["m"] = spec(serve={"new_items": wanted})
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
