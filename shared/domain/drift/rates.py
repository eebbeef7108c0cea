"""Detector of a rate (hit rate or conversion) below a fixed limit."""

from __future__ import annotations

import math

from shared.domain.drift.detectors import ALPHA, LOOKS
from shared.domain.drift.reading import DriftReading, ShareChange
from shared.domain.evidence import NOTHING, against_most
from shared.domain.sequential_test import WORDS, Goal, VariantSample, of_goal


def limit_detector(goal: Goal) -> str:
    """Returns the name of the detector that compares a rate with its limit."""
    return f"{goal}_min"


def below_limit(sample: VariantSample, goal: Goal, limit: float, fewest: int) -> DriftReading | None:
    """Returns how far the mean is below the limit, with exact evidence; None if there are too few answers."""
    if sample.answers < fewest:
        return None
    sums = of_goal(sample, goal).sums
    mean = sums.total / sums.users
    evidence = against_most(sums.users, sums.users - sums.total, 1 - limit)
    chance = 1.0 if evidence == NOTHING else min(math.exp(-evidence), 1.0)
    moved = (ShareChange(f"{WORDS[goal].goal}, compared with its limit,", limit, mean),)
    return DriftReading(limit_detector(goal), "", max(1 - mean / limit, 0.0), chance, ALPHA / LOOKS, (0, sample.users), moved)
