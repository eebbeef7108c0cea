"""Calibration of scores between 0 and 1: log-loss, and the share of likes by score.

Bins hold equally many rows, so that no bin rests on few rows. Rows with equal scores share their mean label, so that their order has no
effect. Scores outside of 0 to 1 are not probabilities and have no calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    bins: tuple[CalibrationBin, ...]


def calibrate(labels: NDArray[np.int8], scores: NDArray[np.float32], bins: int = BINS) -> Calibration | None:
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
    return Calibration(float(-np.log(right).mean()), error, buckets)
