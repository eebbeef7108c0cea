"""Analysis of a step at one look: verdicts of the goal, of the split, of each guardrail, and of all together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shared.domain.gate import Verdict
from shared.domain.guardrail import judge_guardrail
from shared.domain.rollout_plan import RolloutPlan, StepPlan
from shared.domain.sequential_test import WORDS, Judgement, StepTerms, VariantSample, judge_split, judge_step, of_goal
from shared.domain.traffic import ShadowCounts, Traffic, quantile

SPLIT = "split"


@dataclass(frozen=True)
class StepLook:
    """Data of one look; a field is None if it could not be read, with the reason in `fault`."""

    samples: tuple[VariantSample, VariantSample] | None = None
    """Users of this step: stable, candidate."""
    traffic: tuple[Traffic, Traffic] | None = None
    """Their answers, with or without positives."""
    mirror: ShadowCounts | None = None
    """Result of a shadow."""
    fault: str = ""

    def uncounted(self, subject: str) -> str:
        return f"{subject} cannot be counted" + (f": {self.fault}" if self.fault else "")


@dataclass(frozen=True)
class CheckResult:
    """Result of a comparison other than the goal: the split, or a guardrail by its metric."""

    name: str
    judgement: Judgement


@dataclass(frozen=True)
class AnswerSummary:
    """Summary of one variant's answers."""

    answers: int
    errors: int
    p50: float | None
    p99: float | None
    """Seconds of the version's work: retrieval, filters, features, scores, order."""

    @classmethod
    def of(cls, traffic: Traffic) -> AnswerSummary:
        return cls(traffic.answers, traffic.errors, quantile(traffic.latency, 0.5), quantile(traffic.latency, 0.99))


@dataclass(frozen=True)
class StepReport:
    """Result of a step so far; kept for each step to explain the rollout's end."""

    step: int
    weight: float
    since: datetime | None
    stable: VariantSample
    candidate: VariantSample
    judgement: Judgement
    """Judgement of the goal."""
    checks: tuple[CheckResult, ...] = ()
    verdict: Verdict | None = None
    """Verdict of all checks together; None in old reports without checks."""
    reason: str = ""
    answered: tuple[AnswerSummary, AnswerSummary] | None = None
    """Answers of stable and candidate; None in old reports."""

    @property
    def broken(self) -> bool:
        """Whether a guardrail fails."""
        return any(check.judgement.verdict is Verdict.FAIL for check in self.checks)

    @property
    def uncertain(self) -> bool:
        """Whether the comparison has an error, so that no decision follows from it."""
        return any(judgement.verdict is Verdict.ERROR for judgement in (self.judgement, *(check.judgement for check in self.checks)))

    @property
    def harmed(self) -> bool:
        """Whether the goal fails in a valid comparison."""
        return self.judgement.verdict is Verdict.FAIL and not self.uncertain


@dataclass(frozen=True)
class ShadowReport:
    """Result of a shadow so far."""

    since: datetime | None
    compared: int
    errors: int
    dropped: int
    overlap: float
    """Mean share of the stable version's items that the candidate would have shown too."""
    stable_p99: float | None
    candidate_p99: float | None
    judgement: Judgement

    @classmethod
    def of(cls, mirror: ShadowCounts, since: datetime | None, judgement: Judgement) -> ShadowReport:
        overlap = mirror.overlap / mirror.compared if mirror.compared else 0.0
        slow = quantile(mirror.stable, 0.99), quantile(mirror.candidate, 0.99)
        return cls(since, mirror.compared, mirror.errors, mirror.dropped, overlap, *slow, judgement)


def judge(look: StepLook, plan: RolloutPlan, number: int, since: datetime | None, base: float | None) -> StepReport:
    step = plan.steps[number]
    if look.samples is None or look.traffic is None:
        nothing = Judgement(Verdict.ERROR, look.uncounted("users' events"))
        return StepReport(number, step.weight, since, VariantSample(), VariantSample(), nothing, (), nothing.verdict, nothing.reason)
    stable, candidate = look.samples
    goal = _goal(look.samples, plan, number, base)
    checks = (
        CheckResult(SPLIT, judge_split(*look.traffic, step.weight)),
        *(CheckResult(rail.metric, judge_guardrail(rail, *look.traffic, look.samples, step.min_answers)) for rail in plan.guardrails),
    )
    together = _together(goal, checks, _few(look.traffic, step))
    answered = (AnswerSummary.of(look.traffic[0]), AnswerSummary.of(look.traffic[1]))
    return StepReport(number, step.weight, since, stable, candidate, goal, checks, together.verdict, together.reason, answered)


def _goal(samples: tuple[VariantSample, VariantSample], plan: RolloutPlan, number: int, base: float | None) -> Judgement:
    step, final = plan.steps[number], number == len(plan.steps) - 1
    stable, candidate = (of_goal(sample, plan.goal) for sample in samples)
    terms = StepTerms(
        max_harm=plan.max_harm,
        min_users=step.min_users,
        steps=len(plan.steps),
        final=final,
        base=base,
        weight=step.weight,
        words=WORDS[plan.goal],
    )
    return judge_step(stable, candidate, terms)


def _few(traffic: tuple[Traffic, Traffic], step: StepPlan) -> str:
    fewest = min(variant.answers for variant in traffic)
    return f"{fewest:,} of {step.min_answers:,} answers in the smaller variant" if fewest < step.min_answers else ""


def _together(goal: Judgement, checks: tuple[CheckResult, ...], few: str) -> Judgement:
    """Combines the verdicts: proven harm first; an invalid comparison says nothing about the goal; a pass needs all checks."""
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
