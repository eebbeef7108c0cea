"""Whether scores that look like probabilities are some: log-loss, and how often what scores so much is liked.

Bins hold equally many rows, so that none is by chance; rows of one score share what they say, so that their order
says nothing. Scores outside of 0 to 1 are no probabilities: then there is nothing to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 10
_LEAST = 1e-7
"""Of a probability, as Keras' own loss has it."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bin:
    rows: int
    score: float
    """Mean of its rows."""
    liked: float
    """Share of its rows."""


@dataclass(frozen=True)
class Calibration:
    log_loss: float
    error: float
    """Expected calibration error: the mean distance of score and share over the bins, by their rows."""
    bins: tuple[Bin, ...]


def calibrate(labels: NDArray[np.int8], scores: NDArray[np.float32], bins: int = BINS) -> Calibration | None:
    if not len(labels) or scores.min() < 0 or scores.max() > 1:
        return None
    probabilities, liked = scores.astype(np.float64), labels > 0
    right = np.clip(np.where(liked, probabilities, 1 - probabilities), _LEAST, 1 - _LEAST)
    _, group, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    shares = (np.bincount(group, liked) / counts)[group]
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    buckets = tuple(Bin(len(part), float(probabilities[part].mean()), float(shares[part].mean())) for part in parts)
    error = sum(bucket.rows * abs(bucket.score - bucket.liked) for bucket in buckets) / len(labels)
    return Calibration(float(-np.log(right).mean()), error, buckets)
