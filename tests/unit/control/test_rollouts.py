"""Rollouts in the loop: what servers, gateways and users say is really asked for, and routes move once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import event

from services.eventlog.kpis import SqlKpis
from services.monitor.routes import RouteGauges
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from tests.support.simulated_platform import NAME, World

SERVED = ("rollout", "placement")


@pytest.fixture
def second(world: World) -> World:
    """Version 1 serves, version 2 is about to be rolled out, and few users come: nothing is decided by itself."""
    world.serve(world.version())
    world.version()
    world.users = 5
    world.start_rollout(2)
    return world


def route(world: World) -> tuple[int, int | None, float]:
    found = world.routes.get(NAME)
    assert found is not None
    return found.stable, found.candidate, found.weight


def step_since(world: World) -> Any:
    return world.row().status.step_since


@pytest.mark.requirement("C-05")
def test_the_first_version_is_promoted_as_soon_as_it_answers(world: World) -> None:
    world.version()
    world.start_rollout(1)
    world.until(world.plane(), "promoted", *SERVED)
    assert world.path() == ["pending", "loading", "promoted"]
    assert route(world) == (1, None, 0.0)


@pytest.mark.requirement("C-05", "G-11")
def test_a_good_version_rises_step_by_step_and_takes_over(second: World) -> None:
    second.users = 40
    seen = []
    plane = second.plane()
    while second.row().status.state != "promoted":
        second.round(plane, *SERVED)
        seen.append(route(second))
    assert list(dict.fromkeys(seen)) == [(1, None, 0.0), (1, 2, 0.2), (1, 2, 0.5), (2, None, 0.0)]
    assert [(report.step, report.weight, report.candidate.users) for report in second.row().status.reports] == [(0, 0.2, 40), (1, 0.5, 40)]


def test_a_version_gets_no_traffic_before_it_answers(second: World) -> None:
    second.fake_server.silent.add((NAME, 2))
    plane = second.plane()
    second.until(plane, "loading", *SERVED)
    for _ in range(5):
        second.round(plane, *SERVED)
    assert route(second) == (1, None, 0.0)
    second.fake_server.silent.clear()
    second.round(plane, *SERVED)
    assert route(second) == (1, 2, 0.2)


class Values:
    """Says what it is told of what versions are asked with."""

    def __init__(self) -> None:
        self.there: set[int] = set()
        self.why: str | None = None

    def loaded(self, recommender: str, version: int) -> bool:
        return version in self.there

    def fault(self, recommender: str, version: int) -> str | None:
        return self.why


class Loaded:
    """Has nothing to load."""

    def loaded(self, recommender: str, version: int) -> bool:
        return True

    def fault(self, recommender: str, version: int) -> str | None:
        return None


Order = Callable[[Values], tuple[Any, ...]]
LOADED = pytest.mark.parametrize("order", [lambda values: (values, Loaded()), lambda values: (Loaded(), values)], ids=["first", "last"])


@pytest.mark.requirement("G-08")
@LOADED
def test_a_version_gets_no_traffic_before_its_values_are_in_the_store(second: World, order: Order) -> None:
    values = Values()
    second.loads = order(values)
    plane = second.plane()
    second.until(plane, "loading", *SERVED)
    for _ in range(5):
        second.round(plane, *SERVED)
    assert route(second) == (1, None, 0.0)
    values.there.add(2)
    second.round(plane, *SERVED)
    assert route(second) == (1, 2, 0.2)
    values.there.clear()
    for _ in range(5):
        second.round(plane, *SERVED)
    assert route(second) == (1, 2, 0.2), "a store that lost them takes no traffic away"


@pytest.mark.requirement("G-08")
@LOADED
def test_a_version_whose_values_can_never_be_loaded_goes_back_and_says_why(second: World, order: Order) -> None:
    values = Values()
    second.loads = order(values)
    values.why = "online.user.0000.npz can't be read"
    second.until(second.plane(), "rolled_back", *SERVED)
    assert "online.user.0000.npz can't be read" in second.row().status.reason
    assert route(second) == (1, None, 0.0)


@pytest.mark.requirement("C-05")
def test_a_step_begins_when_the_last_gateway_has_reported_its_route(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    generation = second.routes.get(NAME).generation  # type: ignore[union-attr]
    second.gateways = ()

    def look() -> Any:
        second.clock.pass_by(seconds=1)
        plane.tick("rollout")
        return step_since(second)

    def report(gateway: str, served: int) -> None:
        second.routes.report(gateway, {NAME: served}, second.clock.now())

    second.clock.pass_by(seconds=4)
    assert look() is None, "nobody has reported"
    report("gate-1", generation)
    report("gate-2", generation - 1)
    assert look() is None, "the second serves the route before"
    report("gate-3", 0)
    report("gate-2", generation)
    assert look() is None, "the third serves nothing yet"
    report("gate-3", generation)
    assert look() == second.clock.now()


def test_a_gateway_that_fell_silent_is_not_waited_for(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.routes.report("gate-0", {NAME: 1}, second.clock.now())
    second.clock.pass_by(seconds=2)
    second.report()
    plane.tick("rollout")
    assert step_since(second) is None
    second.clock.pass_by(seconds=2)
    second.report()
    plane.tick("rollout")
    assert step_since(second) == second.clock.now()


def test_a_gateway_that_is_ahead_is_not_waited_for(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.routes.report("gate-1", {NAME: 99}, second.clock.now())
    plane.tick("rollout")
    assert step_since(second) == second.clock.now()


def test_another_rollout_waits_until_the_first_has_ended(second: World) -> None:
    plane = second.plane()
    second.clock.pass_by(seconds=1)
    second.version()
    second.start_rollout(3)
    second.until(plane, "canary", *SERVED)
    for _ in range(3):
        second.round(plane, *SERVED)
    assert (second.rollouts.get("o3").status.state, second.rollouts.get("o3").status.reason) == ("pending", "waits for rollout o2")
    assert 3 not in second.fake_server.answering(NAME)
    second.ask("abort")
    second.hero = ("rollout", "o3")
    second.until(plane, "canary", *SERVED)
    assert route(second) == (1, 3, 0.2)


def test_rollouts_of_other_recommenders_are_not_waited_for(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    other = replace(second.rollouts.get("o2"), id="o-books", recommender="books", status=RolloutStatus(), revision=0)
    second.rollouts.create(other, "ada")
    plane.tick("rollout")
    assert second.rollouts.get("o-books").status.state == "loading"


@pytest.mark.requirement("C-05")
def test_a_version_that_cannot_be_loaded_is_rolled_back_with_the_servers_words(second: World) -> None:
    second.fake_server.broken[NAME, 2] = "unexpected end of file"
    plane = second.plane()
    second.until(plane, "rolled_back", *SERVED)
    assert second.row().status.reason == "version 2 cannot be loaded: unexpected end of file"
    plane.tick(*SERVED)
    assert route(second) == (1, None, 0.0)
    assert second.fake_server.answering(NAME) == {1}


@pytest.mark.requirement("C-05")
def test_a_version_that_earns_less_is_rolled_back_to_the_stable_one(second: World) -> None:
    second.users = 40
    second.disliked.add(2)
    second.until(second.plane(), "rolled_back", *SERVED)
    assert "earns fewer hits" in second.row().status.reason
    assert route(second) == (1, None, 0.0)


def test_a_sick_stable_version_halts_the_rollout_and_moves_nobody(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.fake_server.silent.add((NAME, 1))
    second.until(plane, "paused", *SERVED)
    assert "the stable version 1 does not answer" in second.row().status.reason
    assert route(second) == (1, 2, 0.2)


def test_a_server_that_comes_back_in_time_decides_nothing(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.fake_server.down = True
    for _ in range(20):
        second.round(plane, "rollout")
    assert second.row().status.sick_since is not None
    second.fake_server.restart()
    for _ in range(20):
        second.round(plane, *SERVED)
    assert (second.row().status.state, second.row().status.sick_since) == ("canary", None)


def test_each_route_is_set_once(second: World) -> None:
    written: list[str] = []

    def note(*arguments: Any) -> None:
        if "INTO route_history" in arguments[2]:
            written.append(arguments[2])

    second.users = 40
    plane = second.plane()
    engine = second._engines[-1]
    event.listen(engine, "before_cursor_execute", note)
    second.until(plane, "promoted", *SERVED)
    for _ in range(20):
        second.round(plane, *SERVED)
    assert len(written) == 3
    assert route(second) == (2, None, 0.0)


def test_a_person_can_pause_and_the_users_stay_where_they_are(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    before = second.routes.get(NAME)
    second.ask("pause")
    second.until(plane, "paused", *SERVED)
    for _ in range(10):
        second.round(plane, *SERVED)
    assert second.routes.get(NAME) == before
    assert second.rollouts.history("o2")[-1].actor == "ada"


@pytest.mark.requirement("C-05")
def test_an_abort_brings_every_user_back_and_names_who_asked(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.ask("abort", actor="bob")
    second.until(plane, "aborted", *SERVED)
    assert route(second) == (1, None, 0.0)
    assert second.rollouts.history("o2")[-1].actor == "bob"


def test_a_candidate_that_does_not_answer_is_not_promoted_even_if_asked(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.fake_server.silent.add((NAME, 2))
    second.ask("promote")
    second.round(plane, *SERVED)
    assert second.row().request is None
    assert second.row().status.state == "canary"
    assert "refused" in second.row().status.reason
    assert route(second) == (1, 2, 0.2)


def test_a_refused_request_is_in_the_history(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.fake_server.silent.add((NAME, 2))
    second.ask("promote")
    second.round(plane, *SERVED)
    assert any("refused" in entry.reason for entry in second.rollouts.history("o2"))


@pytest.mark.requirement("C-06")
def test_ends_weights_and_what_a_step_has_shown_are_exported(second: World) -> None:
    labels = {"recommender": NAME}
    before = REGISTRY.get_sample_value("eyas_rollouts_total", {**labels, "state": "promoted"}) or 0
    gauges = RouteGauges(second.routes, second.rollouts, second.clock)
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    gauges.export()
    assert exported("candidate_weight") == 0.2
    assert exported("rollout_users", variant="candidate") is None, "nobody has looked yet"
    moved = second.routes.get(NAME)
    assert moved is not None and moved.since is not None
    assert exported("route_since_seconds", stable="1", candidate="2") == moved.since.timestamp()
    waited = exported("rollout_waits_seconds", state="canary")
    assert waited is not None
    second.clock.pass_by(seconds=2)
    gauges.export()
    assert exported("rollout_waits_seconds", state="canary") == waited + 2
    second.users = 40
    while not any(one.judgement.lift is not None for one in second.row().status.reports):
        second.round(plane, *SERVED)
    gauges.export()
    (report,) = second.row().status.reports
    for variant, sample in (("stable", report.stable), ("candidate", report.candidate)):
        assert exported("rollout_users", variant=variant) == sample.users > 0
        assert exported("rollout_goal", variant=variant) == sample.mean
    bounds = [exported("rollout_lift", bound=bound) for bound in ("lower", "estimate", "upper", "limit")]
    assert bounds == [report.judgement.lower, report.judgement.lift, report.judgement.upper, -0.3]
    assert exported("rollout_check", check="goal") == 1
    assert {exported("rollout_check", check=one.name) is None for one in report.checks} == {False}
    second.until(plane, "promoted", *SERVED)
    gauges.export()
    assert (exported("candidate_weight"), exported("serving_version")) == (0, 2)
    assert exported("route_since_seconds", stable="1", candidate="2") is None
    assert exported("rollout_lift", bound="lower") is None, "it has ended"
    assert exported("rollout_waits_seconds", state="canary") is None
    assert REGISTRY.get_sample_value("eyas_rollouts_total", {**labels, "state": "promoted"}) == before + 1


@pytest.mark.requirement("C-06")
def test_a_shadow_waits_from_the_end_of_its_time(second: World) -> None:
    second.apply(rollout={"shadow": {"for": "10s", "min_answers": 5}, "steps": ["20%"]})
    second.ask("abort")
    plane, gauges = second.plane(), RouteGauges(second.routes, second.rollouts, second.clock)
    second.until(plane, "aborted", *SERVED)
    second.start_rollout(2, "again")
    second.hero = ("rollout", "again")
    second.start_rollout(2, "later")
    second.until(plane, "shadow", *SERVED)
    gauges.export()
    assert exported("rollout_waits_seconds", state="shadow") == 0
    assert exported("rollout_waits_seconds", state="pending") is None, "behind another one is no fault"
    since = second.row().status.since
    assert since is not None
    second.clock.pass_by(seconds=15)
    gauges.export()
    assert exported("rollout_waits_seconds", state="shadow") == (second.clock.now() - since).total_seconds() - 10
    second.ask("abort")
    second.until(plane, "aborted", *SERVED)
    gauges.export()
    assert exported("rollout_waits_seconds", state="shadow") is None


def exported(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"eyas_{name}", {"recommender": NAME, **labels})


def test_users_are_counted_only_when_their_window_has_closed(second: World) -> None:
    second.apply(
        rollout={
            "steps": ["20%"],
            "analysis": {"attribution": "4s", "window": "3s", "min_users": 30, "min_answers": 30, "max_harm": "30%", "every": "1s"},
        }
    )
    second.users = 40
    second.ask("abort")
    plane = second.plane()
    second.until(plane, "aborted", *SERVED)
    second.start_rollout(2, "again")
    second.hero = ("rollout", "again")
    second.until(plane, "canary", *SERVED)
    began = second.clock.now()
    second.until(plane, "promoted", *SERVED)
    assert second.clock.now() - began >= timedelta(seconds=7)


def test_a_route_that_is_set_by_hand_pauses_the_rollout_and_resuming_sets_it_again(second: World) -> None:
    """No weight is moved on a guess."""
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.routes.put(NAME, Route(1), second.clock.now(), "ada", "by hand")
    second.until(plane, "paused", *SERVED)
    assert "changed outside this rollout" in second.row().status.reason
    assert route(second) == (1, None, 0.0)
    second.ask("resume")
    second.until(plane, "canary", *SERVED)
    assert route(second) == (1, 2, 0.2)


@pytest.mark.requirement("C-05")
def test_a_person_skips_to_the_next_step_and_from_the_last_one_is_told_what_to_do(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.ask("skip", actor="bob")
    second.round(plane, *SERVED)
    assert route(second) == (1, 2, 0.5)
    assert second.rollouts.history("o2")[-1].actor == "bob"
    second.ask("skip")
    second.round(plane, *SERVED)
    assert (second.row().request, second.row().status.state, route(second)) == (None, "canary", (1, 2, 0.5))
    assert "this is the last step; promote sends all users to version 2" in second.rollouts.history("o2")[-1].reason


def test_gateways_that_take_up_no_route_pause_the_rollout_and_are_named(second: World) -> None:
    plane = second.plane()
    second.until(plane, "canary", *SERVED)
    second.gateways = ()
    began = second.row().status.since
    while second.row().status.state == "canary":
        second.clock.pass_by(seconds=20)
        second.routes.report("gate-9", {NAME: 1}, second.clock.now())
        plane.tick("rollout")
    assert timedelta(minutes=5) < second.clock.now() - began <= timedelta(minutes=5, seconds=20)
    assert second.row().status.state == "paused"
    assert "has not reached all gateways after 5 min: gateway gate-9 serves generation 1 of 2" in second.row().status.reason


def test_between_two_looks_nobody_asks_for_the_data(second: World, monkeypatch: pytest.MonkeyPatch) -> None:
    second.ask("abort")
    plane = second.plane()
    second.until(plane, "aborted", *SERVED)
    second.apply(rollout={"steps": ["20%"], "analysis": {"attribution": "1s", "window": "1s", "min_users": 30, "every": "20s"}})
    second.start_rollout(2, "again")
    second.hero = ("rollout", "again")
    asked: list[Any] = []
    real = SqlKpis.samples
    monkeypatch.setattr(SqlKpis, "samples", lambda *arguments: asked.append(second.clock.now()) or real(*arguments))
    second.until(plane, "canary", *SERVED)
    while step_since(second) is None:
        second.round(plane, *SERVED)
    began = step_since(second)
    for life in range(50):
        second.round(second.plane() if life % 7 == 0 else plane, *SERVED)
    assert asked == [began + timedelta(seconds=20), began + timedelta(seconds=40)], "whoever takes over waits as long"


def test_a_first_version_that_was_never_held_against_its_training_is_refused(world: World) -> None:
    world.version(metrics={})
    world.start_rollout(1)
    world.until(world.plane(), "rolled_back", *SERVED)
    assert "has no parity proof on a real server" in world.row().status.reason
    assert world.routes.get(NAME) is None
