"""Retrainers in the loop: what the world says becomes one run at a time, and its end is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from shared.domain.machine import Request
from shared.domain.route import Route
from shared.domain.triggers import RetrainerStatus
from shared.ports import NewestTimes, Signals
from tests.support.drift_readings import fell, look
from tests.support.simulated_platform import NAME, Death, Fate, Plane, World, spec

FIRST = f"{NAME}-retrain-1"
DRIFT = Signals(look(genres=0.5, year=0.3))
CALM = Signals(look(9, genres=0.01, year=0.01))


@pytest.fixture
def plane(world: World) -> Plane:
    """Version 1, made by a run, serves; the retrainer watches."""
    world.apply()
    plane = world.plane()
    plane.ensure()
    world.start_run("r1")
    world.until(plane, "registered")
    world.hero = ("rollout", "r1-rollout")
    world.until(plane, "promoted")
    world.hero = ("retrainer", NAME)
    world.signals.now = CALM
    return plane


def status(world: World) -> RetrainerStatus:
    return world.retrainers.get(NAME).status


def runs(world: World) -> list[str]:
    return [record.id for record in world.runs.list() if record.id != "r1"]


def rounds(world: World, plane: Plane, count: int) -> None:
    for _ in range(count):
        world.round(plane)


def test_every_recommender_gets_one_retrainer(world: World) -> None:
    plane = world.plane()
    plane.ensure()
    assert world.retrainers.list() == []
    for name in ("films", "books"):
        world.recommenders.put(spec(name=name), world.clock.now(), "ada")
    for _ in range(3):
        plane.ensure()
    world.plane().ensure()
    assert {record.id for record in world.retrainers.list()} == {"films", "books"}
    assert [entry.target for entry in world.retrainers.history("films")] == ["watching"]


def test_while_nothing_moves_nothing_is_started(world: World, plane: Plane) -> None:
    rounds(world, plane, 20)
    assert runs(world) == []
    assert status(world).state == "watching"


class Used:
    """When anything was last heard of the recommender."""

    def __init__(self) -> None:
        self.known: dict[str, NewestTimes] = {}

    def newest(self) -> dict[str, NewestTimes]:
        return self.known


@pytest.fixture
def quiet(world: World) -> Used:
    """A version serves for an hour, and nobody has asked for anything."""
    world.apply()
    world.signals.activity = Used()
    world.routes.put(NAME, Route(1), world.clock.now(), "ada", "")
    world.clock.pass_by(hours=1)
    world.signals.now = CALM
    return world.signals.activity


def looks_of(world: World, plane: Plane, seconds: int) -> int:
    before = world.signals.asked
    for _ in range(seconds):
        plane.tick("retrainer")
        world.clock.pass_by(seconds=1)
    return world.signals.asked - before


def test_a_recommender_that_nobody_uses_is_looked_at_seldom(world: World, quiet: Used) -> None:
    plane = world.plane()
    plane.ensure()
    assert looks_of(world, plane, 2) == 2, "what was found is written, and looked at once more"
    assert looks_of(world, plane, 240) == 0
    assert looks_of(world, plane, 600) in (2, 3)


def test_it_is_looked_at_at_once_when_it_is_used_routed_specified_or_asked(world: World, quiet: Used) -> None:
    plane = world.plane()
    plane.ensure()
    assert looks_of(world, plane, 9) == 2
    quiet.known = {NAME: NewestTimes(world.clock.now(), None)}
    assert looks_of(world, plane, 2) == 2, "and again soon: it was used just now"
    world.clock.pass_by(hours=2)
    assert looks_of(world, plane, 9) == 1
    world.routes.put(NAME, Route(2), world.clock.now(), "ada", "")
    assert looks_of(world, plane, 2) == 2
    world.clock.pass_by(hours=2)
    assert looks_of(world, plane, 9) == 1
    world.apply(retrain={"cooldown": "3h"})
    assert looks_of(world, plane, 2) == 2
    world.clock.pass_by(hours=2)
    assert looks_of(world, plane, 9) == 1
    world.retrainers.ask(NAME, Request("retrain", "ada", ""), world.clock.now())
    plane.tick("retrainer")
    assert runs(world) == [FIRST]


def test_no_due_time_is_slept_through(world: World, quiet: Used) -> None:
    world.apply(retrain={"schedule": "0 15 * * *"})
    plane = world.plane()
    plane.ensure()
    world.clock.time = world.clock.time.replace(hour=14, minute=58)
    assert looks_of(world, plane, 119) <= 3
    assert runs(world) == []
    looks_of(world, plane, 3)
    assert runs(world) == [FIRST]


def test_while_nothing_serves_the_signals_are_not_even_read(world: World) -> None:
    world.apply()
    world.signals.now = DRIFT
    plane = world.plane()
    plane.ensure()
    world.hero = ("retrainer", NAME)
    rounds(world, plane, 5)
    assert world.signals.asked == 0
    assert runs(world) == []


@pytest.mark.requirement("C-03")
def test_drift_starts_one_run_with_its_mode_cause_and_the_serving_version(world: World, plane: Plane) -> None:
    world.signals.now = DRIFT
    world.plays["etl"] = ["hang"]
    rounds(world, plane, 2)
    assert runs(world) == [FIRST]
    found = world.runs.get(FIRST)
    assert (found.spec.mode, found.spec.serving, found.recommender) == ("warm", 1, NAME)
    assert found.spec.cause == (
        "drift of genres: psi 0.500; by chance alone once in 1,000,000,000 looks (threshold 0.2), since 2026-01-01 12:00:00 UTC, and 1 more"
    )
    assert (status(world).state, status(world).run, status(world).fired) == ("retraining", FIRST, 1)


@pytest.mark.requirement("G-09")
def test_auto_goes_on_from_what_serves_and_its_cause_says_why(world: World, plane: Plane) -> None:
    world.apply(retrain={"on": [{"new_events": {"count": 1, "mode": "auto"}}], "auto": {"warm_runs": 2}})
    world.signals.now = Signals(snapshot=world.clock.now(), events=5)
    world.plays["etl"] = ["hang"]
    rounds(world, plane, 2)
    found = world.runs.get(FIRST)
    assert found.spec.mode == "warm"
    assert found.spec.cause.endswith("(threshold 1); auto: warm (0 warm runs since the last full one)")
    assert status(world).reason == found.spec.cause


@pytest.mark.requirement("G-13", "C-03")
def test_a_fall_of_the_hit_rate_starts_a_full_run(world: World, plane: Plane) -> None:
    world.apply(retrain={"on": [{"kpi": {"hit_rate": "-10%"}}], "mode": "warm"})
    world.signals.now = Signals(kpi=fell(0.5, 0.4))
    rounds(world, plane, 2)
    assert runs(world) == [], "one look is none"
    world.signals.now = Signals(kpi=fell(0.5, 0.4, 1))
    rounds(world, plane, 2)
    assert world.runs.get(FIRST).spec.mode == "full"
    assert "fell by 20.0% (hit rate from 50.0% to 40.0%)" in world.runs.get(FIRST).spec.cause


@pytest.mark.requirement("C-03")
def test_while_a_retraining_goes_on_nothing_more_is_started(world: World, plane: Plane) -> None:
    world.signals.now = DRIFT
    world.plays["train"] = ["hang"]
    rounds(world, plane, 60)
    assert runs(world) == [FIRST]
    assert status(world).state == "retraining"


def test_a_retraining_lasts_until_its_rollout_has_ended(world: World, plane: Plane) -> None:
    world.signals.now = DRIFT
    world.users = 5
    world.hero = ("rollout", f"{FIRST}-rollout")
    rounds_until_rollout(world, plane)
    rounds(world, plane, 20)
    assert world.runs.get(FIRST).status.state == "registered"
    assert status(world).state == "retraining"
    world.ask("abort")
    rounds(world, plane, 2)
    assert (status(world).state, status(world).reason) == ("cooling", "version 2 aborted: abort by ada")


def rounds_until_rollout(world: World, plane: Plane) -> None:
    hero, world.hero = world.hero, ("retrainer", NAME)
    while not [record for record in world.rollouts.list(active=True) if record.status.state == "canary"]:
        world.round(plane)
    world.hero = hero


@pytest.mark.requirement("C-03", "G-11")
def test_after_a_promotion_it_cools_and_then_watches_again(world: World, plane: Plane) -> None:
    world.signals.now = DRIFT
    world.until(plane, "retraining")
    world.signals.now = CALM
    world.until(plane, "cooling")
    assert status(world).reason.startswith("version 2 promoted: ")
    until = status(world).until
    assert until is not None
    world.until(plane, "watching")
    assert world.clock.now() >= until
    rested = status(world)
    assert (rested.reason, rested.fired, rested.fruitless, rested.drift.standing) == ("the cooldown is over", 1, 1, ())
    world.clock.pass_by(minutes=1)
    rounds(world, plane, 2)
    assert status(world).fruitless == 0, "it has been calm since: it has helped"
    assert world.path() == ["watching", "retraining", "cooling", "watching"]


def test_a_rejected_run_ends_the_retraining_with_its_reason(world: World, plane: Plane) -> None:
    world.metrics["evaluate"] = {"candidate.auc": 0.3}
    world.signals.now = DRIFT
    world.until(plane, "cooling")
    assert status(world).reason == f"run {FIRST} rejected: auc is 0.3 < 0.6"
    assert world.registry.list(NAME)[-1].number == 1


@pytest.mark.requirement("C-03")
def test_while_it_cools_drift_starts_nothing_and_a_person_can(world: World, plane: Plane) -> None:
    world.metrics["evaluate"] = {"candidate.auc": 0.3}
    world.signals.now = DRIFT
    world.until(plane, "cooling")
    rounds(world, plane, 5)
    assert runs(world) == [FIRST]
    world.ask("retrain", actor="bob")
    rounds(world, plane, 1)
    assert status(world).state == "retraining"
    assert world.retrainers.history(NAME)[-1].actor == "bob"
    assert world.runs.get(f"{NAME}-retrain-2").spec.cause == "retrain by bob"


def test_a_second_firing_gets_the_second_number(world: World, plane: Plane) -> None:
    world.signals.now = DRIFT
    world.until(plane, "cooling")
    world.until(plane, "watching")
    world.until(plane, "retraining")
    assert runs(world) == [f"{NAME}-retrain-2", FIRST]
    found = world.runs.get(f"{NAME}-retrain-2")
    assert (found.spec.serving, found.spec.mode) == (2, "warm")
    world.until(plane, "cooling")
    assert [(version.number, version.run, version.parent) for version in world.registry.list(NAME)] == [
        (1, "r1", None),
        (2, FIRST, 1),
        (3, f"{NAME}-retrain-2", 2),
    ]


@pytest.mark.requirement("C-03")
def test_what_is_under_way_holds_a_firing_back_and_the_reason_says_so(world: World, plane: Plane) -> None:
    world.plays["etl"] = ["hang"]
    world.start_run("by-hand")
    world.signals.now = DRIFT
    rounds(world, plane, 3)
    assert status(world).state == "watching"
    assert status(world).reason.endswith("held back: run by-hand is under way")
    world.runs.ask("by-hand", Request("cancel", "ada"), world.clock.now())
    rounds(world, plane, 3)
    assert (status(world).state, status(world).run) == ("retraining", FIRST)


def test_a_request_waits_for_what_is_under_way_and_is_then_granted(world: World, plane: Plane) -> None:
    world.plays["etl"] = ["hang"]
    world.start_run("by-hand")
    world.ask("retrain")
    rounds(world, plane, 3)
    assert world.row().request is not None
    world.runs.ask("by-hand", Request("cancel", "ada"), world.clock.now())
    rounds(world, plane, 3)
    assert (status(world).state, world.row().request) == ("retraining", None)


@pytest.mark.requirement("C-06")
def test_retrainings_are_counted_by_trigger_and_mode(world: World, plane: Plane) -> None:
    labels = {"recommender": NAME, "trigger": "drift", "mode": "warm"}
    before = REGISTRY.get_sample_value("eyas_retrainings_total", labels) or 0
    world.signals.now = DRIFT
    world.until(plane, "cooling")
    rounds(world, plane, 3)
    assert REGISTRY.get_sample_value("eyas_retrainings_total", labels) == before + 1


def said(world: World) -> list[str]:
    """The newest lines of the history first, of triggers alone."""
    return [
        entry.reason
        for entry in reversed(world.retrainers.history(NAME))
        if entry.reason.startswith(("schedule", "drift", "alert", "retrain"))
    ]


@pytest.mark.requirement("C-03")
def test_a_schedule_that_was_due_while_nobody_was_there_starts_one_run(world: World, plane: Plane) -> None:
    world.apply(retrain={"schedule": "*/5 * * * *", "timezone": "Australia/Lord_Howe", "mode": "warm", "schedule_mode": "full"})
    rounds(world, plane, 2)
    assert runs(world) == []
    world.clock.pass_by(minutes=33)
    plane = world.plane()
    world.until(plane, "cooling")
    rounds(world, plane, 5)
    assert runs(world) == [FIRST]
    found = world.runs.get(FIRST)
    assert found.spec.mode == "full"
    assert found.spec.cause.startswith("schedule */5 * * * * (Australia/Lord_Howe): due 2026-01-01 12:")
    assert status(world).firings[0].trigger == "schedule"


@pytest.mark.requirement("C-03")
def test_what_holds_a_schedule_back_is_in_the_history_once_and_counted(world: World, plane: Plane) -> None:
    labels = {"recommender": NAME, "trigger": "schedule"}
    before = REGISTRY.get_sample_value("eyas_retrainings_held_total", labels) or 0
    world.apply(retrain={"schedule": "* * * * *", "max_per_day": 1, "cooldown": "1s", "on": []})
    rounds(world, plane, 2)
    world.plays["etl"] = ["hang"]
    world.start_run("by-hand", mode="warm", serving=1)
    world.clock.pass_by(minutes=2)
    rounds(world, plane, 20)
    assert [line.partition(", ")[2] for line in said(world)] == ["held back: run by-hand is under way"]
    assert REGISTRY.get_sample_value("eyas_retrainings_held_total", labels) == before + 1
    world.runs.ask("by-hand", Request("cancel", "ada"), world.clock.now())
    world.plays.clear()
    world.until(plane, "retraining")
    world.until(plane, "watching")
    world.clock.pass_by(minutes=1)
    rounds(world, plane, 20)
    assert ": 1 of 1 retrainings in 24 hours; the next from 2026-01-02 " in said(world)[0]
    assert runs(world) == [FIRST, "by-hand"]
    world.clock.pass_by(hours=24)
    world.until(plane, "retraining")
    assert len(runs(world)) == 3


def test_a_schedule_that_changes_is_not_due_for_times_before(world: World, plane: Plane) -> None:
    world.apply(retrain={"schedule": "0 3 * * *"})
    rounds(world, plane, 2)
    world.clock.pass_by(hours=10)
    world.apply(retrain={"schedule": "0 14 * * *"})
    rounds(world, plane, 5)
    assert runs(world) == []
    assert status(world).schedule == "0 14 * * * (UTC)"


@pytest.mark.requirement("C-03")
def test_new_events_start_a_run(world: World, plane: Plane) -> None:
    world.apply(retrain={"on": [{"new_events": 1000}], "mode": "warm"})
    world.signals.now = Signals(snapshot=world.clock.now(), events=999)
    rounds(world, plane, 3)
    assert runs(world) == []
    world.signals.now = Signals(snapshot=world.clock.now(), events=1000)
    rounds(world, plane, 2)
    assert world.runs.get(FIRST).spec.cause.startswith("new events: 1000 since ")


@pytest.mark.requirement("C-03")
def test_an_alert_is_answered_at_once_whatever_goes_on(world: World, plane: Plane) -> None:
    world.apply(retrain={"on": [{"alert": {"names": ["A"]}}]})
    world.plays["etl"] = ["hang"]
    first = Request("alert", "alertmanager", "A: it is bad", "f1@t1")
    world.retrainers.ask(NAME, first, world.clock.now())
    rounds(world, plane, 2)
    assert (runs(world), status(world).alerts) == ([FIRST], ("f1@t1",))
    assert world.retrainers.history(NAME)[-1].actor == "alertmanager"
    for key, line in (
        ("f1@t1", "already answered by a retraining"),
        ("f2@t1", f"held back: run {FIRST} of the last retraining, or its rollout, is"),
    ):
        world.retrainers.ask(NAME, replace(first, key=key), world.clock.now())
        rounds(world, plane, 2)
        assert world.row().request is None
        assert line in said(world)[0]
    assert runs(world) == [FIRST]


# Deletion


@pytest.mark.requirement("C-01")
def test_a_retrainer_retires_with_its_recommender_and_comes_back_with_the_name(world: World, plane: Plane) -> None:
    world.signals.now = DRIFT
    world.until(plane, "retraining")
    world.signals.now = CALM
    world.until(plane, "cooling")
    world.recommenders.delete(NAME, world.clock.now())
    rounds(world, plane, 30)
    assert status(world) == RetrainerStatus("retired", "its recommender was deleted", fired=1)
    world.apply()
    plane.ensure()
    world.retrainers.ask(NAME, Request("retrain", "ada"), world.clock.now())
    world.until(plane, "retraining")
    assert runs(world) == [f"{NAME}-retrain-2", FIRST], "no run's id comes twice"
    assert [entry.target for entry in world.retrainers.history(NAME)][-3:] == ["retired", "watching", "retraining"]


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("back", [False, True], ids=["for good", "and applied again at once"])
def test_a_firing_that_a_deletion_overtakes_starts_nothing(world: World, plane: Plane, back: bool) -> None:
    def strike() -> None:
        raise Death

    fate = Fate("retrainer", 0, "after intent", strike)
    dying = world.plane(fate)
    world.signals.now = DRIFT
    with pytest.raises(Death):
        rounds(world, dying, 50)
    world.recommenders.delete(NAME, world.clock.now())
    world.signals.now = CALM
    plane = world.plane()
    plane.tick("retrainer")
    assert (runs(world), status(world).state) == ([], "retraining")
    if back:
        world.apply()
        world.until(plane, "cooling")
        assert status(world).reason == f"run {FIRST} was never started: the recommender was deleted meanwhile"
    else:
        world.until(plane, "retired")
    assert runs(world) == []


@pytest.mark.requirement("U-11")
def test_a_warm_retraining_becomes_full_after_a_user_was_forgotten(world: World, plane: Plane) -> None:
    plane.forgotten.forget(NAME, 1, world.clock.now)
    world.signals.now = DRIFT
    world.plays["etl"] = ["hang"]
    rounds(world, plane, 2)
    run = world.runs.get(FIRST)
    assert run.spec.mode == "full"
    assert run.spec.cause.endswith("; full: users were forgotten after the serving version read its data")
