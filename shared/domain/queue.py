"""Queue of runs: one active run per recommender and a limit for all, ordered by priority and then by age.

`admit` is pure: from the rows of all unfinished runs it returns which runs may work now, and what the others wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

LOWEST, HIGHEST = -100, 100
"""Range of priorities; the default is 0."""
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class UnfinishedRun:
    """Unfinished run. `active`: the run has begun, or is about to begin."""

    id: str
    recommender: str
    priority: int
    created_at: datetime
    active: bool = False


@dataclass(frozen=True)
class AdmissionDecision:
    """Admission of a run; `waits` is None if the run may work. `waits` changes only if the cause changes, so that a long queue is not
    rewritten at each step; `summary` adds the position. A run that waits for another run of its recommender has no position."""

    waits: str | None = None
    position: int | None = None

    @property
    def summary(self) -> str | None:
        return self.waits if self.position is None else f"{ordinal(self.position)} in the queue: {self.waits}"


def admit(rows: Iterable[UnfinishedRun], limit: int) -> Mapping[str, AdmissionDecision]:
    """Returns the admission by run id. Active runs stay active if the limit falls; the order of the rows does not matter."""
    queued = list(rows)
    ahead = {row.recommender: row.id for row in sorted(queued, key=lambda row: (row.created_at, row.id), reverse=True) if row.active}
    turns = {row.id: AdmissionDecision() for row in queued if row.active}
    active = len(turns)
    position = 0
    for row in sorted((row for row in queued if not row.active), key=lambda row: (-row.priority, row.created_at, row.id)):
        before = ahead.get(row.recommender)
        if before is not None:
            turns[row.id] = AdmissionDecision(f"waits for run {before} of this recommender")
        elif active < limit:
            active += 1
            turns[row.id] = AdmissionDecision()
        else:
            position += 1
            turns[row.id] = AdmissionDecision(f"{active} of {limit} runs are active", position)
        ahead[row.recommender] = row.id
    return turns


def ordinal(number: int) -> str:
    """Returns the ordinal as text, in words up to ten."""
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
