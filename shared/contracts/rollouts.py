"""The spec's `rollout`: the steps of a version to the users, and their analysis."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from shared.contracts.guardrails import Guardrails
from shared.contracts.quantities import Duration, Fraction, parse_duration, parse_fraction, write_duration
from shared.contracts.strict import Strict

Weight = Annotated[Fraction, Field(gt=0, lt=1)]


class Step(Strict):
    weight: Weight = Field(description="The share of the users that the candidate answers.")
    min: Duration | None = Field(None, description="The step isn't left before; when absent, as soon as there is enough evidence.")
    max: Duration | None = Field(None, description="Without a verdict after this long the rollout pauses; `analysis.deadline` when absent.")
    min_users: int | None = Field(None, ge=30, description="Users observed in each variant; `analysis.min_users` when absent.")
    min_answers: int | None = Field(None, ge=1, description="Answers of each variant; `analysis.min_answers` when absent.")

    @model_validator(mode="after")
    def _in_order(self) -> Step:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min is {write_duration(self.min)} and max {write_duration(self.max)}: a step can't end before it may")
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
    for_: Duration = Field(alias="for", description="How long the candidate is asked beside the stable version, for nobody to see.")
    min_answers: int = Field(100, ge=1, description="Requests that must have been compared.")


def _time_alone(value: Any) -> Any:
    """`5m` is `{for: 5m}`."""
    return value if isinstance(value, dict | Shadow) else {"for": parse_duration(value)}


AnyShadow = Annotated[Shadow, BeforeValidator(_time_alone, json_schema_input_type=Duration | Shadow)]


class Analysis(Strict):
    goal: Literal["hit_rate", "conversion"] = Field(
        "hit_rate",
        description="A hit is an answer that earned at least one positive in time; `conversion` counts users with at least one hit.",
    )
    attribution: Duration = Field(timedelta(minutes=30), description="How long after an answer a positive still counts as its hit.")
    window: Duration = Field(timedelta(minutes=30), description="How long each user is observed from the first answer of a step on.")
    max_harm: Fraction = Field(0.02, gt=0, lt=1, description="Relative loss of the goal that a promotion must exclude.")
    min_users: int = Field(200, ge=30, description="Users observed in each variant before a verdict.")
    min_answers: int = Field(100, ge=1, description="Answers of each variant before a guardrail passes.")
    guardrails: Guardrails = Field(Guardrails(), description="What a candidate must not break, whatever it earns.")
    deadline: Duration = Field(timedelta(days=7), description="A step without a verdict after this long pauses the rollout.")
    every: Duration = Field(timedelta(seconds=30), description="How often what users did is looked at. Looking often costs no certainty.")
    failures: int = Field(1, ge=1, le=100, description="Looks in a row at which a guardrail fails before the rollout goes back.")
    inconclusive: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Looks in a row without a verdict before the rollout pauses; when absent, the step's time alone.",
    )


class Rollout(Strict):
    shadow: AnyShadow | None = Field(
        None, description="`5m` or `{for: 5m, min_answers: 500}`: the candidate first answers beside the stable version, for nobody to see."
    )
    steps: tuple[AnyStep, ...] = Field(
        (Step(weight=0.05), Step(weight=0.25), Step(weight=0.5)),
        min_length=1,
        max_length=20,
        description="Shares of the users that the candidate answers, rising; each `25%` or `{weight: 25%, min: 10m, max: 2d}`.",
    )
    progress: Duration = Field(
        timedelta(minutes=5), description="How long servers may take to load a version, and gateways to take up a route."
    )
    keep_warm: Duration = Field(
        timedelta(hours=1), description="How long the version that was stable before stays loaded, so that going back to it is instant."
    )
    analysis: Analysis = Field(Analysis(), description="How a step is judged.")

    @model_validator(mode="after")
    def _rising(self) -> Rollout:
        if any(b.weight <= a.weight for a, b in pairwise(self.steps)):
            raise ValueError("steps must rise, such as [1%, 10%, 50%]")
        for step in self.steps:
            if step.min is not None and step.max is None and step.min > self.analysis.deadline:
                problem = f"min {write_duration(step.min)} is above analysis.deadline {write_duration(self.analysis.deadline)}"
                raise ValueError(f"steps: {problem}: give the step a max")
        return self
