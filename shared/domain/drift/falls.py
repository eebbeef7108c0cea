"""Has the hit rate of a version fallen since some moment? An e-detector over blocks of time.

For each block that the fall may have begun with, everything since is held against everything before, from the version's first answers
on, by exact evidence (`shared.domain.evidence`): an e-process while nothing has fallen. Their sum is an e-detector of the
Shiryaev-Roberts kind: it reaches c once in c blocks at most while the rate stays, with no promise about when the fall comes, how large it
is, or what the rate was. A user's answers of one block are one observation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from shared.domain.drift.detectors import ALPHA, LOOKS
from shared.domain.drift.reading import Look, Moved, Reading
from shared.domain.evidence import NOTHING, against_ratio
from shared.domain.verdict import FEWER, WORDS, Goal, Sample, of_goal

MOST = 400
"""Blocks that a fall may have begun with; what is older is before all of them."""
_WEIGHT = 0.2
"""The share of the newer side that the bets are made for: a guess, and only a guess."""


@dataclass(frozen=True)
class Block:
    """What the answers of a stretch of time earned."""

    until: datetime
    sample: Sample


def fall(version: int, before: Sample, blocks: Sequence[Block], fewest: int, goal: Goal = "hit_rate") -> Look | None:
    """The reading of the newest block; None while no beginning has `fewest` answers on both sides."""
    before, blocks = of_goal(before, goal), [Block(one.until, of_goal(one.sample, goal)) for one in blocks]
    if not blocks:
        return None
    firsts = list(accumulate((one.sample for one in blocks[:-1]), Sample.plus, initial=before))
    logs, worst, sides, now = [], NOTHING, None, Sample()
    for first, block in zip(reversed(firsts), reversed(blocks), strict=True):
        now = now.plus(block.sample)
        if min(first.answers, now.answers) < fewest:
            continue
        found = against_ratio(first.sums, now.sums, 1.0, FEWER, _WEIGHT)
        logs.append(found)
        if sides is None or found > worst:
            worst, sides = found, (first, now)
    if sides is None:
        return None
    was, is_now = sides
    size = max(1 - is_now.mean / was.mean, 0.0) if was.mean else 0.0
    moved = (Moved(WORDS[goal].goal, was.mean, is_now.mean),)
    reading = Reading(goal, "", size, _chance(logs), ALPHA / LOOKS, (was.users, is_now.users), moved)
    return Look(version, blocks[-1].until, (reading,))


def _chance(logs: Sequence[float]) -> float:
    most = max(logs)
    if most == NOTHING:
        return 1.0
    return min(math.exp(-most) / math.fsum(math.exp(one - most) for one in logs), 1.0)
