"""What the answers of a version earned: whole numbers alone, so that two counts of the same events are equal, not nearly equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    def engagement(self, weights: Mapping[str, float]) -> float:
        """The weights of all positives, per answer; a kind without a weight weighs 1."""
        return sum(count * weights.get(kind, 1.0) for kind, count in self.kinds.items()) / self.answers if self.answers else 0.0

    def click_rates(self) -> Mapping[int, float]:
        """By place: the share of the answers that had an item there and saw it clicked."""
        had = {place: sum(count for size, count in self.shown.items() if size > place) for place in range(max(self.shown, default=0))}
        return {place: self.clicked.get(place, 0) / count for place, count in had.items() if count}
