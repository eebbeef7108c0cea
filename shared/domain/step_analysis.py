"""One look at what users did under a step, and what it says: of the goal, of the split, of each guardrail, and of all together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shared.domain.gate import Verdict
from shared.domain.guardrail import judge_guardrail
from shared.domain.rollout_plan import RolloutPlan, Step
from shared.domain.sequential_test import WORDS, Judgement, Sample, Terms, judge_split, judge_step, of_goal
from shared.domain.traffic import Mirror, Traffic, quantile

SPLIT = "split"


@dataclass(frozen=True)
class Look:
    """What was found when the data was looked at; None where it can't be said, for the reason in `fault`."""

    samples: tuple[Sample, Sample] | None = None
    """Stable's and the candidate's users of this step."""
    traffic: tuple[Traffic, Traffic] | None = None
    """Their answers, whatever they earned."""
    mirror: Mirror | None = None
    """Of a shadow."""
    fault: str = ""

    def uncounted(self, subject: str) -> str:
        return f"{subject} can't be counted" + (f": {self.fault}" if self.fault else "")


@dataclass(frozen=True)
class Check:
    """What one comparison beside the goal says: the split, or a guardrail by its metric."""

    name: str
    judgement: Judgement


@dataclass(frozen=True)
class Answered:
    """One variant's answers in short."""

    answers: int
    errors: int
    p50: float | None
    p99: float | None
    """Seconds of the version's work: retrieval, filters, features, scores, order."""

    @classmethod
    def of(cls, traffic: Traffic) -> Answered:
        return cls(traffic.answers, traffic.errors, quantile(traffic.latency, 0.5), quantile(traffic.latency, 0.99))


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
    answered: tuple[Answered, Answered] | None = None
    """What the answers of stable and candidate were like; None in what was kept before that was."""

    @property
    def broken(self) -> bool:
        """A guardrail fails."""
        return any(check.judgement.verdict is Verdict.FAIL for check in self.checks)

    @property
    def uncertain(self) -> bool:
        """The comparison can't be trusted, so that nothing follows from it."""
        return any(judgement.verdict is Verdict.ERROR for judgement in (self.judgement, *(check.judgement for check in self.checks)))

    @property
    def harmed(self) -> bool:
        """The goal fails, in a comparison that can be trusted."""
        return self.judgement.verdict is Verdict.FAIL and not self.uncertain


@dataclass(frozen=True)
class ShadowReport:
    """What a shadow has shown so far."""

    since: datetime | None
    compared: int
    errors: int
    dropped: int
    overlap: float
    """The mean share of the stable version's items that the candidate would have shown too."""
    stable_p99: float | None
    candidate_p99: float | None
    judgement: Judgement

    @classmethod
    def of(cls, mirror: Mirror, since: datetime | None, judgement: Judgement) -> ShadowReport:
        overlap = mirror.overlap / mirror.compared if mirror.compared else 0.0
        slow = quantile(mirror.stable, 0.99), quantile(mirror.candidate, 0.99)
        return cls(since, mirror.compared, mirror.errors, mirror.dropped, overlap, *slow, judgement)


def judge(look: Look, plan: RolloutPlan, number: int, since: datetime | None, base: float | None) -> StepReport:
    step = plan.steps[number]
    if look.samples is None or look.traffic is None:
        nothing = Judgement(Verdict.ERROR, look.uncounted("what users did"))
        return StepReport(number, step.weight, since, Sample(), Sample(), nothing, (), nothing.verdict, nothing.reason)
    stable, candidate = look.samples
    goal = _goal(look.samples, plan, number, base)
    checks = (
        Check(SPLIT, judge_split(*look.traffic, step.weight)),
        *(Check(rail.metric, judge_guardrail(rail, *look.traffic, look.samples, step.min_answers)) for rail in plan.guardrails),
    )
    together = _together(goal, checks, _few(look.traffic, step))
    answered = (Answered.of(look.traffic[0]), Answered.of(look.traffic[1]))
    return StepReport(number, step.weight, since, stable, candidate, goal, checks, together.verdict, together.reason, answered)


def _goal(samples: tuple[Sample, Sample], plan: RolloutPlan, number: int, base: float | None) -> Judgement:
    step, final = plan.steps[number], number == len(plan.steps) - 1
    stable, candidate = (of_goal(sample, plan.goal) for sample in samples)
    terms = Terms(
        max_harm=plan.max_harm,
        min_users=step.min_users,
        steps=len(plan.steps),
        final=final,
        base=base,
        weight=step.weight,
        words=WORDS[plan.goal],
    )
    return judge_step(stable, candidate, terms)


def _few(traffic: tuple[Traffic, Traffic], step: Step) -> str:
    fewest = min(variant.answers for variant in traffic)
    return f"{fewest:,} of {step.min_answers:,} answers in the smaller variant" if fewest < step.min_answers else ""


def _together(goal: Judgement, checks: tuple[Check, ...], few: str) -> Judgement:
    """Harm that is proven comes first; a comparison that can't be trusted says nothing about the goal; only a pass of all is one."""
    guardrails = [check for check in checks if check.name != SPLIT]
    for verdict, reasons in (
        (Verdict.FAIL, [check.judgement.reason for check in guardrails if check.judgement.verdict is Verdict.FAIL]),
        (
            Verdict.ERROR,
            [judgement.reason for judgement in (*(check.judgement for check in checks), goal) if judgement.verdict is Verdict.ERROR],
        ),
        (Verdict.FAIL, [goal.reason] if goal.verdict is Verdict.FAIL else []),
        (Verdict.INCONCLUSIVE, [goal.reason] if goal.verdict is not Verdict.PASS else []),
        (
            Verdict.INCONCLUSIVE,
            [f"{check.name}: {check.judgement.reason}" for check in checks if check.judgement.verdict is not Verdict.PASS],
        ),
        (Verdict.INCONCLUSIVE, [few] if few else []),
    ):
        if reasons:
            return Judgement(verdict, "; ".join(reasons))
    return Judgement(Verdict.PASS, goal.reason)
