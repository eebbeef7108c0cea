"""Outcomes of a version's answers, in whole numbers only, so that two counts of the same events are exactly equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

MILLIONTHS = 1_000_000
"""Millionths of a unit of money: revenue is an integer, because sums of floats depend on their order."""


@dataclass(frozen=True)
class AnswerOutcomes:
    """Outcomes of the answers that a version gave in a time range, by the positives within the attribution window."""

    answers: int = 0
    hits: int = 0
    """Answers with at least one positive."""
    conversions: int = 0
    """Answers with at least one conversion."""
    revenue: int = 0
    """In millionths."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Positives by their kind."""
    shown: Mapping[int, int] = field(default_factory=dict)
    """Answers by their number of items."""
    clicked: Mapping[int, int] = field(default_factory=dict)
    """Answers with at least one positive of the item in the place, by place from 0."""

    @property
    def hit_rate(self) -> float:
        return self.hits / self.answers if self.answers else 0.0

    @property
    def conversion(self) -> float:
        return self.conversions / self.answers if self.answers else 0.0

    @property
    def revenue_per_answer(self) -> float:
        return self.revenue / MILLIONTHS / self.answers if self.answers else 0.0

    def __add__(self, other: AnswerOutcomes) -> AnswerOutcomes:
        """Adds two disjoint sets of answers."""
        return AnswerOutcomes(
            answers=self.answers + other.answers,
            hits=self.hits + other.hits,
            conversions=self.conversions + other.conversions,
            revenue=self.revenue + other.revenue,
            kinds=_added(self.kinds, other.kinds),
            shown=_added(self.shown, other.shown),
            clicked=_added(self.clicked, other.clicked),
        )

    def engagement(self, weights: Mapping[str, float]) -> float:
        """Returns the weighted positives per answer; a kind without a weight has weight 1."""
        return sum(count * weights.get(kind, 1.0) for kind, count in self.kinds.items()) / self.answers if self.answers else 0.0

    def click_rates(self) -> Mapping[int, float]:
        """Returns, by place, the share of the answers with an item there that have a positive of that item."""
        had = {place: sum(count for size, count in self.shown.items() if size > place) for place in range(max(self.shown, default=0))}
        return {place: self.clicked.get(place, 0) / count for place, count in had.items() if count}


@dataclass(frozen=True)
class AnswerGroup:
    """Group of answers that are counted together; each answer is in exactly one group."""

    variant: str
    fallback: str | None = None
    slices: tuple[str, ...] = ()


def gathered(parts: Mapping[AnswerGroup, AnswerOutcomes], named: Callable[[AnswerGroup], Iterable[K]]) -> dict[K, AnswerOutcomes]:
    """Sums the parts by name; a part may have several names."""
    sums: dict[K, AnswerOutcomes] = {}
    for part, earned in parts.items():
        for name in named(part):
            sums[name] = sums[name] + earned if name in sums else earned
    return sums


def total(parts: Iterable[AnswerOutcomes]) -> AnswerOutcomes:
    return sum(parts, AnswerOutcomes())


def sliding(steps: Mapping[int, AnswerOutcomes], width: int, count: int) -> list[AnswerOutcomes]:
    """Returns `count` sliding sums of `width` steps. Step 0 is the first step of the first sum."""
    return [total(steps[at] for at in range(end - width + 1, end + 1) if at in steps) for end in range(width - 1, width - 1 + count)]


def _added(first: Mapping[K, int], second: Mapping[K, int]) -> Mapping[K, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in (*first, *(key for key in second if key not in first))}
