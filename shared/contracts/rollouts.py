"""The spec's `rollout`: the steps of a version to the users, and their analysis."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from shared.contracts.guardrails import Guardrails
from shared.contracts.quantities import LONGEST, Duration, Fraction, parse_duration, parse_fraction, write_duration
from shared.contracts.strict import Strict

Weight = Annotated[Fraction, Field(gt=0, lt=1)]


class Step(Strict):
    weight: Weight = Field(description="Share of the users that the candidate serves.")
    min: Duration | None = Field(None, description="Minimum time of the step; absent: until there is enough evidence.")
    max: Duration | None = Field(None, description="Time without a verdict after which the rollout pauses; `analysis.deadline` if absent.")
    min_users: int | None = Field(None, ge=30, description="Minimum users observed in each variant; `analysis.min_users` if absent.")
    min_answers: int | None = Field(None, ge=1, description="Minimum answers of each variant; `analysis.min_answers` if absent.")

    @model_validator(mode="after")
    def _in_order(self) -> Step:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {write_duration(self.min)} is greater than max {write_duration(self.max)}")
        return self


def _weight_alone(value: Any) -> Any:
    """`25%` is `{weight: 25%}`."""
    if isinstance(value, dict | Step):
        return value
    try:
        weight = parse_fraction(value)
    except ValueError:
        raise ValueError(f"expected a share such as 25%, or {{weight: 25%, min: 10m, min_users: 500}}, got {value!r}") from None
    if not 0 < weight < 1:
        raise ValueError(f"expected a share between 0% and 100%, got {value!r}")
    return {"weight": weight}


def _write_step(step: Step) -> Any:
    fields = {name: value for name, value in step.model_dump(mode="json").items() if value is not None}
    return fields if len(fields) > 1 else step.weight


AnyStep = Annotated[Step, BeforeValidator(_weight_alone, json_schema_input_type=Weight | Step), PlainSerializer(_write_step)]


class Shadow(Strict):
    for_: Duration = Field(alias="for", description="Time in which the candidate also works, and its answers are discarded.")
    min_answers: int = Field(100, ge=1, description="Minimum number of requests that must be compared.")


def _time_alone(value: Any) -> Any:
    """`5m` is `{for: 5m}`."""
    return value if isinstance(value, dict | Shadow) else {"for": parse_duration(value)}


AnyShadow = Annotated[Shadow, BeforeValidator(_time_alone, json_schema_input_type=Duration | Shadow)]


class Analysis(Strict):
    goal: Literal["hit_rate", "conversion"] = Field(
        "hit_rate", description="Goal: `hit_rate`, share of answers with a positive in time; `conversion`, share of users with a hit."
    )
    attribution: Duration = Field(timedelta(minutes=30), description="Time after an answer within which a positive counts as its hit.")
    window: Duration = Field(timedelta(minutes=30), description="Time for which each user is observed, from the first answer of a step on.")
    max_harm: Fraction = Field(0.02, gt=0, lt=1, description="Relative loss of the goal that a promotion must exclude.")
    min_users: int = Field(200, ge=30, description="Minimum number of users observed in each variant before a verdict.")
    min_answers: int = Field(100, ge=1, description="Minimum number of answers of each variant before a guardrail passes.")
    guardrails: Guardrails = Field(Guardrails(), description="Limits that a candidate must keep, whatever its goal is.")
    deadline: Duration = Field(timedelta(days=7), description="Time of a step without a verdict after which the rollout pauses.")
    every: Duration = Field(timedelta(seconds=30), description="Time between two looks. Frequent looks do not weaken the evidence.")
    failures: int = Field(1, ge=1, le=100, description="Number of looks in a row with a failed guardrail before the rollback.")
    inconclusive: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Number of looks in a row without a verdict before the rollout pauses; absent: only the step's time counts.",
    )


class Rollout(Strict):
    shadow: AnyShadow | None = Field(
        None, description="Shadow before the steps, `5m` or `{for: 5m, min_answers: 500}`: the candidate's answers are discarded."
    )
    steps: tuple[AnyStep, ...] = Field(
        (Step(weight=0.05), Step(weight=0.25), Step(weight=0.5)),
        min_length=1,
        max_length=20,
        description="Increasing shares of the users that the candidate serves; each `25%` or `{weight: 25%, min: 10m, max: 2d}`.",
    )
    progress: Duration = Field(
        timedelta(minutes=5), description="Maximum time for servers to load a version, and for gateways to apply a route."
    )
    keep_warm: Duration = Field(
        timedelta(hours=1), description="Time for which the previous stable version stays loaded, so that a rollback is instant."
    )
    analysis: Analysis = Field(Analysis(), description="Rules of the verdicts.")

    def longest(self) -> timedelta:
        """Returns the longest time of a rollout without pauses, until its last answers count; at most the longest duration."""
        steps = sum((step.max or self.analysis.deadline for step in self.steps), timedelta())
        shadow = self.shadow.for_ if self.shadow is not None else timedelta()
        return min(LONGEST, shadow + steps + self.analysis.window + self.analysis.attribution)

    @model_validator(mode="after")
    def _check_steps(self) -> Rollout:
        if any(b.weight <= a.weight for a, b in pairwise(self.steps)):
            raise ValueError("steps must increase, such as [1%, 10%, 50%]")
        for step in self.steps:
            if step.min is not None and step.max is None and step.min > self.analysis.deadline:
                problem = f"min {write_duration(step.min)} is above analysis.deadline {write_duration(self.analysis.deadline)}"
                raise ValueError(f"steps: {problem}; set a max for the step")
        return self
