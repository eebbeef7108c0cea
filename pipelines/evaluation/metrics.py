"""Ranking metrics from ranks, and AUC from scores; ties are shared fairly, so a constant scorer earns nothing.

Among equal scores an item's rank is the middle one of those that they take up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAME = re.compile(r"(hr|ndcg)@(\d+)(?:/(\d+))?")
STANDARD = ("hr@10", "ndcg@10", "hr@10/99", "ndcg@10/99", "auc")


@dataclass(frozen=True)
class RankMetric:
    """`hr@10` over the full catalogue, `hr@10/99` against 99 sampled negatives."""

    name: str
    kind: str
    at: int
    negatives: int | None

    def of(self, ranks: NDArray[np.float64]) -> float:
        hit = ranks <= self.at
        gain = hit.astype(np.float64) if self.kind == "hr" else np.where(hit, 1 / np.log2(ranks + 1), 0.0)
        return float(gain.mean())


def rank_metric(name: str) -> RankMetric:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"'{name}' is no ranking metric")
    return RankMetric(name, match[1], int(match[2]), int(match[3]) if match[3] else None)


def middle_rank(target: float, others: NDArray[Any]) -> float:
    """The rank of `target` among `others`, from 1."""
    return 1.0 + float(np.count_nonzero(others > target)) + np.count_nonzero(others == target) / 2


def auc(labels: NDArray[Any], scores: NDArray[Any]) -> float | None:
    """How likely a positive scores above a negative, ties counting half; None where there is one label only."""
    positives = int(np.count_nonzero(labels))
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    total = float(ranks[labels.astype(bool)].sum())
    return (total - positives * (positives + 1) / 2) / (positives * negatives)
