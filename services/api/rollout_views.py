"""Answer models of rollouts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from shared.domain.evidence_history import MOST
from shared.domain.rollout import ANSWERS, RolloutStatus, deadline, refusal
from shared.domain.rollout_plan import RolloutPlan
from shared.domain.sequential_test import Sample
from shared.domain.step_analysis import Answered, ShadowReport, StepReport
from shared.ports import RolloutRecord

VERBS = ("pause", "resume", "skip", "promote", "abort")
"""Verbs of rollouts."""


class SampleView(BaseModel):
    users: int
    answers: int
    hits: int
    mean: float
    converted: int = Field(description="Users with at least one hit.")

    @classmethod
    def of(cls, sample: Sample) -> SampleView:
        return cls(users=sample.users, answers=sample.answers, hits=sample.hits, mean=sample.mean, converted=sample.converted)


class AnsweredView(BaseModel):
    answers: int = Field(description="For which the version was asked for scores, too young ones to be judged by hits included.")
    errors: int = Field(description="Of these, how many it didn't score.")
    p50: float | None = Field(description="Seconds of the version's work for a request: retrieval, filters, features, scores, order.")
    p99: float | None = Field(description="In seconds.")

    @classmethod
    def of(cls, answered: Answered) -> AnsweredView:
        return cls.model_validate(answered, from_attributes=True)


class CheckView(BaseModel):
    name: str = Field(description="`goal`, `split`, or a guardrail's metric.")
    verdict: str
    reason: str


class ReportView(BaseModel):
    step: int
    weight: float
    since: datetime | None
    stable: SampleView
    candidate: SampleView
    verdict: str = Field(description="Of all checks together.")
    reason: str
    checks: list[CheckView] = Field(description="The goal, the split and each guardrail, each with a verdict and a sentence of its own.")
    lift: float | None
    lower: float | None
    upper: float | None
    stable_answers: AnsweredView | None = Field(description="What the stable version's answers were like; null of an older report.")
    candidate_answers: AnsweredView | None = Field(description="The same of the candidate's.")

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
    against: int = Field(description="The stable version then.")
    stable: int = Field(description="Its users that were observed.")
    candidate: int = Field(description="The candidate's.")
    verdict: str
    lift: float | None = Field(description="By how much more the candidate earned; null while there are too few users.")
    lower: float | None = Field(description="The lift is surely above: beyond -max_harm, harm is excluded.")
    upper: float | None = Field(description="The lift is surely below: under 0, the candidate earns less.")


class LooksView(BaseModel):
    """Evidence of a rollout, look by look."""

    goal: Literal["hit_rate", "conversion"] = Field(description="What of the users the versions are compared by.")
    max_harm: float = Field(description="Relative: the last step passes when a loss above it is excluded.")
    looks: list[LookView] = Field(description=f"The oldest first: all of them, or {MOST} that show the whole way.")

    @classmethod
    def of(cls, status: RolloutStatus, plan: RolloutPlan) -> LooksView:
        looks = [
            LookView.model_validate({**vars(look), "weight": plan.steps[look.step].weight if look.step < len(plan.steps) else 0.0})
            for look in status.looks
        ]
        return cls(goal=plan.goal, max_harm=plan.max_harm, looks=looks)


class StepView(BaseModel):
    weight: float
    min_users: int = Field(description="In each variant, before it can pass.")
    min_answers: int = Field(description="In each variant, before it can pass.")
    min: float = Field(description="Seconds before which it isn't left.")
    max: float = Field(description="Seconds after which it pauses without a verdict.")


class TermsView(BaseModel):
    """What the steps of a rollout are judged by."""

    goal: Literal["hit_rate", "conversion"] = Field(description="What of the users the versions are compared by.")
    max_harm: float = Field(description="Relative: the last step passes when a loss above it is excluded.")
    steps: list[StepView] = Field(description="In their order.")
    guardrails: dict[str, str] = Field(description="By metric, as it is written.")

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
    compared: int = Field(description="Requests that both versions answered.")
    errors: int = Field(description="How often the candidate gave no scores.")
    dropped: int = Field(description="Requests that weren't mirrored.")
    overlap: float = Field(description="The mean share of the stable version's items that the candidate would have shown too.")
    stable_p99: float | None = Field(description="In seconds.")
    candidate_p99: float | None = Field(description="In seconds.")
    verdict: str
    reason: str

    @classmethod
    def of(cls, report: ShadowReport) -> ShadowView:
        return cls(
            since=report.since,
            compared=report.compared,
            errors=report.errors,
            dropped=report.dropped,
            overlap=report.overlap,
            stable_p99=report.stable_p99,
            candidate_p99=report.candidate_p99,
            verdict=report.judgement.verdict,
            reason=report.judgement.reason,
        )


class RolloutView(BaseModel):
    id: str
    recommender: str
    version: int
    kind: Literal["canary", "rollback"] = Field(description="A rollback loads a version and moves everybody to it, without analysis.")
    state: str
    reason: str
    step: int = Field(description="Index into `steps`; -1 before the first.")
    steps: list[float]
    since: datetime | None
    looked_at: datetime | None = Field(description="When the data of this step was last looked at; null before the first look.")
    created_at: datetime
    asked_by: str | None = Field(
        description="Who started it, or asked to go back; null where a run did when it had registered the version."
    )
    cause: str = Field(description="The reason that they gave; empty without one.")
    asked: str | None = Field(description="What was asked of it and isn't answered yet.")
    shadow: ShadowView | None = Field(description="What the shadow has shown; null without one, and before it was first looked at.")
    reports: list[ReportView]
    against: int | None = Field(description="The version that it was last compared with; null before the first look.")
    plan: TermsView = Field(description="Its steps, and what each of them is judged by.")
    deadline: datetime | None = Field(description="When the step under way pauses without a verdict; null where none is.")
    answers_to: list[str] = Field(description="What may be asked of it now: of pause, resume, skip, promote and abort.")

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
            asked=record.asked.verb if record.asked else None,
            shadow=ShadowView.of(status.shadow) if status.shadow else None,
            reports=[ReportView.of(report) for report in status.reports],
            against=status.looks[-1].against if status.looks else None,
            plan=TermsView.of(plan),
            deadline=deadline(status, plan),
            answers_to=verbs,
        )
