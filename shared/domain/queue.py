"""The queue of runs: one at a time of each recommender, so many at once in all, by priority and then by age.

`admit` is pure: from light rows of every unfinished run it says who may work now, and to everybody else what they wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

LOWEST, HIGHEST = -100, 100
"""Of priorities; 0 is what nobody asked for."""
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class Queued:
    """An unfinished run. `active`: it has begun, or is about to."""

    id: str
    recommender: str
    priority: int
    created_at: datetime
    active: bool = False


@dataclass(frozen=True)
class Turn:
    """`waits` is None for whoever may work. It changes only with what is waited for, so that a long queue isn't written anew at each step;
    `summary` has the place as well. Who waits for another run of its recommender has no place yet."""

    waits: str | None = None
    position: int | None = None

    @property
    def summary(self) -> str | None:
        return self.waits if self.position is None else f"{ordinal(self.position)} in the queue: {self.waits}"


def admit(rows: Iterable[Queued], limit: int) -> Mapping[str, Turn]:
    """By id. Active runs keep their place whatever the limit is now; the same rows give the same answer in any order."""
    queued = list(rows)
    ahead = {row.recommender: row.id for row in sorted(queued, key=_age, reverse=True) if row.active}
    turns = {row.id: Turn() for row in queued if row.active}
    active = len(turns)
    position = 0
    for row in sorted((row for row in queued if not row.active), key=_order):
        before = ahead.get(row.recommender)
        if before is not None:
            turns[row.id] = Turn(f"waits for run {before} of this recommender")
        elif active < limit:
            active += 1
            turns[row.id] = Turn()
        else:
            position += 1
            turns[row.id] = Turn(f"{active} of {limit} runs are active", position)
        ahead[row.recommender] = row.id
    return turns


def ordinal(number: int) -> str:
    """In words as far as people say them."""
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _age(row: Queued) -> tuple[datetime, str]:
    return row.created_at, row.id


def _order(row: Queued) -> tuple[int, datetime, str]:
    return -row.priority, row.created_at, row.id
