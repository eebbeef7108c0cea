"""Has the hit rate of a version fallen since some moment? An e-detector over blocks of time.

For each block that the fall may have begun with, everything since is held against everything before, from the version's first answers
on, by exact evidence (`shared.domain.evidence`): an e-process while nothing has fallen. Their sum is an e-detector of the
Shiryaev-Roberts kind: it reaches c once in c blocks at most while the rate stays, with no promise about when the fall comes, how large it
is, or what the rate was. A user's answers of one block are one observation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

from shared.domain.drift.detectors import ALPHA, LOOKS
from shared.domain.drift.reading import Look, Moved, Reading
from shared.domain.evidence import NOTHING, against_ratio
from shared.domain.sequential_test import FEWER, WORDS, Goal, Sample, of_goal

MOST = 400
"""Blocks that a fall may have begun with; what is older is before all of them."""
_WEIGHT = 0.2
"""The share of the newer side that the bets are made for: a guess, and only a guess."""


@dataclass(frozen=True)
class Block:
    """What the answers of a stretch of time earned."""

    until: datetime
    sample: Sample


@dataclass
class Comparisons:
    """Collects the evidence of all comparisons of a rate before and now, and keeps the strongest comparison."""

    fewest: int
    """Answers that either side needs."""
    goal: Goal
    ratio: float = 1.0
    """The evidence speaks against the claim that the rate is still at least this share of the rate before."""
    logs: list[float] = field(default_factory=list)
    """The logarithm of each comparison's evidence."""
    strongest: float = NOTHING
    sides: tuple[Sample, Sample, str] | None = None

    def add(self, before: Sample, now: Sample, weight: float, share: float = 1.0, against: str = "") -> None:
        """`weight`: the expected share of the newer side among all users. `share`: the share of all bets that are made on this comparison.
        `against`: what the older side is, for people."""
        if min(before.answers, now.answers) < self.fewest:
            return
        before, now = of_goal(before, self.goal), of_goal(now, self.goal)
        evidence = against_ratio(before.sums, now.sums, self.ratio, FEWER, weight) + math.log(share)
        self.logs.append(evidence)
        if self.sides is None or evidence > self.strongest:
            self.strongest, self.sides = evidence, (before, now, against)

    def reading(self) -> Reading | None:
        """None while there are too few answers for any comparison."""
        if self.sides is None:
            return None
        before, now, against = self.sides
        size = max(1 - now.mean / before.mean, 0.0) if before.mean else 0.0
        name = WORDS[self.goal].goal
        moved = (Moved(f"{name}, compared with {against}," if against else name, before.mean, now.mean),)
        return Reading(self.goal, "", size, self._chance(), ALPHA / LOOKS, (before.users, now.users), moved)

    def _chance(self) -> float:
        if self.strongest == NOTHING:
            return 1.0
        return min(math.exp(-self.strongest) / math.fsum(math.exp(log - self.strongest) for log in self.logs), 1.0)


def fall(version: int, before: Sample, blocks: Sequence[Block], fewest: int, goal: Goal = "hit_rate") -> Look | None:
    """The reading of the newest block; None while no beginning has `fewest` answers on both sides."""
    if not blocks:
        return None
    firsts = list(accumulate((block.sample for block in blocks[:-1]), Sample.plus, initial=before))
    comparisons, now = Comparisons(fewest, goal), Sample()
    for first, block in zip(reversed(firsts), reversed(blocks), strict=True):
        now = now.plus(block.sample)
        comparisons.add(first, now, _WEIGHT)
    reading = comparisons.reading()
    return None if reading is None else Look(version, blocks[-1].until, (reading,))
