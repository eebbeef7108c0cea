"""A gateway of a recommender with text ids: requests, answers and events have text, everything inside has keys."""

from __future__ import annotations

import pytest

from shared.contracts.events import Action, PageView, Shown
from shared.domain.entity_ids import IdHash, IdKinds
from shared.domain.errors import Invalid, Unavailable
from shared.domain.route import Route
from shared.serving.text_column import text_arrays
from tests.support.gateway_world import ITEMS, npy, npz, spec

HASH = IdHash(b"test")
SKUS = ["sku-é", "42", "a/b", "💐", "last one"]
KEYS = HASH.keys(SKUS)
USERS = ["ada@example.org", "42"]


@pytest.fixture
def text_world(world, monkeypatch):
    """Version 1 has the items of SKUS, in the order of their keys."""
    ordered = sorted(SKUS, key=HASH.key)
    keys = HASH.keys(ordered)
    monkeypatch.setattr("tests.support.gateway_world.ITEMS", keys)
    world.kinds = IdKinds("text", "text")
    world.add_version(
        1,
        **{
            "popular.npy": npy(HASH.keys(["42", "sku-é", "last one"])),
            "users.npy": npy(sorted(HASH.keys(USERS))),
            "item_ids.npz": npz(**text_arrays(ordered)),
        },
    )
    world.routes["m"] = Route(1)
    return world


def asked(gateway, user, **more):
    ids = gateway.ids("m")
    return gateway.recommend("m", ids.user(user), exclude=ids.items(more.pop("exclude", ())), **more)


def test_an_answer_has_the_ids_of_the_items(text_world):
    gateway = text_world.gateway()
    gateway.refresh()
    answer = asked(gateway, "42", k=5)
    assert sorted(item for item, _ in answer.items) == sorted(SKUS)
    assert [item for item, _ in asked(gateway, "42", k=5, exclude=["a/b", "never seen"]).items] == [
        item for item, _ in answer.items if item != "a/b"
    ]
    assert [item for item, _ in asked(gateway, "a stranger").items] == ["42", "sku-é", "last one"]
    (shown, *_) = text_world.shown
    assert shown.user == HASH.key("42") and sorted(shown.items) == sorted(KEYS)


def test_ids_of_the_other_kind_are_refused(text_world):
    gateway = text_world.gateway()
    gateway.refresh()
    with pytest.raises(Invalid, match="user: 42 is an integer, but users of this recommender have text ids"):
        asked(gateway, 42)
    with pytest.raises(Invalid, match=r"exclude\.0|items\.0"):
        asked(gateway, "42", exclude=[42])


def test_events_are_stored_with_keys_and_text(text_world):
    text_world.specs["m"] = spec(schema=spec().document()["schema"] | {"page": "page"})
    gateway = text_world.gateway()
    gateway.refresh()
    view = PageView(kind="page", page="home", recommender="m", user="42")
    shown = Shown(kind="impression", request_id="own", recommender="m", user="42", items=("a/b", "new"))
    assert gateway.record([Action(recommender="m", user="42", item="a/b"), view, shown]).accepted == 3
    ((click, page), _, _) = text_world.taken[0]
    assert (click.user, click.item, click.user_id, click.item_id) == (HASH.key("42"), HASH.key("a/b"), "42", "a/b")
    assert (page.user, page.user_id, page.item_id) == (HASH.key("42"), "42", None)
    assert text_world.shown[-1].items == (HASH.key("a/b"), HASH.key("new"))
    with pytest.raises(Invalid, match=r"events\.0\.item: 7 is an integer"):
        gateway.record([Action(recommender="m", user="42", item=7)])


def test_an_event_with_the_key_of_another_item_is_refused_with_both_ids(text_world, monkeypatch):
    gateway = text_world.gateway()
    gateway.refresh()
    monkeypatch.setattr(IdHash, "key", lambda self, text: KEYS[2])
    with pytest.raises(Invalid, match=r"events\.0\.item: 'other' and the item 'a/b' of version 1 have the same key; rename one of them"):
        gateway.record([Action(recommender="m", user="x", item="other")])
    assert gateway.record([Action(recommender="m", user="x", item="a/b")]).accepted == 1


def test_the_first_good_event_fixes_the_kinds(world):
    gateway = world.gateway()
    found = gateway.record(
        [Action(recommender="m", user="x", item="y", kind="clik"), Action(recommender="m", user=1, item="y")], partial=True
    )
    assert (found.accepted, world.kinds) == (1, IdKinds("integer", "text"))
    with pytest.raises(Invalid, match=r"events\.1\.user: 'x' is text"):
        gateway.record([Action(recommender="m", user=1, item="y"), Action(recommender="m", user="x", item="y")])
    assert len(world.taken) == 1


def test_a_refused_request_fixes_nothing(world):
    gateway = world.gateway()
    with pytest.raises(Invalid, match=r"events\.1"):
        gateway.record([Action(recommender="m", user="x", item="y"), Action(recommender="m", user=1, item="y")])
    assert world.kinds == IdKinds()


def test_a_version_with_another_number_of_ids_is_not_served(text_world):
    text_world.add_version(1, **{"item_ids.npz": npz(**text_arrays(SKUS[:2]))})
    gateway = text_world.gateway()
    gateway.refresh()
    with pytest.raises(Unavailable, match=r"item_ids\.npz and catalogue\.npz have different numbers of items"):
        gateway.recommend("m", 1)


def test_a_pin_names_a_text_id(text_world):
    text_world.specs["m"] = spec(serve={"order": {"rules": [{"pin": {"item": "💐"}, "at": 1}]}})
    gateway = text_world.gateway()
    gateway.refresh()
    assert asked(gateway, "42", k=3).items[0][0] == "💐"


def test_integers_stay_themselves(world):
    world.kinds = IdKinds("integer", "integer")
    world.add_version(1)
    world.routes["m"] = Route(1)
    gateway = world.gateway()
    gateway.refresh()
    assert sorted(item for item, _ in asked(gateway, 1, k=5).items) == ITEMS
    with pytest.raises(Invalid, match="user: '1' is text"):
        asked(gateway, "1")
