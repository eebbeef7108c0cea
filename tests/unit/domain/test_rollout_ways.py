"""Rollouts through random worlds: whatever servers, gateways, data and people do, in whatever order, some things never happen."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shared.domain import rollout
from shared.domain.gate import Verdict
from shared.domain.guardrail import Guardrail
from shared.domain.machine import Request
from shared.domain.rollout import RolloutObservation, RolloutStatus, due
from shared.domain.rollout_plan import RolloutPlan, ShadowPlan, StepPlan
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.domain.step_analysis import StepLook
from shared.domain.traffic import ShadowCounts, Traffic

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RAILS = (Guardrail("errors", 0.01), Guardrail("latency_p99", 2.0, relative=True), Guardrail("coverage", 0.5, relative=True))
VERBS = ("pause", "resume", "skip", "promote", "abort", "explode")
WAYS = 150


@pytest.fixture(autouse=True)
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are for people and cost more than all the rest; no decision rests on them."""
    monkeypatch.setattr("shared.domain.sequential_test.bounds", lambda *_, **__: (-1.0, 1.0))


def plan(dice: random.Random) -> RolloutPlan:
    weights = sorted(dice.sample([0.01, 0.05, 0.1, 0.25, 0.5, 0.9], dice.randint(1, 4)))
    longest, shortest = dice.choice([2, 30]) * MINUTE, dice.choice([0, 2]) * MINUTE
    steps = tuple(StepPlan(weight, max=longest, min=shortest, min_users=30, min_answers=30) for weight in weights)
    return RolloutPlan(
        steps,
        max_harm=dice.choice([0.02, 0.3]),
        shadow=ShadowPlan(3 * MINUTE, 30) if dice.random() < 0.5 else None,
        every=MINUTE,
        failures=dice.choice([1, 3]),
        inconclusive=dice.choice([None, 4]),
        progress=3 * MINUTE,
        guardrails=RAILS[: dice.randint(0, 3)],
        goal=dice.choice(["hit_rate", "conversion"]),
    )


class World:
    """Keeps the route, as the store does; the rest is dice."""

    def __init__(self, dice: random.Random, data: str) -> None:
        self.dice = dice
        self.data = data
        self.plan = plan(dice)
        self.now = NOW
        self.route = Route(1)
        self.status = RolloutStatus()
        self.counts = [0, 0]

    def look(self) -> StepLook:
        if self.data == "none" or self.dice.random() < 0.01:
            return StepLook(fault="away")
        weight = self.route.weight
        if self.data == "silence":
            return StepLook((VariantSample(), VariantSample()), (Traffic(), Traffic()), ShadowCounts())
        come = self.dice.choice([0, 50, 2000])
        self.counts = [self.counts[0] + round(come * (1 - weight)), self.counts[1] + round(come * weight)]
        rate = 0.0 if self.data == "unloved" else 0.4
        theirs = self.dice.choice([rate, rate / 2]) if self.data == "any" else rate
        samples = [self._sample(count, each) for count, each in zip(self.counts, (rate, theirs), strict=True)]
        same = min(self.counts)
        bucket = self.dice.choice([60, 60, 60, 90]) if self.data == "any" else 60
        answers = [Traffic(n, n, 0, {where: n}, looked=same, shown=same) for n, where in zip(self.counts, (60, bucket), strict=True)]
        compared = sum(self.counts) + come
        mirror = ShadowCounts(compared, 0, {60: compared}, {bucket: compared}, compared / 2)
        return StepLook((samples[0], samples[1]), (answers[0], answers[1]), mirror)

    def _sample(self, users: int, rate: float) -> VariantSample:
        hits = round(users * rate)
        return VariantSample(users, hits, hits, users, hits, hits)

    def observe(self, request: Request | None) -> RolloutObservation:
        status, dice = self.status, self.dice
        away = {version for version in (1, 2) if self.data != "good" and dice.random() < 0.05}
        ours = (self.route.step, self.route.shadow) == (status.step, status.state == "shadow") and self.route.candidate == 2
        looks = ours and due(status, self.plan, self.now)
        return RolloutObservation(
            request,
            stable=1 if self.route.stable == 1 else None,
            serves=self.route.stable == 2,
            answering=frozenset({1, 2} - away),
            ours=ours,
            routed=dice.random() < 0.7,
            missing="gateway g",
            base=dice.choice([None, 0.4]),
            look=self.look() if looks else None,
        )

    def go(self, asked: Request | None = None) -> rollout.RolloutDecision:
        decision = rollout.decide("o1", 2, self.status, self.observe(asked), self.plan, self.now)
        rollout.MACHINE.check(self.status.state, decision.next.state)
        for effect in decision.effects:
            if replace(effect.route, generation=self.route.generation) != self.route:
                self.route = replace(effect.route, generation=self.route.generation + 1)
                self.counts = [0, 0]
        self.status = decision.next
        self.now += timedelta(seconds=self.dice.choice([1, 10, 60]))
        return decision


@pytest.mark.requirement("C-05", "G-11")
@pytest.mark.parametrize("data", ["none", "silence", "unloved"])
def test_without_data_nothing_is_ever_promoted_by_itself(data: str) -> None:
    ends = set()
    for way in range(WAYS):
        world = World(random.Random(way), data)
        for _ in range(300):
            before = world.status
            decision = world.go()
            assert decision.next.state != "promoted", (way, before, decision.next)
            assert decision.next.step <= 0 or data == "unloved", "no step passes without data"
            if decision.next.state in ("paused", "rolled_back"):
                break
        assert world.route.weight <= world.plan.steps[0].weight or data == "unloved"
        ends.add(world.status.state)
    assert ends == {"paused", "rolled_back"}


@pytest.mark.requirement("C-05")
def test_whatever_happens_weights_are_as_asked_and_only_rise_under_one_rollout() -> None:
    ends = set()
    for way in range(WAYS):
        world = World(random.Random(way), "any")
        asked_for = {0.0, *(step.weight for step in world.plan.steps)}
        highest = 0.0
        for _ in range(300):
            verb = world.dice.choice(VERBS) if world.dice.random() < 0.05 else None
            before = world.status
            world.go(Request(verb, "ada") if verb else None)
            assert world.route.weight in asked_for
            if world.route.candidate is None:
                assert rollout.MACHINE.terminal(world.status.state) or world.status.step < 0
            else:
                assert world.route.weight >= highest, "no user is moved back while the rollout lasts"
                highest = world.route.weight
                assert world.route.shadow == (world.route.weight == 0.0)
            if world.status.state == "promoted" and verb is None:
                report = before.reports[-1] if world.status.reports == before.reports else world.status.reports[-1]
                assert (report.verdict, report.step) == (Verdict.PASS, len(world.plan.steps) - 1)
            if rollout.MACHINE.terminal(world.status.state):
                assert world.route in (Route(1, generation=world.route.generation), Route(2, generation=world.route.generation))
                assert (world.route.stable == 2) == (world.status.state == "promoted")
                break
        ends.add(world.status.state)
    assert {"promoted", "rolled_back", "aborted"} <= ends


@pytest.mark.requirement("C-05")
def test_a_good_version_gets_there_by_itself_when_everything_stands() -> None:
    for way in range(15):
        world = World(random.Random(way), "good")
        world.plan = replace(world.plan, max_harm=0.3)  # smaller ones take more users than a test has time for
        for _ in range(2000):
            world.go(Request("resume", "ada") if world.status.state == "paused" else None)
            if rollout.MACHINE.terminal(world.status.state):
                break
        assert world.status.state == "promoted", (way, world.status)
