"""What starts a retraining, and what holds it back: decision by decision, then over random timelines against an oracle."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.codec import decode, encode
from shared.domain import retrainer
from shared.domain.cron import Cron
from shared.domain.machine import Request
from shared.domain.retrainer import RetrainerDecision
from shared.domain.triggers import Firing, RetrainerObservation, RetrainerStatus, RetrainPlan, Schedule
from tests.support.drift_readings import fell, look

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
FREE = RetrainerObservation(serving=True, applied=NOW - timedelta(days=9))
BUSY = replace(FREE, busy="run r1 is under way")


def schedule(text: str = "0 * * * *", misfire: Literal["run_once", "skip"] = "run_once", **rest: Any) -> Schedule:
    return Schedule(Cron.parse(text), rest.pop("zone", "UTC"), rest.pop("mode", "full"), misfire, **rest)


def plan(**values: Any) -> RetrainPlan:
    return RetrainPlan(**({"mode": "warm", "cooldown": HOUR} | values))


def watching(one: RetrainPlan, settled: datetime = NOW, **values: Any) -> RetrainerStatus:
    assert one.schedule is not None
    return RetrainerStatus(schedule=one.schedule.key, settled=settled, **values)


def decide(status: RetrainerStatus, seen: RetrainerObservation, one: RetrainPlan, now: datetime = NOW) -> RetrainerDecision:
    decision = retrainer.decide("m", status, seen, one, now)
    assert decode(RetrainerStatus, encode(RetrainerStatus, decision.next)) == decision.next
    if not decision.effects:
        again = retrainer.decide("m", decision.next, replace(seen, request=None) if decision.consumes_request else seen, one, now)
        if decision.next.state == status.state and not again.effects:
            assert (again.next, again.note) == (decision.next, ""), "what is said once is not said again"
    return decision


def started(decision: RetrainerDecision) -> tuple[str, str]:
    (effect,) = decision.effects
    return effect.trigger, effect.mode


# Schedule


@pytest.mark.requirement("C-03")
def test_a_due_time_starts_a_run_once() -> None:
    one = plan(schedule=schedule(mode="full"))
    status = watching(one)
    assert not decide(status, FREE, one, NOW + 59 * MINUTE).effects
    fired = decide(status, FREE, one, NOW + HOUR)
    assert started(fired) == ("schedule", "full")
    assert fired.next.reason == "schedule 0 * * * * (UTC): due 2026-03-10 13:00:00 UTC"
    assert (fired.next.settled, fired.next.firings) == (NOW + HOUR, (Firing(NOW + HOUR, "schedule", "m-retrain-1"),))


def test_a_schedule_is_read_on_the_clock_of_its_zone() -> None:
    one = plan(schedule=schedule("30 2 * * *", zone="Europe/Berlin"))
    status = watching(one, datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert not decide(status, FREE, one, datetime(2026, 3, 29, 0, 59, tzinfo=UTC)).effects
    assert decide(status, FREE, one, datetime(2026, 3, 29, 1, tzinfo=UTC)).effects, "02:30 was skipped: right after the gap"


@pytest.mark.requirement("C-03")
def test_due_times_missed_while_the_platform_was_down_start_one_run() -> None:
    one = plan(schedule=schedule())
    fired = decide(watching(one), FREE, one, NOW + 10 * HOUR + 20 * MINUTE)
    assert started(fired)[0] == "schedule"
    cooled = replace(fired.next, state="watching", run=None)
    assert not decide(cooled, FREE, one, NOW + 10 * HOUR + 30 * MINUTE).effects


@pytest.mark.requirement("C-03")
def test_a_schedule_that_skips_lets_missed_due_times_go_and_says_so() -> None:
    one = plan(schedule=schedule(misfire="skip"))
    skipped = decide(watching(one), FREE, one, NOW + 10 * HOUR + 20 * MINUTE)
    assert not skipped.effects
    assert skipped.note == "schedule 0 * * * * (UTC): due 2026-03-10 22:00:00 UTC, dropped: 0:20:00 late"
    assert skipped.next.held[0].dropped
    assert started(decide(skipped.next, FREE, one, NOW + 11 * HOUR + 2 * timedelta(seconds=1)))[0] == "schedule"


@pytest.mark.parametrize("misfire", ["run_once", "skip"])
def test_the_grace_says_how_old_a_due_time_may_be(misfire: Literal["run_once", "skip"]) -> None:
    one = plan(schedule=schedule("0 3 * * *", misfire, grace=30 * MINUTE))
    due = datetime(2026, 3, 11, 3, tzinfo=UTC)
    assert decide(watching(one), FREE, one, due + 30 * MINUTE).effects
    gone = decide(watching(one), FREE, one, due + 31 * MINUTE)
    assert not gone.effects
    assert gone.next.settled == due


@pytest.mark.requirement("C-03")
def test_what_is_under_way_holds_a_due_time_back_until_it_ends() -> None:
    one = plan(schedule=schedule())
    held = decide(watching(one), BUSY, one, NOW + HOUR)
    assert held.note == "schedule 0 * * * * (UTC): due 2026-03-10 13:00:00 UTC, held back: run r1 is under way"
    assert (held.next.reason, held.next.held[0].trigger) == (held.note, "schedule")
    assert not decide(held.next, BUSY, one, NOW + 3 * HOUR).note
    fired = decide(held.next, FREE, one, NOW + 90 * MINUTE)
    assert started(fired)[0] == "schedule"
    assert fired.next.held == ()


def test_what_is_under_way_makes_a_schedule_that_skips_wait_for_its_next_due_time() -> None:
    one = plan(schedule=schedule(misfire="skip"))
    gone = decide(watching(one), BUSY, one, NOW + HOUR)
    assert gone.note.endswith("dropped: run r1 is under way")
    assert not decide(gone.next, FREE, one, NOW + HOUR + timedelta(seconds=1)).effects
    assert decide(gone.next, FREE, one, NOW + 2 * HOUR).effects


def test_each_new_reason_is_said_once() -> None:
    one = plan(schedule=schedule())
    status, notes = watching(one), []
    running = replace(status, state="retraining", run="m-retrain-1")
    for seen, at in ((FREE, 61), (FREE, 62), (replace(FREE, ended="promoted"), 63), (FREE, 64), (BUSY, 65), (FREE, 66)):
        decision = decide(running, seen, one, NOW + at * MINUTE)
        notes.append(decision.note.partition(", held back: ")[2])
        running = decision.next
    assert notes == [
        "run m-retrain-1 of the last retraining, or its rollout, is under way",
        "",
        "",
        "cooldown until 2026-03-10 14:03:00 UTC",
        "run r1 is under way",
        "cooldown until 2026-03-10 14:03:00 UTC",
    ]


def test_a_changed_schedule_is_due_only_after_the_change() -> None:
    before, after = plan(schedule=schedule("0 12 * * *")), plan(schedule=schedule("0 9 * * *"))
    changed = replace(FREE, applied=NOW + 5 * MINUTE)
    adopted = decide(watching(before, NOW - timedelta(days=40)), changed, after, NOW + 6 * MINUTE)
    assert not adopted.effects
    assert adopted.next.settled == NOW + 5 * MINUTE
    assert not decide(watching(before), changed, plan(schedule=schedule("0 12 * * *", zone="Asia/Kathmandu")), NOW + 6 * MINUTE).effects
    assert decide(adopted.next, changed, plan(), NOW + HOUR).next == RetrainerStatus(), "it is gone"


def test_a_change_that_the_controller_sees_late_still_counts_from_the_change() -> None:
    one = plan(schedule=schedule())
    assert decide(RetrainerStatus(), replace(FREE, applied=NOW + MINUTE), one, NOW + 3 * HOUR).effects
    assert not decide(RetrainerStatus(), replace(FREE, applied=NOW + MINUTE), one, NOW + 30 * MINUTE).effects


def test_a_scheduled_run_is_full_where_nothing_serves_that_it_could_start_from() -> None:
    one = plan(schedule=schedule(mode="warm"))
    assert started(decide(watching(one), FREE, one, NOW + HOUR)) == ("schedule", "warm")
    assert started(decide(watching(one), replace(FREE, serving=False), one, NOW + HOUR)) == ("schedule", "full")


@pytest.mark.requirement("G-09")
def test_warm_on_drift_full_on_a_fall_of_the_hit_rate_and_full_by_the_calendar() -> None:
    one = plan(drift={"psi": 0.2}, looks=1, kpi={"hit_rate": 0.1}, schedule=schedule("0 3 * * SUN", mode="full"))
    status = watching(one)
    seen = replace(FREE, kpi=fell(0.5, 0.4))
    fallen = replace(FREE, kpi=fell(0.5, 0.4, 1))
    assert started(decide(status, replace(FREE, drift=look(genres=0.3)), one)) == ("drift", "warm")
    assert started(decide(decide(status, seen, one).next, fallen, one)) == ("kpi", "full")
    assert started(decide(status, FREE, one, datetime(2026, 3, 15, 3, tzinfo=UTC))) == ("schedule", "full")


# New data


@pytest.mark.requirement("C-03")
def test_so_many_new_events_start_a_run() -> None:
    one = plan(new_events=1000, new_events_mode="full")
    seen = replace(FREE, snapshot=NOW - HOUR, events=999)
    assert not decide(RetrainerStatus(), seen, one).effects
    fired = decide(RetrainerStatus(), replace(seen, events=1000), one)
    assert started(fired) == ("new_events", "full")
    assert fired.next.reason == "new events: 1000 since 2026-03-10 11:00:00 UTC (threshold 1000)"


@pytest.mark.requirement("C-03")
def test_so_much_time_starts_a_run_if_there_is_anything_new() -> None:
    one = plan(new_data=24 * HOUR)
    seen = replace(FREE, snapshot=NOW - 24 * HOUR, events=1)
    assert started(decide(RetrainerStatus(), seen, one)) == ("new_data", "warm")
    assert not decide(RetrainerStatus(), replace(seen, events=0), one).effects
    assert not decide(RetrainerStatus(), replace(seen, snapshot=NOW - 23 * HOUR), one).effects
    assert not decide(RetrainerStatus(), replace(seen, snapshot=None, events=None), one).effects


# Cooldown, maximum, alerts, people


@pytest.mark.requirement("C-03")
def test_the_cooldown_holds_a_trigger_back_and_says_until_when() -> None:
    one = plan(drift={"psi": 0.2}, looks=1)
    cooling = RetrainerStatus("cooling", "promoted", "m-retrain-1", NOW + HOUR, 1)
    drifting = replace(FREE, drift=look(genres=0.3))
    held = decide(cooling, drifting, one)
    assert held.note.endswith("held back: cooldown until 2026-03-10 13:00:00 UTC")
    assert (held.next.state, held.next.reason) == ("cooling", "promoted")
    calm = decide(held.next, FREE, one, NOW + MINUTE)
    assert calm.next == held.next, "a value that wavers about its threshold writes nothing"
    assert decide(calm.next, replace(FREE, drift=look(1, genres=0.31)), one, NOW + 2 * MINUTE).next == held.next
    assert decide(calm.next, replace(FREE, drift=look(1, genres=0.15)), one, NOW + 2 * MINUTE).next == held.next


@pytest.mark.requirement("C-03")
def test_no_more_than_the_maximum_in_any_24_hours() -> None:
    one = plan(drift={"psi": 0.2}, looks=1, max_per_day=2)
    drifting = replace(FREE, drift=look(genres=0.3))
    firings = tuple(Firing(NOW - hours * HOUR, trigger, "r") for hours, trigger in ((30, "kpi"), (20, "kpi"), (9, "manual"), (5, "drift")))
    held = decide(RetrainerStatus(firings=firings), drifting, one)
    assert held.note.endswith("held back: 2 of 2 retrainings in 24 hours; the next from 2026-03-10 16:00:00 UTC")
    assert not decide(held.next, drifting, one, NOW + 4 * HOUR - timedelta(seconds=1)).effects
    assert started(decide(held.next, drifting, one, NOW + 4 * HOUR))[0] == "drift"
    asked = replace(drifting, request=Request("retrain", "ada"))
    assert started(decide(held.next, asked, one)) == ("manual", "warm")


def test_a_person_waits_for_what_is_under_way_alone() -> None:
    one = plan(max_per_day=1)
    asked = replace(FREE, request=Request("retrain", "ada"))
    cooling = RetrainerStatus("cooling", "promoted", "m-retrain-1", NOW + HOUR, 1, firings=(Firing(NOW - HOUR, "kpi", "r"),))
    assert started(decide(cooling, asked, one))[0] == "manual"
    waits = decide(cooling, replace(asked, busy="run r1 is under way"), one)
    assert not waits.effects
    assert not waits.consumes_request
    assert waits.note == "retrain by ada, held back: run r1 is under way"


ALERT = Request("alert", "alertmanager", "HitRateLow: it fell", "f1@2026")


@pytest.mark.requirement("C-03")
def test_an_alert_starts_a_run_once_however_often_it_is_delivered() -> None:
    one = plan(alert_mode="full", alerts=frozenset({"HitRateLow"}))
    fired = decide(RetrainerStatus(), replace(FREE, request=ALERT), one)
    assert started(fired) == ("alert", "full")
    assert fired.consumes_request
    assert fired.next.reason == "alert by alertmanager: HitRateLow: it fell"
    again = decide(replace(fired.next, state="watching"), replace(FREE, request=ALERT), one)
    assert again.consumes_request
    assert not again.effects
    other = decide(replace(fired.next, state="watching"), replace(FREE, request=replace(ALERT, key="f1@2027")), one)
    assert other.effects


HELD_BACK: list[tuple[RetrainerStatus, RetrainerObservation]] = [
    (RetrainerStatus(), BUSY),
    (RetrainerStatus(), replace(FREE, serving=False)),
    (RetrainerStatus("cooling", "promoted", "r", NOW + HOUR), FREE),
    (RetrainerStatus("retraining", "drift", "r"), FREE),
    (RetrainerStatus(firings=(Firing(NOW, "kpi", "r"),)), FREE),
]


@pytest.mark.requirement("C-03")
def test_an_alert_that_is_held_back_is_answered_and_may_come_again(subtests: pytest.Subtests) -> None:
    for status, seen in HELD_BACK:
        with subtests.test(status=status, seen=seen):
            one = plan(max_per_day=1)
            held = decide(status, replace(seen, request=ALERT), one)
            assert held.consumes_request
            assert "HitRateLow" in held.note
            assert "held back: " in held.note
            assert held.next.alerts == ()
            assert held.next.held[-1].key == ALERT.key
            free = RetrainerStatus()
            assert decide(free, replace(FREE, request=ALERT), one).effects


def test_what_is_remembered_is_bounded() -> None:
    status = RetrainerStatus()
    for number in range(300):
        now = NOW + number * MINUTE
        request = Request("alert", "alertmanager", "A", f"k{number}") if number % 3 else Request("retrain", "ada")
        status = replace(decide(status, replace(FREE, request=request), plan(), now).next, state="watching")
    assert len(status.alerts) == retrainer.KEPT_ALERTS
    assert len(status.firings) == retrainer.KEPT_FIRINGS
    assert status.alerts[-1] == "k299"
    assert status.firings[-1].at == NOW + 299 * MINUTE


# Random timelines


@dataclass
class Story:
    """Minutes during which something is so."""

    down: list[tuple[int, int]]
    busy: list[tuple[int, int]]
    drifting: list[tuple[int, int]]
    asked: list[int]
    lasts: int
    """Minutes that each retraining takes."""

    @staticmethod
    def during(stretches: list[tuple[int, int]], minute: int) -> bool:
        return any(start <= minute < start + length for start, length in stretches)


@dataclass
class Lived:
    firings: list[tuple[int, str]] = field(default_factory=list)
    writes: int = 0


LENGTH = 2 * 24 * 60
STEP = 3
"""Minutes between two passes."""
stretches = st.lists(st.tuples(st.integers(0, LENGTH), st.integers(1, 600)), max_size=4)
stories = st.builds(
    Story,
    down=stretches,
    busy=stretches,
    drifting=stretches,
    asked=st.lists(st.integers(0, LENGTH), max_size=3, unique=True),
    lasts=st.integers(1, 300),
)
plans = st.builds(
    plan,
    schedule=st.builds(
        Schedule,
        st.sampled_from(["0 3 * * *", "*/30 * * * *", "17 */6 * * *", "30 2 * * *", "0 8-18/2 * * SUN"]).map(Cron.parse),
        st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
        st.just("full"),
        st.sampled_from(["run_once", "skip"]),
        st.none() | st.integers(1, 400).map(lambda minutes: timedelta(minutes=minutes)),
    ),
    drift=st.none() | st.just({"psi": 0.2}),
    looks=st.just(1),
    give_up_after=st.just(1000),
    max_per_day=st.none() | st.integers(1, 3),
    cooldown=st.integers(1, 500).map(lambda minutes: timedelta(minutes=minutes)),
)
BEGIN = datetime(2026, 3, 28, 0, 0, tzinfo=UTC)  # summer time begins in Berlin on the next day


def lived(story: Story, one: RetrainPlan) -> Lived:
    """The machine, while the platform is up; runs end by themselves, whether it is up or not."""
    status, found, ends = RetrainerStatus(), Lived(), 0
    asked = sorted(story.asked)
    for minute in range(0, LENGTH, STEP):
        if story.during(story.down, minute):
            continue
        now = BEGIN + minute * MINUTE
        for _ in range(5):  # after an hour away: ended, rested, calm, fired; a pass more changes nothing
            request = Request("retrain", "ada") if asked and asked[0] <= minute else None
            seen = RetrainerObservation(
                request,
                busy="a run by hand" if story.during(story.busy, minute) else None,
                serving=True,
                ended="promoted" if status.state == "retraining" and minute >= ends else None,
                drift=look(now, genres=0.5 if story.during(story.drifting, minute) else 0.0),
                promoted=True,
                applied=BEGIN,
            )
            decision = retrainer.decide("m", status, seen, one, now)
            found.writes += decision.next != status
            if decision.effects:
                assert status.state != "retraining", "one at a time"
                assert seen.busy is None
                ends = minute + story.lasts
                found.firings.append((minute, decision.effects[0].trigger))
            if decision.consumes_request:
                asked.pop(0)
            retrainer.MACHINE.check(status.state, decision.next.state)
            if decision.next == status and not decision.effects and not decision.consumes_request:
                break  # the next pass would see and decide the same
            status = decision.next
    return found


def told(story: Story, one: RetrainPlan) -> list[tuple[int, str]]:
    """The oracle: the same in plain words, with a list of every due minute."""
    assert one.schedule is not None
    zone, cron = ZoneInfo(one.schedule.zone), one.schedule.cron
    dues, instant = [], BEGIN
    while (instant := cron.next_after(instant, zone)) < BEGIN + LENGTH * MINUTE:
        dues.append((instant - BEGIN) // MINUTE)
    skips = one.schedule.misfire == "skip"
    grace = one.schedule.grace // MINUTE if one.schedule.grace else 1 if skips else LENGTH
    cooldown = one.cooldown // MINUTE
    fired: list[tuple[int, str]] = []
    asked = sorted(story.asked)
    running_until = cooling_until = calm_after = None
    fruitless, drifts = 0, False
    for minute in range(0, LENGTH, STEP):
        if story.during(story.down, minute):
            continue
        if running_until is not None and minute >= running_until:
            fruitless = fruitless + 1 if fired[-1][1] == "drift" else 0
            rest = cooldown * 2 ** max(fruitless - 1, 0)
            running_until, cooling_until, calm_after = None, minute + rest, minute + 2 * rest
        if cooling_until is not None and minute >= cooling_until:
            cooling_until = None
        if running_until is None:
            drifts = one.drift is not None and story.during(story.drifting, minute)
            if cooling_until is None and calm_after is not None and minute >= calm_after and not drifts:
                fruitless = 0
        due = [one for one in dues if one <= minute]
        dues = dues[len(due) :]
        waiting = due[-1:]
        flight = running_until is not None or story.during(story.busy, minute)
        by_day = [at for at, trigger in fired if trigger != "manual" and at > minute - 24 * 60]
        full = one.max_per_day is not None and len(by_day) >= one.max_per_day
        rests = cooling_until is not None or full
        starts = None
        if asked and asked[0] <= minute and not flight:
            asked.pop(0)
            starts = "manual"
        elif waiting and minute - waiting[0] <= grace and not flight and not rests:
            starts, waiting = "schedule", []
        elif one.drift is not None and story.during(story.drifting, minute) and not flight and not rests:
            starts = "drift"
        if starts:
            fired.append((minute, starts))
            running_until, cooling_until = minute + story.lasts, None
        if waiting and not skips and minute - waiting[0] <= grace:
            dues = waiting + dues  # held back: looked at again
    return fired


@pytest.mark.requirement("C-03")
@settings(max_examples=40, deadline=None)
@given(stories, plans)
def test_over_any_timeline_runs_start_when_an_oracle_says(story: Story, one: RetrainPlan) -> None:
    found = lived(story, one)
    assert found.firings == told(story, one)
    if one.max_per_day is not None:
        automatic = [minute for minute, trigger in found.firings if trigger != "manual"]
        for first in automatic:
            assert sum(first <= other < first + 24 * 60 for other in automatic) <= one.max_per_day
    assert one.schedule is not None
    changes = 2 * sum(map(len, (story.down, story.busy, story.drifting))) + len(story.asked) + 4 * len(found.firings) + 2
    scheduled = 0
    instant = BEGIN
    while (instant := one.schedule.next(instant)) < BEGIN + LENGTH * MINUTE:
        scheduled += 1
    assert found.writes <= 3 * changes + 2 * scheduled, "a pass that finds nothing new writes nothing"
