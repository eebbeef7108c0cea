"""Answer models of rollouts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from shared.domain.evidence_history import MOST
from shared.domain.rollout import ANSWERS, RolloutStatus, deadline, refusal
from shared.domain.rollout_plan import RolloutPlan
from shared.domain.sequential_test import VariantSample
from shared.domain.step_analysis import AnswerSummary, ShadowReport, StepReport
from shared.ports import RolloutRecord

VERBS = ("pause", "resume", "skip", "promote", "abort")
"""Verbs of rollouts."""


class SampleView(BaseModel):
    users: int
    answers: int
    hits: int
    mean: float
    converted: int = Field(description="Number of users with at least one hit.")

    @classmethod
    def of(cls, sample: VariantSample) -> SampleView:
        return cls(users=sample.users, answers=sample.answers, hits=sample.hits, mean=sample.mean, converted=sample.converted)


class AnsweredView(BaseModel):
    answers: int = Field(description="Number of answers of the version, also those with an open attribution window.")
    errors: int = Field(description="Number of these answers without scores.")
    p50: float | None = Field(description="Median latency in seconds: retrieval, filter, features, score, order.")
    p99: float | None = Field(description="99th percentile of the same latency in seconds.")

    @classmethod
    def of(cls, answered: AnswerSummary) -> AnsweredView:
        return cls.model_validate(answered, from_attributes=True)


class CheckView(BaseModel):
    name: str = Field(description="Name of the check: `goal`, `split`, or a guardrail's metric.")
    verdict: str
    reason: str


class ReportView(BaseModel):
    step: int
    weight: float
    since: datetime | None
    stable: SampleView
    candidate: SampleView
    verdict: str = Field(description="Verdict of all checks together.")
    reason: str
    checks: list[CheckView] = Field(description="Checks: the goal, the split and each guardrail, each with verdict and reason.")
    lift: float | None
    lower: float | None
    upper: float | None
    stable_answers: AnsweredView | None = Field(description="Latency and errors of the stable version; null in an older report.")
    candidate_answers: AnsweredView | None = Field(description="Latency and errors of the candidate.")

    @classmethod
    def of(cls, report: StepReport) -> ReportView:
        goal = report.judgement
        named = [("goal", goal), *((check.name, check.judgement) for check in report.checks)]
        return cls(
            step=report.step,
            weight=report.weight,
            since=report.since,
            stable=SampleView.of(report.stable),
            candidate=SampleView.of(report.candidate),
            verdict=report.verdict or goal.verdict,
            reason=report.reason or goal.reason,
            checks=[CheckView(name=name, verdict=judgement.verdict, reason=judgement.reason) for name, judgement in named],
            lift=goal.lift,
            lower=goal.lower,
            upper=goal.upper,
            stable_answers=AnsweredView.of(report.answered[0]) if report.answered else None,
            candidate_answers=AnsweredView.of(report.answered[1]) if report.answered else None,
        )


class LookView(BaseModel):
    at: datetime
    step: int
    weight: float
    against: int = Field(description="Stable version at that time.")
    stable: int = Field(description="Number of observed users of the stable version.")
    candidate: int = Field(description="Number of observed users of the candidate.")
    verdict: str
    lift: float | None = Field(description="Relative difference of the candidate to the stable version; null for too few users.")
    lower: float | None = Field(description="Lower bound of the lift: above -max_harm, harm is excluded.")
    upper: float | None = Field(description="Upper bound of the lift: below 0, the candidate is worse.")


class LooksView(BaseModel):
    """Evidence of a rollout, look by look."""

    goal: Literal["hit_rate", "conversion"] = Field(description="Goal by which the versions are compared.")
    max_harm: float = Field(description="Largest accepted relative loss: the last step passes when a larger loss is excluded.")
    looks: list[LookView] = Field(description=f"Looks, the oldest first: all of them, or {MOST} that cover the whole time.")

    @classmethod
    def of(cls, status: RolloutStatus, plan: RolloutPlan) -> LooksView:
        looks = [
            LookView.model_validate({**vars(look), "weight": plan.steps[look.step].weight if look.step < len(plan.steps) else 0.0})
            for look in status.looks
        ]
        return cls(goal=plan.goal, max_harm=plan.max_harm, looks=looks)


class StepView(BaseModel):
    weight: float
    min_users: int = Field(description="Fewest users in each variant before the step can pass.")
    min_answers: int = Field(description="Fewest answers in each variant before the step can pass.")
    min: float = Field(description="Shortest duration of the step in seconds.")
    max: float = Field(description="Seconds after which the rollout pauses if the step has no verdict.")


class TermsView(BaseModel):
    """Terms by which the steps of a rollout are judged."""

    goal: Literal["hit_rate", "conversion"] = Field(description="Goal by which the versions are compared.")
    max_harm: float = Field(description="Largest accepted relative loss: the last step passes when a larger loss is excluded.")
    steps: list[StepView] = Field(description="Steps in their order.")
    guardrails: dict[str, str] = Field(description="Guardrails by metric, as text.")

    @classmethod
    def of(cls, plan: RolloutPlan) -> TermsView:
        steps = [
            StepView(
                weight=step.weight,
                min_users=step.min_users,
                min_answers=step.min_answers,
                min=step.min.total_seconds(),
                max=step.max.total_seconds(),
            )
            for step in plan.steps
        ]
        return cls(
            goal=plan.goal,
            max_harm=plan.max_harm,
            steps=steps,
            guardrails={guardrail.metric: str(guardrail) for guardrail in plan.guardrails},
        )


class ShadowView(BaseModel):
    since: datetime | None
    compared: int = Field(description="Number of requests that both versions answered.")
    errors: int = Field(description="Number of requests without scores of the candidate.")
    dropped: int = Field(description="Number of requests that were not mirrored.")
    overlap: float = Field(description="Mean share of the stable version's items that the candidate would also show.")
    stable_p99: float | None = Field(description="99th percentile of the stable version's latency in seconds.")
    candidate_p99: float | None = Field(description="99th percentile of the candidate's latency in seconds.")
    verdict: str
    reason: str

    @classmethod
    def of(cls, report: ShadowReport) -> ShadowView:
        return cls(**vars(report) | vars(report.judgement))


class RolloutView(BaseModel):
    id: str
    recommender: str
    version: int
    kind: Literal["canary", "rollback"] = Field(description="Kind; a rollback loads a version and moves all users to it, without analysis.")
    state: str
    reason: str
    step: int = Field(description="Index of the current step in `steps`; -1 before the first.")
    steps: list[float]
    since: datetime | None
    looked_at: datetime | None = Field(description="Time of the last look at this step; null before the first look.")
    created_at: datetime
    asked_by: str | None = Field(description="Who started the rollout or rollback; null if the run that registered the version did.")
    cause: str = Field(description="Reason that this caller gave; may be empty.")
    asked: str | None = Field(description="Verb of a pending request; null if there is none.")
    shadow: ShadowView | None = Field(description="Result of the shadow; null without a shadow, and before its first look.")
    reports: list[ReportView]
    against: int | None = Field(description="Stable version at the last look; null before the first look.")
    plan: TermsView = Field(description="Steps of the rollout, and the terms by which they are judged.")
    deadline: datetime | None = Field(description="When the rollout pauses if the step has no verdict; null without an active step.")
    answers_to: list[str] = Field(description="Verbs that are possible now: of pause, resume, skip, promote and abort.")

    @classmethod
    def of(cls, record: RolloutRecord, plan: RolloutPlan) -> RolloutView:
        status, version = record.status, record.spec.version
        started = record.spec.start or record.spec.back
        verbs = [verb for verb in VERBS if verb in ANSWERS.get(status.state, ()) and refusal(verb, version, status, plan) is None]
        return cls(
            id=record.id,
            recommender=record.recommender,
            version=version,
            kind="canary" if record.spec.back is None else "rollback",
            state=status.state,
            reason=status.reason,
            step=status.step,
            steps=[step.weight for step in plan.steps],
            since=status.since,
            looked_at=status.looked_at,
            created_at=record.created_at,
            asked_by=started.actor if started else None,
            cause=started.reason if started else "",
            asked=record.request.verb if record.request else None,
            shadow=ShadowView.of(status.shadow) if status.shadow else None,
            reports=[ReportView.of(report) for report in status.reports],
            against=status.looks[-1].against if status.looks else None,
            plan=TermsView.of(plan),
            deadline=deadline(status, plan),
            answers_to=verbs,
        )
