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
    `said` has the place as well. Who waits for another run of its recommender has no place yet."""

    waits: str | None = None
    position: int | None = None

    @property
    def said(self) -> str | None:
        return self.waits if self.position is None else f"{ordinal(self.position)} in the queue: {self.waits}"


def admit(rows: Iterable[Queued], limit: int) -> Mapping[str, Turn]:
    """By id. Active runs keep their place whatever the limit is now; the same rows give the same answer in any order."""
    found = list(rows)
    ahead = {one.recommender: one.id for one in sorted(found, key=_age, reverse=True) if one.active}
    turns = {one.id: Turn() for one in found if one.active}
    taken = len(turns)
    position = 0
    for one in sorted((one for one in found if not one.active), key=_order):
        before = ahead.get(one.recommender)
        if before is not None:
            turns[one.id] = Turn(f"waits for run {before} of this recommender")
        elif taken < limit:
            taken += 1
            turns[one.id] = Turn()
        else:
            position += 1
            turns[one.id] = Turn(f"{taken} of {limit} runs are active", position)
        ahead[one.recommender] = one.id
    return turns


def ordinal(number: int) -> str:
    """In words as far as people say them."""
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _age(one: Queued) -> tuple[datetime, str]:
    return one.created_at, one.id


def _order(one: Queued) -> tuple[int, datetime, str]:
    return -one.priority, one.created_at, one.id
