"""Filters in answers: what the catalogue says shows within a pass, in every kind of answer, and is never passed over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from services.gateway.catalogues import Catalogues
from services.gateway.new_items import CatalogueView
from services.store.recommenders import SqlRecommenders
from shared.domain.catalogue import ItemWrite
from shared.domain.errors import Unavailable
from shared.domain.route import Route
from shared.telemetry import metrics
from shared.testing.catalogue_suite import write
from shared.testing.waiting import wait_for
from tests.support.gateway_world import ITEMS, spec

AGES = {10: 0, 20: 6, 30: 12, 40: 16, 50: 18}


def items(answer):
    return [item for item, _ in answer.items]


@pytest.fixture
def serve(world):
    """A gateway with that filter."""
    world.routes["m"] = Route(1, generation=1)

    def made(*entries, **more):
        world.specs["m"] = spec(serve={"filter": list(entries), **more})
        gateway = world.gateway()
        gateway.refresh()
        return gateway

    return made


def put(world, *writes, gateway=None, whole=True):
    world.catalogue.put("m", writes, world.clock.now(), whole)
    if gateway is not None:
        world.clock.pass_by(seconds=0.25)
        gateway.refresh()


def ages(world):
    put(world, *(write(item, age_rating=age) for item, age in AGES.items()))


@pytest.mark.requirement("G-02")
def test_age_region_and_availability_filter_scored_and_popular_answers_alike(world, serve):
    put(
        world,
        write(10, age_rating=0, regions=["de"]),
        write(20, age_rating=6, regions=["de", "at"]),
        write(30, False, age_rating=0, regions=["de"]),
        write(40, age_rating=18, regions=["de"]),
        write(50, age_rating=0, regions=["fr"]),
    )
    gateway = serve({"available": True}, "age_rating <= user.age", "user.region in regions")
    asked = {"age": 12, "region": "de"}
    assert items(gateway.recommend("m", 1, context=asked)) == [10, 20]
    assert items(gateway.recommend("m", 99, context=asked)) == [20, 10]
    world.scoring_fails = True
    answer = gateway.recommend("m", 1, context=asked)
    assert (items(answer), answer.fallback) == ([20, 10], "scoring unavailable")


@pytest.mark.requirement("G-02")
def test_what_is_not_known_of_user_or_item_shows_nothing(world, serve):
    ages(world)
    put(world, ItemWrite(20, {}, None))
    gateway = serve("age_rating <= user.age")
    assert items(gateway.recommend("m", 1, context={"age": 12})) == [10, 30]
    for user in (1, 99):
        answer = gateway.recommend("m", user)
        assert (answer.items, answer.fallback) == ((), "nothing left")
    assert [(one.items, one.fallback, one.bucket) for one in world.shown[-2:]] == [((), "nothing left", None)] * 2


@pytest.mark.requirement("G-02")
def test_what_the_user_liked_within_the_window_is_dropped(world, serve):
    gateway = serve({"not_seen": "30d"})
    world.likes = frozenset({10})
    assert items(gateway.recommend("m", 1, k=2)) == [20, 30]
    assert world.looked_since == world.clock.now() - timedelta(days=30)
    gateway = serve({"not_seen": "ever"})
    assert items(gateway.recommend("m", 1, k=2)) == [20, 30]
    assert world.looked_since is None


@pytest.mark.requirement("G-02")
def test_an_upsert_shows_with_the_next_pass_and_so_does_a_deletion(world, serve):
    gateway = serve({"available": True})
    assert items(gateway.recommend("m", 1)) == ITEMS
    put(world, write(20, False), write(10), gateway=gateway)
    assert items(gateway.recommend("m", 1)) == [10, 30, 40, 50]
    put(world, write(20, True), gateway=gateway, whole=False)
    world.catalogue.delete("m", [10], world.clock.now())
    put(world, write(777, False), gateway=gateway)
    assert items(gateway.recommend("m", 1)) == [20, 30, 40, 50]


def test_a_gateway_that_starts_anew_knows_the_whole_catalogue_before_it_takes_traffic(world, serve):
    ages(world)
    gateway = serve("age_rating < 10")
    assert gateway.ready
    assert items(gateway.recommend("m", 1)) == [10, 20]


@pytest.mark.requirement("G-02")
def test_while_the_catalogue_cannot_be_read_the_last_copy_stands_and_a_metric_says_its_age(world, serve, caplog):
    ages(world)
    gateway = serve("age_rating < 10")
    heads, world.catalogue.heads = world.catalogue.heads, world.fail
    for _ in range(3):
        world.clock.pass_by(seconds=20)
        gateway.refresh()
    assert items(gateway.recommend("m", 1)) == [10, 20]
    assert metrics.CATALOGUE_AGE.collect()[0].samples[0].value == 60
    assert caplog.text.count("catalogues: reading failed, the last copies stay in use") == 1
    world.catalogue.heads = heads
    put(world, write(30, age_rating=1), gateway=gateway)
    assert items(gateway.recommend("m", 1)) == [10, 20, 30]
    assert metrics.CATALOGUE_AGE.collect()[0].samples[0].value == 0


def test_a_gateway_that_has_never_read_the_catalogues_takes_no_traffic(world, serve):
    heads, world.catalogue.heads = world.catalogue.heads, world.fail
    gateway = serve("age_rating < 10")
    assert not gateway.ready
    with pytest.raises(Unavailable, match="has not read the catalogues yet"):
        gateway.recommend("m", 1)
    world.catalogue.heads = heads
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    assert gateway.ready


def test_a_changed_filter_is_the_next_requests(world, serve):
    ages(world)
    gateway = serve("age_rating < 10")
    world.specs["m"] = spec(serve={"filter": ["age_rating > 10"]})
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    assert items(gateway.recommend("m", 1)) == [30, 40, 50]


def test_the_shadow_passes_the_same_filter(world, serve):
    world.routes["m"] = Route(1, 2, 0.0, "r", -1, shadow=True, generation=1)
    ages(world)
    gateway = serve("age_rating < 10")
    gateway.recommend("m", 1)

    def told():
        world.clock.pass_by(seconds=1)
        gateway.refresh()
        return world.mirrors.total("m", 1).compared

    wait_for(told)
    assert world.mirrors.total("m", 1).overlap == 1.0


def test_half_a_change_is_never_shown(world):
    """However many pages it takes, and however many passes."""
    clock = world.clock
    copies = Catalogues(world.catalogue, lambda name, state, former: CatalogueView(state, {}), clock, page=3, patience=0)
    for price in (1, 2):
        world.catalogue.put("m", [write(item, price=price) for item in range(20)], clock.now(), True)
        seen = []
        for _ in range(9):
            copies.refresh()
            state = copies.of("m").attributes
            seen.append(set(state.scalars["price", "number"][:-1].tolist()) if len(state) else set())
            assert len(state) in (0, 20)
        clock.pass_by(seconds=1)
        assert seen[0] in (set(), {1.0})
        assert seen[-1] == {float(price)}
        assert all(len(one) <= 1 for one in seen)


def test_a_catalogue_whose_recommender_was_made_anew_begins_anew(world):
    copies, recommenders = (
        Catalogues(world.catalogue, lambda name, state, former: CatalogueView(state, {}), world.clock),
        SqlRecommenders(world.engine),
    )
    recommenders.put(spec(), world.clock.now(), "ada")
    put(world, write(1, False, p=1), write(2, p=1))
    copies.refresh()
    assert len(copies.of("m").attributes) == 2
    recommenders.delete("m", world.clock.now())
    world.clock.pass_by(seconds=1)
    copies.refresh()
    assert (len(copies.of("m").attributes), copies.of("m").attributes.scalars) == (0, {})
    recommenders.put(spec(), world.clock.now(), "ada")
    put(world, write(2, p=3))
    world.clock.pass_by(seconds=1)
    copies.refresh()
    assert len(copies.of("m").attributes) == 1
