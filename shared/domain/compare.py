"""Two runs side by side: in what they differ, leaf by leaf, and what that made of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """One leaf; None on the side that hasn't got it."""

    path: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Numbers:
    """A metric on both sides; `change` only where both have it."""

    metric: str
    left: float | None
    right: float | None
    change: float | None


def differences(left: Any, right: Any, path: str = "") -> tuple[Difference, ...]:
    """Where two documents differ, in the order of their paths. A list of other length, or of plain values, is a leaf."""
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


def numbers(left: Mapping[str, float], right: Mapping[str, float]) -> tuple[Numbers, ...]:
    return tuple(
        Numbers(name, left.get(name), right.get(name), right[name] - left[name] if name in left and name in right else None)
        for name in sorted({*left, *right})
    )
