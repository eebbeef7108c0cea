"""What a rollout goes through, as the spec has it: a shadow, steps of weight, how often and by what each is judged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from shared.domain.guardrail import Guardrail
from shared.domain.machine import Request
from shared.domain.sequential_test import Goal


@dataclass(frozen=True)
class Step:
    weight: float
    max: timedelta
    """Without a verdict after this long the rollout pauses."""
    min: timedelta = timedelta(0)
    """It isn't left before, however good it looks."""
    min_users: int = 0
    min_answers: int = 0
    """In each variant, before it can pass."""


@dataclass(frozen=True)
class Shadow:
    """The candidate answers beside the stable version, for nobody to see."""

    length: timedelta
    min_answers: int = 0
    """Compared requests, before it can pass."""


@dataclass(frozen=True)
class RolloutPlan:
    """What the spec says of rollouts; `back`: who asked to go back to this version, which needs no proof."""

    steps: tuple[Step, ...]
    max_harm: float
    shadow: Shadow | None = None
    goal: Goal = "hit_rate"
    every: timedelta = timedelta(0)
    """Between two looks at what users did."""
    failures: int = 1
    """Looks in a row at which a guardrail fails, before the rollout goes back."""
    inconclusive: int | None = None
    """Looks in a row without a verdict, before it pauses; None: until the step's time is over."""
    progress: timedelta = timedelta(minutes=5)
    """For servers that load and gateways that take up a route."""
    guardrails: tuple[Guardrail, ...] = ()
    back: Request | None = None


def percent(share: float) -> str:
    return f"{share * 100:g}%"


def spoken(span: timedelta) -> str:
    """`90 s`, `5 min`, `2 h`, `7 d`: in the largest unit that keeps it."""
    seconds = span.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and not seconds % size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
