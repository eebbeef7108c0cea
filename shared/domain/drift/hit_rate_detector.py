"""Detector of a fall of a version's hit rate: an e-detector over blocks of time.

For each block in which the fall may have begun, exact evidence (`shared.domain.evidence`) compares all answers since then with all earlier
answers of the version. Each comparison is an e-process while the rate has not fallen. Their sum is an e-detector of the Shiryaev-Roberts
kind: while the rate stays, it reaches c at most once in c blocks on average, whatever the rate is. It gives no guarantee about the delay or
the size of a fall. A user's answers in one block are one observation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

from shared.domain.drift.detectors import ALPHA, LOOKS
from shared.domain.drift.reading import DriftLook, DriftReading, ShareChange
from shared.domain.evidence import NOTHING, against_ratio
from shared.domain.sequential_test import FEWER, WORDS, Goal, VariantSample, of_goal

MOST = 400
"""Maximum number of blocks in which a fall may have begun; older answers are always on the earlier side."""
_WEIGHT = 0.2
"""Assumed share of the newer side in the bets; a wrong value costs power, not validity."""


@dataclass(frozen=True)
class Block:
    """Outcomes of the answers in a time range."""

    until: datetime
    sample: VariantSample


@dataclass
class Comparisons:
    """Collects the evidence of all comparisons of a rate before and now, and keeps the strongest comparison."""

    fewest: int
    """Answers that each side needs."""
    goal: Goal
    ratio: float = 1.0
    """The evidence is against the claim that the rate is still at least this share of the earlier rate."""
    logs: list[float] = field(default_factory=list)
    """The logarithm of each comparison's evidence."""
    strongest: float = NOTHING
    sides: tuple[VariantSample, VariantSample, str] | None = None

    def add(self, before: VariantSample, now: VariantSample, weight: float, share: float = 1.0, against: str = "") -> None:
        """`weight`: expected share of the newer side among all users. `share`: share of all bets that this comparison gets. `against`: name
        of the older side, for users."""
        if min(before.answers, now.answers) < self.fewest:
            return
        before, now = of_goal(before, self.goal), of_goal(now, self.goal)
        evidence = against_ratio(before.sums, now.sums, self.ratio, FEWER, weight) + math.log(share)
        self.logs.append(evidence)
        if self.sides is None or evidence > self.strongest:
            self.strongest, self.sides = evidence, (before, now, against)

    def reading(self) -> DriftReading | None:
        """Returns None if no comparison has enough answers."""
        if self.sides is None:
            return None
        before, now, against = self.sides
        size = max(1 - now.mean / before.mean, 0.0) if before.mean else 0.0
        name = WORDS[self.goal].goal
        moved = (ShareChange(f"{name}, compared with {against}," if against else name, before.mean, now.mean),)
        return DriftReading(self.goal, "", size, self._chance(), ALPHA / LOOKS, (before.users, now.users), moved)

    def _chance(self) -> float:
        if self.strongest == NOTHING:
            return 1.0
        return min(math.exp(-self.strongest) / math.fsum(math.exp(log - self.strongest) for log in self.logs), 1.0)


def fall(version: int, before: VariantSample, blocks: Sequence[Block], fewest: int, goal: Goal = "hit_rate") -> DriftLook | None:
    """Returns the reading of the newest block; None if no split has `fewest` answers on both sides."""
    if not blocks:
        return None
    firsts = list(accumulate((block.sample for block in blocks[:-1]), VariantSample.plus, initial=before))
    comparisons, now = Comparisons(fewest, goal), VariantSample()
    for first, block in zip(reversed(firsts), reversed(blocks), strict=True):
        now = now.plus(block.sample)
        comparisons.add(first, now, _WEIGHT)
    reading = comparisons.reading()
    return None if reading is None else DriftLook(version, blocks[-1].until, (reading,))
