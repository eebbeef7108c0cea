"""The best of many scores, exactly, without ordering the rest: by score, and by key where scores are equal."""

from __future__ import annotations

from typing import Any

import numpy as np

Scores = np.ndarray[Any, np.dtype[np.floating[Any]]]
Keys = np.ndarray[Any, np.dtype[np.int64]]
Rows = np.ndarray[Any, np.dtype[np.intp]]
_SPARE, _COLUMNS, _DEPTH = 4, 1024, 64


def best(scores: Scores, keys: Keys, k: int) -> Rows:
    """The rows of the `k` best, best first. Every row that ties with the last one is weighed before the cut."""
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
    """What the k best all reach: the scores fall into many columns, and k of these have a maximum that is at least this.

    Taking maxima is one quick pass; only they are partitioned, not all scores.
    """
    columns = max(_SPARE * k, min(_COLUMNS, len(scores) // _DEPTH))  # maxima of many columns are the quicker pass
    if len(scores) < 2 * columns:
        return np.partition(scores, len(scores) - k)[len(scores) - k]
    depth = len(scores) // columns
    maxima = scores[: depth * columns].reshape(depth, columns).max(axis=0)
    return np.partition(maxima, columns - k)[columns - k]
