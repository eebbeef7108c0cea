"""A stream of events as the world sends them: answers and reactions by a seed, some late, some doubled, many out of order.

Only numbers stay in memory; an event is made when it is sent, and made again, the same, for the batch count.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np

from shared.contracts.events import Impression, Interaction

T0 = datetime(2026, 3, 1, tzinfo=UTC)
ATTRIBUTION = timedelta(minutes=30)
K = 10
ITEMS = 60_000
_GAP = 0.05
"""Seconds between two answers."""


class World:
    def __init__(self, answers: int, users: int = 100_000, seed: int = 1) -> None:
        self.answers = answers
        rng = np.random.default_rng(seed)
        self._user = rng.integers(0, users, answers)
        self.reacts = np.flatnonzero(rng.random(answers) < 0.3)
        """The answers that a user reacts to."""
        count = len(self.reacts)
        self._delay = rng.exponential(600, count) - 2  # some clocks are behind
        self._place = np.minimum(rng.geometric(0.3, count) - 1, K - 1)
        self._how = rng.random((count, 2))
        self._order = self._arrivals(rng)

    def _arrivals(self, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Answers by their number, reactions by theirs after those, in the order in which they come: a fifth of the reactions twice,
        one answer in twenty up to ten minutes late, one reaction in twenty up to six hours."""
        shown = np.arange(self.answers)
        at = shown * _GAP + rng.exponential(0.2, self.answers) + (rng.random(self.answers) < 0.05) * rng.uniform(0, 600, self.answers)
        count = len(self.reacts)
        done = np.arange(count)
        came = self.reacts * _GAP + self._delay + rng.exponential(1, count)
        came += (rng.random(count) < 0.05) * rng.uniform(0, 6 * 3600, count)
        again = np.flatnonzero(rng.random(count) < 0.2)
        twice = came[again] + rng.exponential(120, len(again)) - 30
        numbers = np.concatenate([shown, self.answers + done, self.answers + again])
        order: np.ndarray[tuple[int], np.dtype[np.int64]] = numbers[np.argsort(np.concatenate([at, came, twice]), kind="stable")]
        return order

    def __len__(self) -> int:
        return len(self._order)

    def stream(self) -> Iterator[Impression | Interaction]:
        for number in self._order.tolist():
            yield self.impression(number) if number < self.answers else self.reaction(number - self.answers)

    def impression(self, number: int) -> Impression:
        return Impression(
            request_id=f"q{number:016d}",
            recommender="films",
            user=int(self._user[number]),
            version=1 + number % 2,
            variant="stable",
            generation=1,
            step=-1,
            items=tuple(_item(number, place) for place in range(K)),
            at=T0 + timedelta(seconds=number * _GAP),
        )

    def reaction(self, number: int) -> Interaction:
        answer = int(self.reacts[number])
        naming, kind = self._how[number]
        buys = kind < 0.1
        return Interaction(
            id=f"e{number}",
            recommender="films",
            user=int(self._user[answer]),
            item=_item(answer, int(self._place[number])),
            kind="purchase" if buys else "click",
            revenue=round(float(kind) * 1000, 2) if buys else None,
            request_id=None if naming < 0.3 else f"q{answer - (naming > 0.97):016d}",  # and some name another answer
            at=T0 + timedelta(seconds=answer * _GAP + float(self._delay[number])),
        )


def _item(answer: int, place: int) -> int:
    return (answer * 7919 + place * place * 31 + place) % ITEMS
