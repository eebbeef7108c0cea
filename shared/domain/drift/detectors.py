"""The detectors by name. A new one is a function from a column to a reading, registered here; the spec gains its threshold."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.domain.drift.distributions import kolmogorov_tail
from shared.domain.drift.reading import Column, Moved, Reading, Value, Values
from shared.domain.drift.shares import FEWEST, Comparison, compare

ALPHA = 0.001
"""At most so many alarms of a window are false, over all detectors and columns."""
LOOKS = 4
"""In a window of events: one each time that a quarter of it is new."""
SHOWN = 3
"""Values that a reading names."""
DRAWN = 12
"""Values whose shares it keeps, so that they can be drawn."""

Detect = Callable[[Column], Reading | None]


@dataclass(frozen=True)
class Detector:
    name: str
    reads: str
    """The kind of columns."""
    detect: Detect
    """None: there is too little to say anything."""
    threshold: float | None
    """From which size on it starts a retraining unless the spec says otherwise; None: it is watched and starts nothing."""
    description: str


def psi(column: Column) -> Reading | None:
    """How far the shares of the known values have moved, numbers by tenths of both sides together."""
    edges = _tenths((*column.first, *column.now))
    comparison = compare(_shares(column.first, edges), _shares(column.now, edges))
    if comparison is None:
        return None
    return _reading("psi", column, max(comparison.psi - comparison.bias, 0.0), comparison.chance, comparison)


def new(column: Column) -> Reading | None:
    """By how much the share of likes has risen whose item the version doesn't know."""
    return _risen("new", column, lambda value: value.texts is None and value.number is None)


def nulls(column: Column) -> Reading | None:
    """By how much the share of likes has risen whose item has no value."""
    return _risen("nulls", column, lambda value: value.texts == () and value.number is None)


def scores(column: Column) -> Reading | None:
    """The greatest distance between the distributions of the scores shown, each user's first answer of either time."""
    first, now = _firsts(column.first), _firsts(column.now)
    if min(len(first), len(now)) < FEWEST:
        return None
    distance = max(abs(bisect_right(first, at) / len(first) - bisect_right(now, at) / len(now)) for at in {*first, *now})
    chance = kolmogorov_tail(distance, len(first), len(now))
    moved = (Moved("median", _median(first), _median(now)),)
    return Reading("scores", column.name, distance, chance, ALPHA, (len(first), len(now)), moved)


DETECTORS: Mapping[str, Detector] = {
    detector.name: detector
    for detector in (
        Detector("psi", "feature", psi, 0.2, "how what users like is spread over the values of an item feature"),
        Detector("new", "key", new, 0.05, "likes of items that the serving version doesn't know"),
        Detector("nulls", "feature", nulls, 0.05, "likes of items without a value"),
        Detector("scores", "scores", scores, None, "the scores of what is shown"),
    )
}


def detected(columns: Sequence[Column]) -> tuple[Reading, ...]:
    """What every detector says of every column of its kind."""
    readings = (detector.detect(column) for column in columns for detector in DETECTORS.values() if detector.reads == column.kind)
    return limited([reading for reading in readings if reading is not None])


def limited(readings: Sequence[Reading], looks: int = LOOKS) -> tuple[Reading, ...]:
    """Each is allowed its part of the window's chance of a false alarm (Bonferroni), so that all of them together keep to it."""
    return tuple(replace(reading, limit=ALPHA / looks / len(readings)) for reading in readings)


def _risen(name: str, column: Column, is_one: Callable[[Value], bool]) -> Reading | None:
    comparison = compare(_kinds(column.first, is_one), _kinds(column.now, is_one))
    if comparison is None:
        return None
    rise = comparison.after.get(_SUCH, 0.0) - comparison.before.get(_SUCH, 0.0)
    return _reading(name, column, max(rise, 0.0), comparison.chance / 2 if rise > 0 else 1.0, comparison)


_SUCH, _REST = "such", "others"


def _kinds(values: Values, is_one: Callable[[Value], bool]) -> list[dict[str, float]]:
    such: Counter[int] = Counter()
    all_of: Counter[int] = Counter()
    for value in values:
        all_of[value.user] += 1
        such[value.user] += is_one(value)
    return [{_SUCH: such[user] / count, _REST: 1 - such[user] / count} for user, count in all_of.items()]


def _shares(values: Values, edges: Sequence[float]) -> list[dict[str, float]]:
    """Of each user with any known value."""
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


def _reading(name: str, column: Column, size: float, chance: float, comparison: Comparison) -> Reading:
    values = sorted(comparison.before.keys() | comparison.after.keys(), key=lambda value: (-_part(comparison, value), value))
    moved = tuple(Moved(value, comparison.before.get(value, 0.0), comparison.after.get(value, 0.0)) for value in values if value != _REST)
    return Reading(name, column.name, size, chance, ALPHA, comparison.users, moved[:SHOWN], moved[:DRAWN] if name == "psi" else ())


def _part(comparison: Comparison, value: str) -> float:
    """How much of all movement is this value's."""
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
