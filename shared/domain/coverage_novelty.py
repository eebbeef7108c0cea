"""Coverage and novelty of the answers of a version: how much of the catalogue they show, and how unpopular the shown items are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

LOOKED = 5_000
"""Number of a version's newest answers in a time range that are read for their items."""
LIKES = 20_000
"""Number of the newest positives from which item popularity is counted."""


@dataclass(frozen=True)
class ItemShowings:
    answers: int = 0
    """Answers that were read."""
    items: Mapping[int, int] = field(default_factory=dict)
    """Number of answers that showed each item."""


def coverage(showings: ItemShowings, catalogue: int) -> float:
    """Returns the share of the catalogue's items that was shown at least once."""
    return min(1.0, len(showings.items) / catalogue) if catalogue else 0.0


def novelty(showings: ItemShowings, likes: Mapping[int, int], catalogue: int) -> float | None:
    """Returns the mean surprise of the shown items in bits, or None if nothing was shown. The surprise of an item is -log2 of its share of
    the likes, with one like added to each item of the catalogue."""
    shown = sum(showings.items.values())
    if not shown:
        return None
    every = sum(likes.values()) + max(catalogue, len(showings.items))
    return math.fsum(-math.log2((likes.get(item, 0) + 1) / every) * count for item, count in sorted(showings.items.items())) / shown
