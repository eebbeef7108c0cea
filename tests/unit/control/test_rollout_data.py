"""Rollouts in the loop and the data: guardrails, shadows and the split judge what the stores say; what can't be seen promotes nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.eventlog.kpis import SqlKpis
from services.store.shadow_totals import SqlShadowTotals
from shared.contracts.events import NO_SCORES, Impression
from shared.contracts.records import RolloutSpec
from shared.domain.errors import Unavailable
from shared.domain.machine import Request
from shared.domain.route import Route
from shared.domain.traffic import ShadowCounts
from shared.run_factory import back_rollout
from tests.support.simulated_platform import NAME, World
from tests.unit.control.test_rollouts import SERVED, route

ANALYSIS = {"attribution": "1s", "window": "1s", "max_harm": "30%", "min_users": 30, "min_answers": 30, "deadline": "30s", "every": "1s"}


@pytest.fixture
def second(world: World) -> World:
    world.serve(world.version())
    world.version()
    return world


def start(world: World, **rollout: Any) -> Any:
    world.apply(rollout={"steps": ["20%", "50%"], "analysis": ANALYSIS, **rollout})
    world.start_rollout(2)
    return world.plane()


def answer(world: World, variant: str, count: int, **how: Any) -> None:
    """So many more answers of a variant under the present route, each to another user."""
    now = world.routes.get(NAME)
    assert now is not None
    version = now.stable if variant == "stable" else now.candidate
    common: dict[str, Any] = {"recommender": NAME, "version": version, "variant": variant, "generation": now.generation, "step": now.step}
    started = len(world.writes)
    world.events.impressions(
        [
            Impression(request_id=f"more-{variant}-{started}-{n}", user=10_000 + n, items=(n,), at=world.clock.now(), **common, **how)
            for n in range(count)
        ]
    )


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize(
    ("broken", "said"),
    [({"fallback": NO_SCORES}, "errors < 1.00% is broken"), ({"bucket": 80, "score": 0.5}, "latency_p99 < 2x is broken")],
)
def test_a_candidate_that_breaks_a_guardrail_is_gone_after_two_looks(second: World, broken: dict[str, Any], said: str) -> None:
    plane = start(second)
    second.until(plane, "canary", *SERVED)
    answer(second, "stable", 160, bucket=60, score=0.5)
    answer(second, "candidate", 40, **broken)
    for _ in range(4):  # one for the route, one for the step to begin, two looks
        second.round(plane, *SERVED)
    assert second.row().status.state == "rolled_back"
    assert said in second.row().status.reason
    assert route(second) == (1, None, 0.0)


def test_a_split_that_is_not_as_asked_pauses(second: World) -> None:
    plane = start(second)
    second.until(plane, "canary", *SERVED)
    answer(second, "candidate", 300, bucket=60, score=0.5)
    second.until(plane, "paused", *SERVED)
    assert "the split of users is not as expected" in second.row().status.reason
    assert route(second) == (1, 2, 0.2)


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("question", ["samples", "traffic"])
def test_what_cannot_be_counted_pauses_and_says_why(second: World, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise Unavailable("the database doesn't answer")

    monkeypatch.setattr(SqlKpis, question, away)
    plane = start(second)
    second.until(plane, "paused", *SERVED)
    assert second.row().status.reason == "users' events cannot be counted: the database doesn't answer"
    monkeypatch.undo()
    second.ask("resume")
    second.until(plane, "promoted", *SERVED)


@pytest.mark.requirement("C-05")
def test_without_events_it_pauses_and_is_never_promoted(second: World) -> None:
    second.users = 0
    plane = start(second)
    second.until(plane, "paused", *SERVED)
    assert "inconclusive at the deadline of 30 s: 0 of 30 users" in second.row().status.reason
    assert route(second) == (1, 2, 0.2)


@pytest.mark.requirement("C-05", "T-13")
def test_a_shadow_shows_nothing_to_anybody_before_it_has_passed(second: World) -> None:
    plane = start(second, shadow="5s")
    seen = []
    while second.row().status.state != "promoted":
        second.round(plane, *SERVED)
        now = second.routes.get(NAME)
        assert now is not None
        seen.append((now.stable, now.candidate, now.weight, now.shadow))
    assert list(dict.fromkeys(seen)) == [
        (1, None, 0.0, False),
        (1, 2, 0.0, True),
        (1, 2, 0.2, False),
        (1, 2, 0.5, False),
        (2, None, 0.0, False),
    ]
    shadow = second.row().status.shadow
    assert (shadow.compared, shadow.errors, shadow.overlap, shadow.judgement.verdict) == (200, 0, 0.75, "pass")


def test_a_shadow_that_compared_too_little_pauses_and_one_that_cannot_be_counted_too(
    second: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    second.mirrored = ShadowCounts(3, 0, {60: 3}, {60: 3}, 3.0)
    plane = start(second, shadow="5s")
    second.until(plane, "paused", *SERVED)
    assert "inconclusive after 5 s in the shadow" in second.row().status.reason

    def away(*_: Any) -> Any:
        raise Unavailable("the database doesn't answer")

    monkeypatch.setattr(SqlShadowTotals, "total", away)
    second.ask("resume")
    second.until(plane, "shadow", *SERVED)
    second.until(plane, "paused", *SERVED)
    assert second.row().status.reason == "answers of the shadow cannot be counted: the database doesn't answer"


def test_what_the_stable_version_earned_before_the_step_is_kept(second: World) -> None:
    """Answers that came before the step's route, and only those."""
    second.events.impressions([])
    answer(second, "stable", 10, bucket=60)
    second.visit(Route(1, generation=1), "stable", 1)
    second.clock.pass_by(seconds=30)
    plane = start(second)
    second.until(plane, "canary", *SERVED)
    for _ in range(2):
        second.round(plane, *SERVED)
    status = second.row().status
    assert (status.base, status.base_of) == (40 / 50, 0)


