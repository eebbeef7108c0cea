"""What is beyond hits: how much of the catalogue users are shown at all, and how little known it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.domain import coverage_novelty


def coverage(shown: NDArray[np.int32], catalogue: int) -> float:
    """The share of the catalogue that is shown to anybody."""
    return coverage_novelty.coverage(_showings(shown), catalogue)


def novelty(shown: NDArray[np.int32], likes: NDArray[np.int64], catalogue: int) -> float | None:
    """How surprising the shown items are, in bits, by how often each is liked; the platform measures its own answers in the same way.
    None if nothing is shown."""
    showings = _showings(shown)
    liked = {row: int(likes[row]) for row in showings.items}
    others = int(likes.sum()) - sum(liked.values())
    return coverage_novelty.novelty(showings, liked | {-1: others}, catalogue)


def _showings(shown: NDArray[np.int32]) -> coverage_novelty.Showings:
    rows, counts = np.unique(shown[shown >= 0], return_counts=True)
    answers = int((shown >= 0).any(axis=1).sum()) if shown.size else 0
    return coverage_novelty.Showings(answers, dict(zip(rows.tolist(), counts.tolist(), strict=True)))
