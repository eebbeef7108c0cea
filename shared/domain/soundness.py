"""Data checks: figures for the soundness of a batch of data, and verdicts from thresholds. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

Verdict = Literal["pass", "warn", "stop"]
_ORDER: tuple[Verdict, ...] = ("pass", "warn", "stop")
SMALL_TIE = 0.02
"""Minimum of an explained share; a smaller one can be chance, so its loss is not reported."""


def verdict(figure: float, warn: float | None, stop: float | None) -> Verdict:
    """Returns the verdict of a figure; a threshold is crossed only by a larger figure."""
    if stop is not None and figure > stop:
        return "stop"
    return "warn" if warn is not None and figure > warn else "pass"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=_ORDER.index, default="pass")


def stability_index(before: Sequence[int], now: Sequence[int]) -> float:
    """Population stability index of two histograms with the same bins, minus the part expected by chance. An empty bin counts as half a
    row."""
    n, m = sum(before), sum(now)
    if not n or not m:
        return 0.0
    index, bins = 0.0, 0
    for first, second in zip(before, now, strict=True):
        if not first and not second:
            continue
        bins += 1
        p, q = max(first, 0.5) / n, max(second, 0.5) / m
        index += (q - p) * math.log(q / p)
    return max(0.0, index - (bins - 1) * (1 / n + 1 / m))


def explained(groups: int, rows: int, within: float, total: float) -> float:
    """Returns the share of a number's variance that its group explains, corrected for chance: 0 for random groups. `within` and `total` are
    sums of squares."""
    if groups >= rows or groups < 2 or total <= 0:
        return 0.0
    return max(0.0, 1 - (within / (rows - groups)) / (total / (rows - 1)))


def lost(before: float, now: float) -> float | None:
    """Returns the lost part of an explained share; None if the share was too small before."""
    return None if before < SMALL_TIE else max(0.0, 1 - now / before)
