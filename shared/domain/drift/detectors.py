"""Registry of the drift detectors. A new detector is a function from a column to a reading; the spec then has its threshold."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.domain.drift.distributions import kolmogorov_tail
from shared.domain.drift.reading import DriftColumn, DriftReading, DriftValue, ShareChange, Values
from shared.domain.drift.shares import FEWEST, ShareComparison, compare

ALPHA = 0.001
"""Probability of a false alarm in a window, over all detectors and columns."""
LOOKS = 4
"""Looks per window of events: a look happens whenever a quarter of the window is new."""
SHOWN = 3
"""Number of values that a reading names."""
DRAWN = 12
"""Number of values whose shares a reading keeps for plots."""

Detect = Callable[[DriftColumn], DriftReading | None]


@dataclass(frozen=True)
class Detector:
    name: str
    reads: str
    """Kind of the columns that the detector reads."""
    detect: Detect
    """Returns None if there is too little data."""
    threshold: float | None
    """Default size that triggers a retraining; None: the detector only observes."""
    description: str


def psi(column: DriftColumn) -> DriftReading | None:
    """Population stability index of the known values; numbers are binned by deciles of both samples together."""
    edges = _tenths((*column.first, *column.now))
    comparison = compare(_shares(column.first, edges), _shares(column.now, edges))
    if comparison is None:
        return None
    return _reading("psi", column, max(comparison.psi - comparison.bias, 0.0), comparison.chance, comparison)


def new(column: DriftColumn) -> DriftReading | None:
    """Increase of the share of likes of items that the version does not know."""
    return _risen("new", column, lambda value: value.texts is None and value.number is None)


def nulls(column: DriftColumn) -> DriftReading | None:
    """Increase of the share of positives of items without a value."""
    return _risen("nulls", column, lambda value: value.texts == () and value.number is None)


def scores(column: DriftColumn) -> DriftReading | None:
    """Kolmogorov-Smirnov distance of the shown scores; each user's first answer of each period counts."""
    first, now = _firsts(column.first), _firsts(column.now)
    if min(len(first), len(now)) < FEWEST:
        return None
    distance = max(abs(bisect_right(first, at) / len(first) - bisect_right(now, at) / len(now)) for at in {*first, *now})
    chance = kolmogorov_tail(distance, len(first), len(now))
    moved = (ShareChange("median", _median(first), _median(now)),)
    return DriftReading("scores", column.name, distance, chance, ALPHA, (len(first), len(now)), moved)


DETECTORS: Mapping[str, Detector] = {
    detector.name: detector
    for detector in (
        Detector("psi", "feature", psi, 0.2, "distribution of positives over the values of an item feature"),
        Detector("new", "key", new, 0.05, "positives of items that the serving version does not know"),
        Detector("nulls", "feature", nulls, 0.05, "positives of items without a value"),
        Detector("scores", "scores", scores, None, "scores of the shown items"),
    )
}


def detected(columns: Sequence[DriftColumn]) -> tuple[DriftReading, ...]:
    """Returns the readings of all detectors for all columns of their kinds."""
    readings = (detector.detect(column) for column in columns for detector in DETECTORS.values() if detector.reads == column.kind)
    return limited([reading for reading in readings if reading is not None])


def limited(readings: Sequence[DriftReading], looks: int = LOOKS) -> tuple[DriftReading, ...]:
    """Sets the limit of each reading to its part of the window's false alarm probability (Bonferroni)."""
    return tuple(replace(reading, limit=ALPHA / looks / len(readings)) for reading in readings)


def _risen(name: str, column: DriftColumn, is_one: Callable[[DriftValue], bool]) -> DriftReading | None:
    comparison = compare(_kinds(column.first, is_one), _kinds(column.now, is_one))
    if comparison is None:
        return None
    rise = comparison.after.get(_SUCH, 0.0) - comparison.before.get(_SUCH, 0.0)
    return _reading(name, column, max(rise, 0.0), comparison.chance / 2 if rise > 0 else 1.0, comparison)


_SUCH, _REST = "such", "others"


def _kinds(values: Values, is_one: Callable[[DriftValue], bool]) -> list[dict[str, float]]:
    such: Counter[int] = Counter()
    all_of: Counter[int] = Counter()
    for value in values:
        all_of[value.user] += 1
        such[value.user] += is_one(value)
    return [{_SUCH: such[user] / count, _REST: 1 - such[user] / count} for user, count in all_of.items()]


def _shares(values: Values, edges: Sequence[float]) -> list[dict[str, float]]:
    """Returns the shares of each user with at least one known value."""
    users: dict[int, Counter[str]] = {}
    for value in values:
        texts = value.texts if value.number is None else (_tenth(value.number, edges),)
        if texts:
            users.setdefault(value.user, Counter()).update(texts)
    return [{text: count / counts.total() for text, count in counts.items()} for counts in users.values()]


def _tenths(values: Values) -> list[float]:
    numbers = sorted(value.number for value in values if value.number is not None)
    return sorted({numbers[len(numbers) * part // 10] for part in range(1, 10)}) if numbers else []


def _tenth(number: float, edges: Sequence[float]) -> str:
    at = bisect_right(edges, number)
    if at == 0:
        return f"below {edges[0]:g}"
    return f"{edges[at - 1]:g} and more" if at == len(edges) else f"{edges[at - 1]:g} to {edges[at]:g}"


def _reading(name: str, column: DriftColumn, size: float, chance: float, comparison: ShareComparison) -> DriftReading:
    values = sorted(comparison.before.keys() | comparison.after.keys(), key=lambda value: (-_part(comparison, value), value))
    moved = tuple(
        ShareChange(value, comparison.before.get(value, 0.0), comparison.after.get(value, 0.0)) for value in values if value != _REST
    )
    return DriftReading(name, column.name, size, chance, ALPHA, comparison.users, moved[:SHOWN], moved[:DRAWN] if name == "psi" else ())


def _part(comparison: ShareComparison, value: str) -> float:
    """Returns the weight of this value in the whole movement."""
    before, after = comparison.before.get(value, 0.0), comparison.after.get(value, 0.0)
    return (after - before) ** 2 / (after + before) if after + before else 0.0


def _firsts(values: Values) -> list[float]:
    users: dict[int, float] = {}
    for value in values:
        if value.number is not None and math.isfinite(value.number):
            users.setdefault(value.user, value.number)
    return sorted(users.values())


def _median(numbers: Sequence[float]) -> float:
    return numbers[len(numbers) // 2]
