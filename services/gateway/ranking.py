"""The order of an answer: by score, and by key where scores are equal, so that equal inputs give equal answers."""

from __future__ import annotations

from typing import Any

import numpy as np

Scores = np.ndarray[Any, np.dtype[np.floating[Any]]]
Keys = np.ndarray[Any, np.dtype[np.int64]]
Rows = np.ndarray[Any, np.dtype[np.intp]]


def best(scores: Scores, keys: Keys, k: int) -> Rows:
    """The rows of the `k` best, best first. Every row that ties with the last one is weighed before the cut."""
    count = len(scores)
    if k <= 0:
        return np.empty(0, dtype=np.intp)
    if k < count:
        least = np.partition(scores, count - k)[count - k]
        rows = np.flatnonzero(scores >= least)
    else:
        rows = np.arange(count)
    order = np.lexsort((keys[rows], -scores[rows]))
    chosen: Rows = rows[order[:k]]
    return chosen
