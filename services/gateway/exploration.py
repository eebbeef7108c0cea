"""Exploration with exact propensities, so that offline estimates of other versions are possible.

In a share `rate` of the answers one free place is drawn uniformly, and filled with a uniformly drawn candidate that fits. All other places
stay. One number in [0, 1) draws everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Propensities:
    shown: tuple[float, ...]
    """Propensity of the shown item of each place."""
    fitting: tuple[int, ...]
    """Number of other candidates that fit each place."""
    free: tuple[int, ...]
    """Places that may be explored."""
    rate: float

    @staticmethod
    @lru_cache(1024)
    def equal(places: int, others: int, rate: float) -> Propensities:
        """For candidates that all fit everywhere."""
        return Propensities._made([others] * places, range(places), rate)

    @classmethod
    def of(cls, fits: Any, free: Sequence[bool], rate: float) -> Propensities:
        """`fits` by candidate and place."""
        return cls._made(np.sum(fits, axis=0).tolist(), [place for place, is_free in enumerate(free) if is_free], rate)

    @classmethod
    def _made(cls, fitting: Sequence[int], free: Sequence[int], rate: float) -> Propensities:
        shown_chances = [1.0] * len(fitting)
        for place in free:
            if fitting[place]:
                shown_chances[place] = 1.0 - rate / len(free)
        return cls(tuple(shown_chances), tuple(fitting), tuple(free), rate)

    def after(self, place: int) -> Propensities:
        """Returns the propensities after this place was explored."""
        chance = self.rate / len(self.free) / self.fitting[place]
        return replace(self, shown=(*self.shown[:place], chance, *self.shown[place + 1 :]))


def drawn(propensities: Propensities, luck: float, rate: float) -> tuple[int, int] | None:
    """Returns the explored place and the index among the candidates that fit there; None: no exploration."""
    if luck >= rate or not propensities.free:
        return None
    where = luck / rate * len(propensities.free)
    place = propensities.free[min(int(where), len(propensities.free) - 1)]
    count = propensities.fitting[place]
    return (place, min(int((where - int(where)) * count), count - 1)) if count else None
