"""Exploration: with what chance each item stood in its place, exactly, so that what another version would have earned can be estimated.

In a share of the answers (`rate`) one of the places that rules leave free is drawn, each with the same chance, and given to one of the
candidates that fit there, each with the same chance. All other places are as they would be. One number in [0, 1) draws all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Chances:
    shown: tuple[float, ...]
    """Of each place, that it shows what it shows."""
    fitting: tuple[int, ...]
    """How many candidates could stand there instead."""
    free: tuple[int, ...]
    """The places that may be given away."""
    rate: float

    @staticmethod
    @lru_cache(1024)
    def equal(places: int, others: int, rate: float) -> Chances:
        """Where every other candidate fits everywhere."""
        return Chances._made([others] * places, range(places), rate)

    @classmethod
    def of(cls, fits: Any, free: Sequence[bool], rate: float) -> Chances:
        """`fits` by candidate and place."""
        return cls._made(np.sum(fits, axis=0).tolist(), [place for place, is_free in enumerate(free) if is_free], rate)

    @classmethod
    def _made(cls, fitting: Sequence[int], free: Sequence[int], rate: float) -> Chances:
        shown_chances = [1.0] * len(fitting)
        for place in free:
            if fitting[place]:
                shown_chances[place] = 1.0 - rate / len(free)
        return cls(tuple(shown_chances), tuple(fitting), tuple(free), rate)

    def after(self, place: int) -> Chances:
        """Now that this place was given away."""
        chance = self.rate / len(self.free) / self.fitting[place]
        return replace(self, shown=(*self.shown[:place], chance, *self.shown[place + 1 :]))


def drawn(chances: Chances, luck: float, rate: float) -> tuple[int, int] | None:
    """The place that is given away, and to which of those that fit there; None: nothing is explored this time."""
    if luck >= rate or not chances.free:
        return None
    where = luck / rate * len(chances.free)
    place = chances.free[min(int(where), len(chances.free) - 1)]
    count = chances.fitting[place]
    return (place, min(int((where - int(where)) * count), count - 1)) if count else None
