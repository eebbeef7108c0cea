"""What the answers of a version earned: whole numbers alone, so that two counts of the same events are equal, not nearly equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

MILLIONTHS = 1_000_000
"""Of a unit of money: what revenue is kept in, since sums of floats depend on their order."""


@dataclass(frozen=True)
class Earned:
    """Of the answers that a version gave in some stretch of time, by the positives that reacted to them in time."""

    answers: int = 0
    hits: int = 0
    """Answers with at least one positive."""
    conversions: int = 0
    """Answers with at least one event of a kind that is a conversion."""
    revenue: int = 0
    """In millionths."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Positives by their kind."""
    shown: Mapping[int, int] = field(default_factory=dict)
    """Answers by how many items they had; those from before this was noted are left out."""
    clicked: Mapping[int, int] = field(default_factory=dict)
    """By place in the answer, from 0: answers with at least one positive of the item there."""

    @property
    def hit_rate(self) -> float:
        return self.hits / self.answers if self.answers else 0.0

    @property
    def conversion(self) -> float:
        return self.conversions / self.answers if self.answers else 0.0

    @property
    def revenue_per_answer(self) -> float:
        return self.revenue / MILLIONTHS / self.answers if self.answers else 0.0

    def __add__(self, other: Earned) -> Earned:
        """Of the answers of both, which are apart."""
        return Earned(
            answers=self.answers + other.answers,
            hits=self.hits + other.hits,
            conversions=self.conversions + other.conversions,
            revenue=self.revenue + other.revenue,
            kinds=_added(self.kinds, other.kinds),
            shown=_added(self.shown, other.shown),
            clicked=_added(self.clicked, other.clicked),
        )

    def engagement(self, weights: Mapping[str, float]) -> float:
        """The weights of all positives, per answer; a kind without a weight weighs 1."""
        return sum(count * weights.get(kind, 1.0) for kind, count in self.kinds.items()) / self.answers if self.answers else 0.0

    def click_rates(self) -> Mapping[int, float]:
        """By place: the share of the answers that had an item there and saw it clicked."""
        had = {place: sum(count for size, count in self.shown.items() if size > place) for place in range(max(self.shown, default=0))}
        return {place: self.clicked.get(place, 0) / count for place, count in had.items() if count}


@dataclass(frozen=True)
class Part:
    """What the answers that are counted together have in common; each answer is of one part."""

    variant: str
    fallback: str | None = None
    slices: tuple[str, ...] = ()


def gathered(parts: Mapping[Part, Earned], named: Callable[[Part], Iterable[K]]) -> dict[K, Earned]:
    """The parts added up under each name that is given to them, of which one may have several."""
    sums: dict[K, Earned] = {}
    for part, earned in parts.items():
        for name in named(part):
            sums[name] = sums[name] + earned if name in sums else earned
    return sums


def total(parts: Iterable[Earned]) -> Earned:
    return sum(parts, Earned())


def sliding(steps: Mapping[int, Earned], width: int, count: int) -> list[Earned]:
    """By step from 0 on: that step and the `width - 1` before it, added up; `count` of them, the first `width - 1` being there to look
    back to."""
    return [total(steps[at] for at in range(end - width + 1, end + 1) if at in steps) for end in range(width - 1, width - 1 + count)]


def _added(first: Mapping[K, int], second: Mapping[K, int]) -> Mapping[K, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in (*first, *(key for key in second if key not in first))}
