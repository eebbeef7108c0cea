"""What users did, taken in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared.contracts.events import Interaction, PageView, Shown
from shared.contracts.quantities import NumberComparison
from shared.domain.errors import Invalid
from shared.domain.pages import page_key
from shared.ports import IngestResult
from shared.telemetry import metrics
from tests.support.gateway_world import spec


def shown(**fields) -> Shown:
    return Shown(**{"kind": "impression", "recommender": "m", "user": 1, "items": (10, 20), "request_id": "page-1", **fields})


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


@pytest.mark.requirement("U-11")
@pytest.mark.parametrize(("make", "days"), [(event, 50), (shown, 40)])
def test_an_event_that_is_older_than_the_spec_keeps_is_refused_by_its_index_and_nothing_is_stored(world, make, days):
    world.specs["m"] = spec(keep={"impressions": "40d", "interactions": "50d"})
    oldest = world.clock.now() - timedelta(days=days)
    assert world.gateway().record([make(at=oldest)]).accepted == 1
    world.taken.clear()
    message = rf"events\.1\.at: .* is older than {days}d, the time for which the spec keeps events; put older events into the files"
    with pytest.raises(Invalid, match=message):
        world.gateway().record([make(), make(at=oldest - timedelta(seconds=1))])
    assert world.taken == []


def test_a_clock_that_is_a_little_ahead_is_forgiven(world):
    assert world.gateway().record([event(at=world.clock.now() + timedelta(seconds=50))]).accepted == 1


def test_an_event_before_our_calendar_is_refused(world):
    with pytest.raises(Invalid, match=r"events\.0\.at"):
        world.gateway().record([event(at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))))])


def test_an_event_of_an_unknown_recommender_is_refused_by_its_index(world):
    with pytest.raises(Invalid, match=r"events\.1\.recommender: unknown recommender 'x'"):
        world.gateway().record([event(), event(recommender="x")])
    assert world.taken == []


def test_each_recommender_judges_by_its_own_rule(world):
    world.specs["n"] = world.specs["m"].model_copy(update={"name": "n", "schema_": _strict(world.specs["m"].schema_)})
    world.gateway().record([event(value=4), event(recommender="n", value=4)])
    assert [positive for _, positive, _ in world.taken] == [[True], [False]]


def _strict(schema):
    return schema.model_copy(update={"label": schema.label.model_copy(update={"positive": NumberComparison(">=", 5)})})


@pytest.mark.requirement("G-05")
def test_the_kind_decides_what_an_event_is(world):
    kinds = {"share": {"weight": 3}, "survey": {"positive": "by_label"}, "click": {"positive": "never"}}
    world.specs["m"] = spec(feedback={"kinds": kinds})
    sent = [
        ("click", None),
        ("purchase", 1.0),
        ("rating", 3.0),
        ("rating", 4.0),
        ("view", None),
        ("share", None),
        ("survey", 5.0),
        (None, 4.0),
    ]
    world.gateway().record([event(kind=kind, value=value) for kind, value in sent])
    ((interactions, positive, _),) = world.taken
    assert positive == [False, True, False, True, False, True, True, True]
    assert [one.kind for one in interactions] == ["click", "purchase", "rating", "rating", "view", "share", "survey", "rating"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "clik"}, r"events\.1\.kind: unknown kind 'clik': did you mean 'click'\?"),
        ({"kind": "rating"}, r"events\.1\.value: required for the kind 'rating', because the label rule '>= 4' reads it"),
    ],
)
def test_an_event_that_its_spec_has_no_words_for_is_refused(world, wrong, said):
    with pytest.raises(Invalid, match=said):
        world.gateway().record([event(), event(**wrong)])
    assert world.taken == []


def test_of_a_partial_request_the_good_events_are_taken_and_the_others_told(world):
    late = world.clock.now() + timedelta(hours=1)
    found = world.gateway().record([event(kind="x"), event(), event(at=late), event(recommender="z"), shown(at=late)], partial=True)
    assert (found.accepted, [one.index for one in found.refused]) == (1, [0, 2, 3, 4])
    assert [one.message.split(":")[0] for one in found.refused] == ["kind", "at", "recommender", "at"]


@pytest.mark.requirement("G-05")
def test_what_a_front_end_shows_is_an_impression_of_its_own_that_judges_no_rollout(world):
    found = world.gateway().record([shown(version=2), event(request_id="page-1"), event(request_id="q01kdwpg6a0x5m2qf")])
    (one,) = world.shown
    assert (one.request_id, one.version, one.generation, one.step, one.fallback) == ("m/page-1", 2, 0, -1, "front end")
    assert (one.items, one.at) == ((10, 20), world.clock.now())
    assert [done.request_id for done in world.taken[0][0]] == ["m/page-1", "q01kdwpg6a0x5m2qf"]
    assert found.accepted == 3


def test_an_answer_of_the_gateways_own_is_known_already(world):
    found = world.gateway().record([shown(request_id="q01kdwpg6a0x5m2qf"), shown(request_id="q1")])
    assert [one.request_id for one in world.shown] == ["m/q1"]
    assert (found.accepted, found.duplicates) == (2, 1)


def test_duplicates_and_conflicts_are_told_and_counted(world):
    world.interactions = lambda *_: IngestResult(new=0, duplicates=2, conflicts=1, hits=None)
    before = metrics.CONFLICTS.labels("m")._value.get()
    found = world.gateway().record([event(id="a"), event(id="a", item=20)])
    assert (found.accepted, found.duplicates, found.conflicts, found.hits) == (2, 2, 1, None)
    assert metrics.CONFLICTS.labels("m")._value.get() - before == 1


def seen(**fields) -> PageView:
    return PageView.model_validate({"kind": "page", "recommender": "m", "user": 1, "page": "home", **fields})


@pytest.mark.requirement("G-16")
def test_a_view_of_a_page_is_kept_under_its_key_and_is_no_positive(world):
    world.specs["m"] = spec(
        schema={"user": "userId", "item": "movieId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}, "page": "page"}
    )
    found = world.gateway().record([seen(id="v1"), event(), seen(page=7)])
    ((interactions, positive, _),) = world.taken
    assert [(one.item, one.kind, one.id) for one in interactions] == [
        (page_key("home"), "page", "v1"),
        (10, "click", None),
        (page_key("7"), "page", None),
    ]
    assert positive == [False, True, False] and found.accepted == 3
    assert interactions[0].at == world.clock.now()


def test_a_view_of_a_page_is_refused_where_the_spec_names_no_pages(world):
    with pytest.raises(Invalid, match=r"events\.0\.page: the spec has no column of pages; set schema\.page"):
        world.gateway().record([seen()])
    assert world.taken == []
