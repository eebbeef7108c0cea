"""Repeated trials of a simulation in worker processes: bounds of their counts, quantiles of their delays, and when alarms begin."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from scipy.stats import beta, binomtest

from shared.domain.drift.alarm_decision import NOTHING_YET, remember
from shared.domain.drift.reading import DriftLook

T = TypeVar("T")
ANY = "all"
"""Name of the alarms that begin while no other one stands."""


def workers(count: int = 2) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that at least this share of the values does not exceed; values may be infinite."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def finite(values: Iterable[float]) -> list[float]:
    """Returns the finite values; not a number if there are none."""
    return [value for value in values if math.isfinite(value)] or [math.nan]


def at_most(count: int, trials: int) -> float:
    """Returns the upper 95% bound of a share (Clopper and Pearson)."""
    return 1.0 if count == trials else float(beta.ppf(0.95, count + 1, trials - count))


def interval(count: int, trials: int) -> tuple[float, float]:
    """Returns the 95% interval of a share (Wilson)."""
    bounds = binomtest(count, trials).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


def alarm_starts(
    looks: Iterable[tuple[T, DriftLook]], thresholds: Mapping[str, float], needed: int, by: str = "detector"
) -> Iterator[tuple[T, str]]:
    """Yields the place of the look at which an alarm begins, and its name: an attribute of its reading, or `ANY`."""
    memory, standing = NOTHING_YET, set[str]()
    for place, look in looks:
        memory = remember(memory, look, thresholds, needed)
        moved = {getattr(alarm.reading, by) for alarm in memory.moved}
        yield from ((place, name) for name in sorted(moved - standing))
        if moved and not standing:
            yield place, ANY
        standing = moved
