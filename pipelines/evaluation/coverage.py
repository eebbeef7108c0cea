"""Coverage and novelty: the share of the catalogue that users are shown, and how unpopular these items are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.domain import coverage_novelty


def coverage(shown: NDArray[np.int32], catalogue: int) -> float:
    """Returns the share of the catalogue that at least one user is shown."""
    return coverage_novelty.coverage(_showings(shown), catalogue)


def novelty(shown: NDArray[np.int32], likes: NDArray[np.int64], catalogue: int) -> float | None:
    """Returns the novelty of the shown items in bits, from the likes of each item, as for the platform's own answers; None if nothing is
    shown."""
    showings = _showings(shown)
    liked = {row: int(likes[row]) for row in showings.items}
    others = int(likes.sum()) - sum(liked.values())
    return coverage_novelty.novelty(showings, liked | {-1: others}, catalogue)


def _showings(shown: NDArray[np.int32]) -> coverage_novelty.ItemShowings:
    rows, counts = np.unique(shown[shown >= 0], return_counts=True)
    answers = int((shown >= 0).any(axis=1).sum()) if shown.size else 0
    return coverage_novelty.ItemShowings(answers, dict(zip(rows.tolist(), counts.tolist(), strict=True)))
