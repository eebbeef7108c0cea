"""What users did, taken in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared.contracts.events import Interaction
from shared.contracts.quantities import Rule
from shared.domain.errors import Invalid


def event(**fields) -> Interaction:
    return Interaction(**{"recommender": "m", "user": 1, "item": 10, **fields})


@pytest.mark.requirement("G-05")
def test_the_label_rule_decides_and_an_event_without_a_value_is_a_positive(world):
    found = world.gateway().record([event(value=5), event(value=3), event()])
    ((interactions, positive, attribution),) = world.taken
    assert positive == [True, False, True]
    assert attribution == timedelta(minutes=30)
    assert (found.accepted, found.hits, len(interactions)) == (3, 2, 3)


def test_an_event_without_a_time_happened_on_arrival_and_times_become_utc(world):
    there = datetime(2025, 12, 31, 23, 0, tzinfo=timezone(timedelta(hours=2)))
    world.gateway().record([event(), event(at=there)])
    ((interactions, _, _),) = world.taken
    assert [one.at for one in interactions] == [world.clock.now(), there]
    assert all(one.at.tzinfo is UTC for one in interactions)


def test_an_event_of_the_future_is_refused_by_its_index_and_nothing_is_stored(world):
    late = world.clock.now() + timedelta(minutes=2)
    with pytest.raises(Invalid, match=r"events\.1\.at: .* is in the future"):
        world.gateway().record([event(), event(at=late)])
    assert world.taken == []


def test_a_clock_that_is_a_little_ahead_is_forgiven(world):
    assert world.gateway().record([event(at=world.clock.now() + timedelta(seconds=50))]).accepted == 1


def test_an_event_before_our_calendar_is_refused(world):
    with pytest.raises(Invalid, match=r"events\.0\.at"):
        world.gateway().record([event(at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))))])


def test_an_event_of_an_unknown_recommender_is_refused_by_its_index(world):
    with pytest.raises(Invalid, match=r"events\.1\.recommender: there is no recommender 'x'"):
        world.gateway().record([event(), event(recommender="x")])
    assert world.taken == []


def test_each_recommender_judges_by_its_own_rule(world):
    world.specs["n"] = world.specs["m"].model_copy(update={"name": "n", "schema_": _strict(world.specs["m"].schema_)})
    world.gateway().record([event(value=4), event(recommender="n", value=4)])
    assert [positive for _, positive, _ in world.taken] == [[True], [False]]


def _strict(schema):
    return schema.model_copy(update={"label": schema.label.model_copy(update={"positive": Rule(">=", 5)})})
