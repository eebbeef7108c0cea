"""A retraining that doesn't help doesn't loop."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shared.domain import retrainer
from shared.domain.backoff import counted, pause
from shared.domain.machine import Request
from shared.domain.triggers import RetrainerObservation, RetrainerStatus, RetrainPlan
from tests.support.drift_readings import look

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PLAN = RetrainPlan("warm", HOUR, drift={"psi": 0.2}, looks=1, alerts=frozenset({"A"}), new_events=10)
DRIFTING = RetrainerObservation(serving=True, drift=look(genres=0.5), applied=NOW - HOUR)
CALM = replace(DRIFTING, drift=look(9, genres=0.0))


class Story:
    """One retrainer, a minute a pass; each of its retrainings ends after one."""

    def __init__(self, promoted: bool, seen: RetrainerObservation = DRIFTING, plan: RetrainPlan = PLAN) -> None:
        self.status, self.now, self.plan = RetrainerStatus(), NOW, plan
        self.promoted, self.seen = promoted, seen
        self.firings: list[datetime] = []
        self.reasons: list[str] = []

    def goes_on(self, hours: float, request: Request | None = None) -> RetrainerStatus:
        for _ in range(int(hours * 60)):
            self.now += timedelta(minutes=1)
            seen = replace(self.seen, request=request)
            if self.status.state == "retraining":
                seen = RetrainerObservation(ended="over", promoted=self.promoted, request=request, applied=self.seen.applied)
            decision = retrainer.decide("m", self.status, seen, self.plan, self.now)
            retrainer.MACHINE.check(self.status.state, decision.next.state)
            if decision.effects:
                self.firings.append(self.now)
            if decision.next.state != self.status.state:
                self.reasons.append(decision.next.reason)
            request = None if decision.consumes_request else request
            self.status = decision.next
        return self.status


def test_the_pause_doubles_up_to_a_week() -> None:
    assert [pause(HOUR, fruitless) / HOUR for fruitless in range(6)] == [1, 1, 2, 4, 8, 16]
    assert pause(HOUR, 99) == timedelta(days=7)
    assert pause(timedelta(days=30), 99) == timedelta(days=30)
    assert pause(timedelta(0), 1) == timedelta(0)
    assert pause(timedelta(0), 3) == timedelta(minutes=4), "never a loop without any pause"


OUTCOMES: list[tuple[str, bool, int]] = [
    ("drift", False, 3),
    ("drift", True, 3),
    ("kpi", True, 3),
    ("alert", False, 3),
    ("new_events", False, 3),
    ("new_events", True, 0),
    ("new_data", True, 0),
    ("schedule", True, 0),
    ("schedule", False, 2),
    ("manual", True, 0),
    ("manual", False, 2),
    ("follow_up", True, 2),
    ("follow_up", False, 3),
]


def test_what_counts_as_not_having_helped(subtests: pytest.Subtests) -> None:
    for trigger, promoted, after in OUTCOMES:
        with subtests.test(trigger=trigger, promoted=promoted, after=after):
            assert counted(2, trigger, promoted) == after


@pytest.mark.requirement("G-13", "C-03")
@pytest.mark.parametrize("promoted", [False, True])
def test_retrainings_that_do_not_help_come_ever_later_and_then_it_alerts(promoted: bool) -> None:
    story = Story(promoted)
    status = story.goes_on(48)
    gaps = [(later - earlier) / HOUR for earlier, later in zip(story.firings, story.firings[1:], strict=False)]
    assert len(story.firings) == 3
    assert gaps == pytest.approx([1, 2], abs=0.1)
    assert status.state == "alerting"
    assert status.reason.startswith(
        "3 retrainings in a row did not help, so no run is started: find the cause, then retrain by hand; drift of genres"
    )
    assert any("over; 2 retrainings in a row did not help: backoff of 2:00:00" in reason for reason in story.reasons)
    assert story.goes_on(24 * 9).state == "alerting"
    assert len(story.firings) == 3


@pytest.mark.requirement("G-13")
def test_a_changed_spec_ends_a_pause_that_had_grown_and_what_did_not_help_is_not_counted() -> None:
    story = Story(promoted=False)
    while story.status.fruitless < 2:
        story.goes_on(0.05)
    assert story.status.state == "cooling" and story.status.until is not None
    ended = story.status.until - 2 * HOUR
    story.seen = replace(DRIFTING, applied=story.now)
    story.goes_on(0.05)
    assert (story.status.fruitless, story.status.calm_after, story.status.until) == (0, None, ended + HOUR)
    assert story.status.reason.startswith("the spec has changed: cooldown until")
    story.goes_on(1.2)
    assert len(story.firings) == 3, "after the cooldown"
    story.goes_on(0.5)
    assert story.status.fruitless == 1, "the change is older than this one"


@pytest.mark.requirement("G-13")
def test_one_that_helps_is_forgotten_when_it_has_been_calm_for_a_while() -> None:
    story = Story(promoted=True)
    assert story.goes_on(1).fruitless == 1
    story.seen = CALM
    assert story.goes_on(0.9).fruitless == 1
    assert story.goes_on(0.5).fruitless == 0
    story.seen = replace(DRIFTING, drift=look(20, genres=0.5))
    story.goes_on(0.1)
    assert len(story.firings) == 2
    assert story.goes_on(0.1).fruitless == 1


def test_what_was_measured_of_the_version_before_starts_nothing_while_the_new_one_has_no_looks_yet() -> None:
    story = Story(promoted=True, seen=replace(DRIFTING, version=1))
    assert story.goes_on(0.1).drift.moved
    story.seen = replace(DRIFTING, version=2, drift=None)
    assert story.goes_on(24).drift.moved == ()
    assert len(story.firings) == 1
    assert story.status.fruitless == 0


def test_what_was_measured_stands_while_its_version_serves_on() -> None:
    story = Story(promoted=False, seen=replace(DRIFTING, version=1))
    story.goes_on(0.1)
    story.seen = replace(DRIFTING, version=1, drift=None)
    story.goes_on(24)
    assert len(story.firings) == 3


FOLLOWED = replace(PLAN, follow_up=(timedelta(hours=6), timedelta(hours=20)))


@pytest.mark.requirement("G-13")
def test_one_that_was_promoted_is_followed_by_others_when_there_is_more_to_learn_from() -> None:
    story = Story(promoted=True, seen=replace(DRIFTING, version=1), plan=FOLLOWED)
    first = story.goes_on(0.1).firings[0].at
    story.seen = replace(DRIFTING, version=2, drift=None)
    status = story.goes_on(72)
    assert [(at - first) / HOUR for at in story.firings] == pytest.approx([0, 6, 20], abs=0.1)
    assert (status.firings[-1].trigger, status.follow, status.fruitless) == ("follow_up", (), 0)


def test_one_that_was_not_promoted_is_followed_by_none() -> None:
    story = Story(promoted=False, seen=replace(DRIFTING, version=1), plan=replace(FOLLOWED, give_up_after=1))
    assert story.goes_on(48).follow == ()
    assert len(story.firings) == 1


def test_a_retraining_by_hand_stands_for_the_follow_ups_that_are_due_and_for_no_other() -> None:
    story = Story(promoted=True, seen=replace(DRIFTING, version=1), plan=FOLLOWED)
    story.goes_on(0.1)
    story.seen = replace(DRIFTING, version=2, drift=None, busy="run x is under way")
    story.goes_on(6.5)
    story.seen = replace(story.seen, busy=None)
    status = story.goes_on(0.05, Request("retrain", "ada"))
    assert [one.trigger for one in status.firings] == ["drift", "manual"]
    story.goes_on(72)
    assert len(story.firings) == 3


def test_a_spec_without_follow_ups_lets_go_of_those_that_were_due() -> None:
    story = Story(promoted=True, seen=replace(DRIFTING, version=1), plan=FOLLOWED)
    story.goes_on(0.1)
    story.seen, story.plan = replace(DRIFTING, version=2, drift=None), PLAN
    story.goes_on(72)
    assert len(story.firings) == 1


def test_an_alert_ends_when_it_is_calm_again() -> None:
    story = Story(promoted=False)
    assert story.goes_on(48).state == "alerting"
    story.seen = CALM
    status = story.goes_on(0.1)
    assert (status.state, status.reason, status.fruitless, status.alerted) == (
        "watching",
        "backoff reset: a quiet period has passed",
        0,
        None,
    )


def test_an_alert_ends_when_the_spec_changes_and_drift_may_fire_again() -> None:
    story = Story(promoted=False)
    assert story.goes_on(48).state == "alerting"
    story.seen = replace(DRIFTING, applied=story.now)
    story.goes_on(0.1)
    assert "the spec has changed" in story.reasons
    assert len(story.firings) == 4


def test_a_person_retrains_out_of_an_alert_and_a_promotion_ends_it() -> None:
    story = Story(promoted=False)
    story.goes_on(48)
    story.promoted = True
    story.goes_on(0.05, Request("retrain", "ada"))
    assert len(story.firings) == 4
    assert (story.status.fruitless, story.status.alerted) == (0, None)


def test_new_events_still_start_a_run_out_of_an_alert() -> None:
    story = Story(promoted=False)
    story.goes_on(48)
    story.seen = replace(DRIFTING, snapshot=NOW, events=10)
    story.goes_on(0.05)
    assert len(story.firings) == 4
    assert story.status.firings[-1].trigger == "new_events"


@pytest.mark.requirement("C-03")
def test_alerts_of_the_outside_do_not_loop_either_and_are_told_why() -> None:
    story = Story(promoted=False, seen=CALM)
    for number in range(30):
        story.goes_on(1.2, Request("alert", "alertmanager", "A", f"k{number}"))
    assert len(story.firings) < 15
    story.goes_on(0.1, Request("alert", "alertmanager", "A", "last"))
    seen = replace(CALM, request=Request("alert", "alertmanager", "A", "another"))
    alerting = replace(story.status, state="alerting", fruitless=3, alerted=story.now, calm_after=story.now + HOUR)
    held = retrainer.decide("m", alerting, seen, PLAN, story.now)
    assert held.consumes_request
    assert held.note.endswith("held back: 3 retrainings in a row did not help")


def test_new_events_whose_runs_fail_come_ever_later_and_never_alert() -> None:
    story = Story(promoted=False, seen=replace(CALM, snapshot=NOW, events=10))
    assert story.goes_on(24 * 7).state != "alerting"
    assert 5 <= len(story.firings) <= 8


def test_how_many_are_too_many_is_the_plans() -> None:
    story = Story(promoted=False, plan=replace(PLAN, give_up_after=1))
    assert story.goes_on(3).state == "alerting"
    assert len(story.firings) == 1
