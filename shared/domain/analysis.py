"""One look at what users did under a step, and what follows from it for the rollout."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shared.domain.gate import Verdict
from shared.domain.steps import RolloutPlan
from shared.domain.verdict import Judgement, Sample, judge_step


@dataclass(frozen=True)
class Look:
    """What was found when the data was looked at; None where it can't be said, for the reason in `fault`."""

    samples: tuple[Sample, Sample] | None = None
    """Stable's and the candidate's users of this step."""
    fault: str = ""


@dataclass(frozen=True)
class Check:
    """What one comparison beside the goal says."""

    name: str
    judgement: Judgement


@dataclass(frozen=True)
class StepReport:
    """What a step has shown so far: kept for each step, so that the end can be explained."""

    step: int
    weight: float
    since: datetime | None
    stable: Sample
    candidate: Sample
    judgement: Judgement
    """Of the goal."""
    checks: tuple[Check, ...] = ()
    verdict: Verdict | None = None
    """Of all of it together; None in what was kept before there were checks."""
    reason: str = ""


def judge(look: Look, plan: RolloutPlan, number: int, since: datetime | None, base: float | None) -> StepReport:
    """An error pauses; harm goes back; only a pass of everything goes on."""
    step, final = plan.steps[number], number == len(plan.steps) - 1
    if look.samples is None:
        nothing = Judgement(Verdict.ERROR, f"what users did can't be counted{f': {look.fault}' if look.fault else ''}")
        return StepReport(number, step.weight, since, Sample(), Sample(), nothing, (), nothing.verdict, nothing.reason)
    stable, candidate = look.samples
    goal = judge_step(
        stable,
        candidate,
        max_harm=plan.max_harm,
        min_users=step.min_users,
        steps=len(plan.steps),
        final=final,
        base=base,
        weight=step.weight,
    )
    return StepReport(number, step.weight, since, stable, candidate, goal, (), goal.verdict, goal.reason)