@pytest.mark.requirement("C-05")
def test_going_back_to_what_is_not_loaded_loads_it_first_and_then_moves_everybody(second: World) -> None:
    second.serve(2)
    second.clock.pass_by(days=2)
    plane = second.plane()
    plane.tick("placement")
    assert second.fake_server.answering(NAME) == {2}
    second.apply()
    second.fake_server.silent.add((NAME, 1))
    asked = Request("rollback", "bob", "it smells")
    second.rollouts.create(back_rollout(second.recommenders.get(NAME), 1, "back", asked, second.clock.now()), "bob")
    second.hero = ("rollout", "back")
    for _ in range(10):
        second.round(plane, *SERVED)
    assert (second.row().status.state, route(second)) == ("loading", (2, None, 0.0))
    second.fake_server.silent.clear()
    second.until(plane, "promoted", *SERVED)
    assert second.path() == ["pending", "loading", "promoted"]
    assert route(second) == (1, None, 0.0)
    assert second.routes.history(NAME, 1)[0].actor == "bob"


def test_a_version_to_go_back_to_that_does_not_load_leaves_everybody_where_they_are(second: World) -> None:
    second.serve(2)
    second.fake_server.broken[NAME, 1] = "corrupt"
    second.apply(rollout={"keep_warm": "1s"})
    second.clock.pass_by(minutes=5)
    asked = Request("rollback", "bob")
    second.rollouts.create(back_rollout(second.recommenders.get(NAME), 1, "back", asked, second.clock.now()), "bob")
    second.hero = ("rollout", "back")
    second.until(second.plane(), "rolled_back", *SERVED)
    assert "cannot be loaded: corrupt" in second.row().status.reason
    assert route(second) == (2, None, 0.0)


def test_a_rollout_that_was_under_way_before_the_upgrade_is_judged_by_todays_defaults(second: World) -> None:
    """Its spec says nothing of what is new."""
    plane = second.plane()
    document = second.spec.document()
    new = ("shadow", "progress", "keep_warm")
    rollout = {name: value for name, value in document["rollout"].items() if name not in new}
    old = ("goal", "attribution", "window", "max_harm", "min_users", "deadline")
    rollout["analysis"] = {name: rollout["analysis"][name] for name in old}
    made = second.start_rollout(2)
    spec = RolloutSpec(2, document | {"rollout": rollout})
    second.rollouts.commit(made, made.status, due_at=second.clock.now(), entry=None, finished=True, clear_request=False)
    second.rollouts.create(replace(made, id="old", spec=spec), "ada")
    second.hero = ("rollout", "old")
    second.until(plane, "canary", *SERVED)
    for _ in range(34):
        second.round(plane, *SERVED)
    status = second.row().status
    assert (status.state, status.step) == ("canary", 0)
    assert status.looked_at is not None, "every 30 s"
    (report,) = status.reports
    assert [check.name for check in report.checks] == ["split", "errors", "latency_p50", "latency_p99", "fallback", "empty"]
    assert "40 of 100 answers in the smaller variant" in status.reason
