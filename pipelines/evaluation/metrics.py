"""Ranking metrics from ranks, and AUC from scores; equal scores share the middle rank, so a constant scorer earns nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAME = re.compile(r"(?:(hr|ndcg)@(\d+)|(mrr)(?:@(\d+))?)(?:/(\d+))?")
STANDARD = ("hr@10", "ndcg@10", "hr@10/99", "ndcg@10/99", "auc")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RankMetric:
    """A metric of ranks: `hr@10` over the full catalogue, `hr@10/99` against 99 sampled negatives; `mrr` without `@` counts every rank."""

    name: str
    kind: str
    at: int | None
    negatives: int | None

    def gains(self, ranks: Floats) -> Floats:
        """Returns the value of each case."""
        inside = ranks <= self.at if self.at is not None else np.ones(len(ranks), bool)
        if self.kind == "hr":
            return inside.astype(np.float64)
        return np.where(inside, 1 / ranks if self.kind == "mrr" else 1 / np.log2(ranks + 1), 0.0)

    def of(self, ranks: Floats) -> float:
        return float(self.gains(ranks).mean())


def rank_metric(name: str) -> RankMetric:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"'{name}' is not a ranking metric")
    at = match[2] or match[4]
    return RankMetric(name, match[1] or match[3], int(at) if at else None, int(match[5]) if match[5] else None)


def is_rank_metric(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def auc(labels: NDArray[Any], scores: NDArray[Any]) -> float | None:
    """Returns the probability that a positive scores above a negative, ties counting half; None if there is only one label."""
    positives = int(np.count_nonzero(labels))
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    total = float(ranks[labels.astype(bool)].sum())
    return (total - positives * (positives + 1) / 2) / (positives * negatives)
