"""A rollout that somebody starts lives like one that a run starts: in its turn, by the spec as it stands, on evidence of its own."""

from __future__ import annotations

import pytest

from shared.domain.rollout import unproven
from shared.ports import Signals
from tests.support.drift_readings import look
from tests.support.simulated_platform import NAME, Plane, World
from tests.unit.control.test_rollouts import SERVED, route

pytestmark = pytest.mark.requirement("C-05")


@pytest.fixture
def plane(world: World) -> Plane:
    """Version 1 serves; version 2's canary was aborted."""
    world.serve(world.version())
    world.version()
    world.users = 5
    world.start_rollout(2)
    plane = world.plane()
    world.until(plane, "canary", *SERVED)
    world.ask("abort")
    world.until(plane, "aborted", *SERVED)
    assert route(world) == (1, None, 0.0)
    return plane


def test_a_version_that_was_aborted_goes_through_its_steps_again_and_takes_over(world: World, plane: Plane) -> None:
    world.users = 40
    world.start_again(2)
    seen = []
    while world.row().status.state != "promoted":
        world.round(plane, *SERVED)
        seen.append(route(world))
    assert list(dict.fromkeys(seen)) == [(1, None, 0.0), (1, 2, 0.2), (1, 2, 0.5), (2, None, 0.0)]
    users = [(report.weight, report.candidate.users) for report in world.row().status.reports]
    assert users == [(0.2, 40), (0.5, 40)], "those who came to the first try are not counted"


def test_who_started_it_and_why_is_the_first_thing_that_its_history_says(world: World, plane: Plane) -> None:
    world.start_again(2, reason="the outage is over")
    world.until(plane, "canary", *SERVED)
    first = world.rollouts.history("again")[0]
    assert (first.source, first.target, first.actor, first.reason) == ("", "pending", "ada", "start by ada: the outage is over")


def test_it_is_judged_by_the_spec_as_it_stands_and_not_by_that_of_its_run(world: World, plane: Plane) -> None:
    world.apply(rollout={"steps": ["5%"], "shadow": "3s", "analysis": world.spec.rollout.analysis})
    world.start_again(2)
    world.until(plane, "canary", *SERVED)
    assert world.path() == ["pending", "loading", "shadow", "canary"]
    assert route(world) == (1, 2, 0.05)


def test_it_is_rolled_back_when_the_evidence_says_so(world: World, plane: Plane) -> None:
    world.users = 40
    world.disliked.add(2)
    world.start_again(2)
    world.until(plane, "rolled_back", *SERVED)
    assert "earns fewer hits" in world.row().status.reason
    assert route(world) == (1, None, 0.0)


def test_it_waits_until_the_one_before_it_has_ended(world: World, plane: Plane) -> None:
    world.hero = ("", "")
    world.start_rollout(world.version())
    world.until(plane, "canary", *SERVED)
    world.start_again(2)
    for _ in range(5):
        world.round(plane, *SERVED)
    assert (world.row().status.state, world.row().status.reason) == ("pending", "waits for rollout o3")
    assert route(world) == (1, 3, 0.2)
    world.hero = ("rollout", "o3")
    world.ask("abort")
    world.hero = ("rollout", "again")
    world.until(plane, "canary", *SERVED)
    assert route(world) == (1, 2, 0.2)


def test_one_whose_version_was_promoted_while_it_waited_ends_at_once(world: World, plane: Plane) -> None:
    world.users = 40
    world.start_again(2)
    world.start_again(2, id="twice")
    world.hero = ("rollout", "again")
    world.until(plane, "promoted", *SERVED)
    routes = len(world.routes.history(NAME))
    world.hero = ("rollout", "twice")
    world.until(plane, "promoted", *SERVED)
    assert world.row().status.reason == "version 2 serves all users already"
    assert (route(world), len(world.routes.history(NAME))) == ((2, None, 0.0), routes)


def test_where_nothing_serves_it_goes_in_without_a_canary_if_it_was_proven(world: World) -> None:
    world.version()
    world.start_again(1)
    world.until(world.plane(), "promoted", *SERVED)
    assert (world.path(), route(world)) == (["pending", "loading", "promoted"], (1, None, 0.0))


def test_and_is_refused_with_the_same_words_as_by_the_api_if_it_was_not(world: World) -> None:
    world.version(metrics={})
    world.start_again(1)
    world.until(world.plane(), "rolled_back", *SERVED)
    assert world.row().status.reason == unproven(1)
    assert world.routes.get(NAME) is None


def test_no_retraining_starts_while_it_is_under_way(world: World, plane: Plane) -> None:
    """Single flight: what drift asks for is held back by it, as by any other rollout."""
    world.start_again(2)
    world.until(plane, "canary", *SERVED)
    plane.ensure()
    world.hero = ("retrainer", NAME)
    world.signals.now = Signals(look(genres=0.5))
    for _ in range(5):
        world.round(plane, "retrainer", *SERVED)
    assert world.row().status.state == "watching"
    assert world.row().status.reason.endswith("held back: rollout again is under way")
    assert world.runs.list(NAME) == []
