"""What each look at a step has shown: kept beside the verdicts, so that it can be seen how the evidence grew; a bounded number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from shared.domain.step_analysis import StepReport

MOST = 60
"""Of one rollout. Where there are more, those go that are closest to their neighbours: what is left shows the whole way."""


@dataclass(frozen=True)
class Looked:
    """One look: the users that it saw of either variant, and between which bounds the lift lay."""

    at: datetime
    step: int
    against: int
    """The stable version then."""
    stable: int
    candidate: int
    verdict: str
    lift: float | None = None
    lower: float | None = None
    upper: float | None = None

    @property
    def observed(self) -> tuple[object, ...]:
        return self.step, self.against, self.stable, self.candidate, self.verdict, self.lower, self.upper


L = TypeVar("L", bound=Looked)


def looked(before: Sequence[Looked], report: StepReport, against: int, now: datetime) -> tuple[Looked, ...]:
    """After one look more; one that saw nobody is none, one that saw nothing new is the last one, later."""
    goal = report.judgement
    verdict = (report.verdict or goal.verdict).value
    fresh = Looked(now, report.step, against, report.stable.users, report.candidate.users, verdict, goal.lift, goal.lower, goal.upper)
    if not fresh.stable and not fresh.candidate:
        return tuple(before)
    if len(before) > 1 and before[-1].observed == before[-2].observed == fresh.observed:
        return (*before[:-1], fresh)
    return thinned((*before, fresh))


def thinned(looks: tuple[L, ...], most: int = MOST) -> tuple[L, ...]:
    """The first and the last of each step stay as long as there is another one to give up."""
    while len(looks) > most:
        inner = [at for at in range(1, len(looks) - 1) if looks[at - 1].step == looks[at].step == looks[at + 1].step]
        gone = min(inner, key=lambda at: (looks[at + 1].at - looks[at - 1].at, at)) if inner else 0
        looks = (*looks[:gone], *looks[gone + 1 :])
    return looks
