"""Comparison of two runs: differences of their specs, leaf by leaf, and of their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """Different leaf of two documents; None on the side where the leaf is missing."""

    path: str
    left: Any
    right: Any


@dataclass(frozen=True)
class MetricPair:
    """Metric on both sides; `change` is None unless both sides have the metric."""

    metric: str
    left: float | None
    right: float | None
    change: float | None


def differences(left: Any, right: Any, path: str = "") -> tuple[Difference, ...]:
    """Returns the differences of two documents, sorted by path. Lists of different lengths or of plain values are leaves."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        names = sorted({*left, *right}, key=str)
        return tuple(
            difference
            for name in names
            for difference in differences(left.get(name), right.get(name), f"{path}.{name}" if path else str(name))
        )
    if (
        isinstance(left, list)
        and isinstance(right, list)
        and len(left) == len(right)
        and any(isinstance(element, Mapping) for element in left)
    ):
        return tuple(
            difference for place, pair in enumerate(zip(left, right, strict=True)) for difference in differences(*pair, f"{path}[{place}]")
        )
    return () if left == right else (Difference(path, left, right),)


def numbers(left: Mapping[str, float], right: Mapping[str, float]) -> tuple[MetricPair, ...]:
    return tuple(
        MetricPair(name, left.get(name), right.get(name), right[name] - left[name] if name in left and name in right else None)
        for name in sorted({*left, *right})
    )
