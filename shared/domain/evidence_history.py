"""Bounded history of the looks of a rollout, which shows how the evidence grew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from shared.domain.step_analysis import StepReport

MOST = 60
"""Maximum for one rollout. Beyond it, the looks closest in time to their neighbours are removed first."""


@dataclass(frozen=True)
class LookBounds:
    """One look: the users of both variants and the bounds of the lift."""

    at: datetime
    step: int
    against: int
    """Stable version at the time of the look."""
    stable: int
    candidate: int
    verdict: str
    lift: float | None = None
    lower: float | None = None
    upper: float | None = None

    @property
    def observed(self) -> tuple[object, ...]:
        return self.step, self.against, self.stable, self.candidate, self.verdict, self.lower, self.upper


L = TypeVar("L", bound=LookBounds)


def looked(before: Sequence[LookBounds], report: StepReport, against: int, now: datetime) -> tuple[LookBounds, ...]:
    """Appends a look; skips empty ones and merges unchanged ones."""
    goal = report.judgement
    verdict = (report.verdict or goal.verdict).value
    fresh = LookBounds(now, report.step, against, report.stable.users, report.candidate.users, verdict, goal.lift, goal.lower, goal.upper)
    if not fresh.stable and not fresh.candidate:
        return tuple(before)
    if len(before) > 1 and before[-1].observed == before[-2].observed == fresh.observed:
        return (*before[:-1], fresh)
    return thinned((*before, fresh))


def thinned(looks: tuple[L, ...], most: int = MOST) -> tuple[L, ...]:
    """Removes looks until `most` are left; keeps the first and the last look of each step as long as possible."""
    while len(looks) > most:
        inner = [at for at in range(1, len(looks) - 1) if looks[at - 1].step == looks[at].step == looks[at + 1].step]
        gone = min(inner, key=lambda at: (looks[at + 1].at - looks[at - 1].at, at)) if inner else 0
        looks = (*looks[:gone], *looks[gone + 1 :])
    return looks
