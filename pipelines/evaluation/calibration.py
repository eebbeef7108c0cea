"""Calibration of scores between 0 and 1: log-loss, the mean score against the share of likes, and the share of likes by score.

Bins hold equally many rows, so that no bin rests on few rows. Rows with equal scores share their mean label, so that their order has no
effect. Scores outside of 0 to 1 are not probabilities and have no calibration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.evaluation.standard_errors import of_mean

BINS = 10
_LEAST = 1e-7
"""Smallest probability in the log-loss, as in Keras."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CalibrationBin:
    rows: int
    score: float
    """Mean score of the rows."""
    liked: float
    """Share of likes among the rows."""


@dataclass(frozen=True)
class Calibration:
    log_loss: float
    error: float
    """Expected calibration error: the mean distance between score and share of likes over the bins, weighted by rows."""
    ratio: float
    """Mean score of all rows, divided by their share of likes: 1 if the scores are rates on average."""
    ratio_error: float
    """Standard error of the ratio; users are independent, the rows of a user are not."""
    bins: tuple[CalibrationBin, ...]


def calibrate(
    labels: NDArray[np.int8], scores: NDArray[np.float32], bins: int = BINS, users: NDArray[np.int64] | None = None
) -> Calibration | None:
    """Returns None for scores outside of 0 to 1; without `users`, each row is a user of its own."""
    if not len(labels) or scores.min() < 0 or scores.max() > 1:
        return None
    probabilities, liked = scores.astype(np.float64), labels > 0
    right = np.clip(np.where(liked, probabilities, 1 - probabilities), _LEAST, 1 - _LEAST)
    _, group, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    shares = (np.bincount(group, liked) / counts)[group]
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    buckets = tuple(CalibrationBin(len(part), float(probabilities[part].mean()), float(shares[part].mean())) for part in parts)
    error = sum(bucket.rows * abs(bucket.score - bucket.liked) for bucket in buckets) / len(labels)
    ratio, ratio_error = _ratio(liked, probabilities, np.arange(len(labels)) if users is None else users)
    return Calibration(float(-np.log(right).mean()), error, ratio, ratio_error, buckets)


def _ratio(liked: NDArray[np.bool_], probabilities: Floats, users: NDArray[np.int64]) -> tuple[float, float]:
    if not liked.any():
        return math.inf, math.inf
    ratio = float(probabilities.mean() / liked.mean())
    distinct, owners = np.unique(users, return_inverse=True)
    return ratio, of_mean((probabilities - ratio * liked) / liked.mean(), owners, len(distinct)).error()
