"""Plan of a rollout from the spec: a shadow, steps of weight, and how often and by what each is judged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from shared.domain.guardrail import Guardrail
from shared.domain.machine import Request
from shared.domain.sequential_test import Goal


@dataclass(frozen=True)
class StepPlan:
    weight: float
    max: timedelta
    """Time after which a step without a verdict pauses the rollout."""
    min: timedelta = timedelta(0)
    """Minimum time of the step, whatever the verdict."""
    min_users: int = 0
    min_answers: int = 0
    """Minimum in each variant for a pass."""


@dataclass(frozen=True)
class ShadowPlan:
    """The candidate computes answers to real requests, and the answers are thrown away."""

    length: timedelta
    min_answers: int = 0
    """Compared requests needed for a pass."""


@dataclass(frozen=True)
class RolloutPlan:
    """Rollout settings of the spec. `back`: the request to return to this version, which needs no proof."""

    steps: tuple[StepPlan, ...]
    max_harm: float
    shadow: ShadowPlan | None = None
    goal: Goal = "hit_rate"
    every: timedelta = timedelta(0)
    """Interval between two looks."""
    failures: int = 1
    """Consecutive looks with a failed guardrail after which the rollout goes back."""
    inconclusive: int | None = None
    """Consecutive looks without a verdict after which the rollout pauses; None: only at the step's deadline."""
    progress: timedelta = timedelta(minutes=5)
    """Time limit for servers to load and for gateways to take up a route."""
    guardrails: tuple[Guardrail, ...] = ()
    back: Request | None = None


def percent(share: float) -> str:
    return f"{share * 100:g}%"


def spoken(span: timedelta) -> str:
    """Formats a time span in the largest exact unit: `90 s`, `5 min`, `2 h`, `7 d`."""
    seconds = span.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and not seconds % size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
