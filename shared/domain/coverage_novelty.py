"""How far a version's answers reach into the catalogue, and how little known what they show is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

LOOKED = 5_000
"""Of a version's newest answers in a stretch of time, so many are looked at for what they showed."""
LIKES = 20_000
"""So many of the newest positives say what is liked how much."""


@dataclass(frozen=True)
class Showings:
    answers: int = 0
    """That were looked at."""
    items: Mapping[int, int] = field(default_factory=dict)
    """How many of them showed each item."""


def coverage(showings: Showings, catalogue: int) -> float:
    """The share of so many items that was shown at least once."""
    return min(1.0, len(showings.items) / catalogue) if catalogue else 0.0


def novelty(showings: Showings, likes: Mapping[int, int], catalogue: int) -> float | None:
    """The mean over all that was shown of how surprising a like of it is, in bits: -log2 of the item's share of the likes, where each
    item of the catalogue has one like more than it has. None where nothing was shown."""
    shown = sum(showings.items.values())
    if not shown:
        return None
    every = sum(likes.values()) + max(catalogue, len(showings.items))
    return math.fsum(-math.log2((likes.get(item, 0) + 1) / every) * count for item, count in sorted(showings.items.items())) / shown
