"""Exact selection of the best of many scores without sorting the rest: by score, and by key for equal scores."""

from __future__ import annotations

from typing import Any

import numpy as np

Scores = np.ndarray[Any, np.dtype[np.floating[Any]]]
Keys = np.ndarray[Any, np.dtype[np.int64]]
Rows = np.ndarray[Any, np.dtype[np.intp]]
_SPARE, _COLUMNS, _DEPTH = 4, 1024, 64


def best(scores: Scores, keys: Keys, k: int) -> Rows:
    """Returns the rows of the `k` best, best first. Rows that tie with the last one are compared by key."""
    if k <= 0:
        return np.empty(0, dtype=np.intp)
    rows = np.flatnonzero(scores >= _bound(scores, k)) if k < len(scores) else np.arange(len(scores))
    if k < len(rows):
        candidate_scores = scores[rows]
        rows = rows[candidate_scores >= np.partition(candidate_scores, len(candidate_scores) - k)[len(candidate_scores) - k]]
    order = np.lexsort((keys[rows], -scores[rows]))
    chosen: Rows = rows[order[:k]]
    return chosen


def _bound(scores: Scores, k: int) -> Any:
    """Returns a lower bound of the k best scores: the scores are split into columns, and k of these have a maximum of at least the bound.

    One fast pass computes the maxima; only they are partitioned, not all scores.
    """
    columns = max(_SPARE * k, min(_COLUMNS, len(scores) // _DEPTH))  # the pass is faster for many columns
    if len(scores) < 2 * columns:
        return np.partition(scores, len(scores) - k)[len(scores) - k]
    depth = len(scores) // columns
    maxima = scores[: depth * columns].reshape(depth, columns).max(axis=0)
    return np.partition(maxima, columns - k)[columns - k]
