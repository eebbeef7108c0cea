"""Values of a metric by case or by user, the basis of means, slices and intervals.

By case: hr, ndcg and mrr, of the catalogue or among negatives, and the share of negatives behind the target (`auc/99`). By user: recall and
mean average precision of the list that the user is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.evaluation.metrics import Floats, is_rank_metric, rank_metric
from pipelines.evaluation.ranking import CaseRanks

_BY_USER = re.compile(r"(recall|map)@(\d+)")
_AUC = re.compile(r"auc/(\d+)")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PerUser:
    """Values, each with the place of its user."""

    owners: Ints
    values: Floats

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    def first(self, users: int) -> PerUser:
        """Returns the values of the first users."""
        return PerUser(self.owners[self.owners < users], self.values[self.owners < users])


def observe(ranked: CaseRanks, names: Iterable[str], chosen: NDArray[np.bool_] | None = None) -> dict[str, PerUser]:
    """Returns the values by metric, of all cases or of the chosen ones; `chosen` may cover more users than were ranked."""
    some = np.ones(len(ranked), bool) if chosen is None else chosen[: len(ranked)]
    owners = ranked.owners if chosen is None else ranked.owners[some]
    return {name: _observed(ranked, name, some, owners) for name in names}


def _observed(ranked: CaseRanks, name: str, some: NDArray[np.bool_], owners: Ints) -> PerUser:
    if is_rank_metric(name):
        metric = rank_metric(name)
        ranks = ranked.full if metric.negatives is None else ranked.sampled[metric.negatives]
        return PerUser(owners, metric.gains(ranks[some].astype(np.float64)))
    if match := _AUC.fullmatch(name):
        count = int(match[1])
        there = ranked.against[count][some]
        behind = (there + 1 - ranked.sampled[count][some].astype(np.float64)) / np.maximum(there, 1)
        return PerUser(owners, np.where(there > 0, behind, 0.5))
    if match := _BY_USER.fullmatch(name):
        return _by_user(owners, ranked.places[some].astype(np.float64), match[1], int(match[2]))
    raise ValueError(f"'{name}' is not a ranking metric")


def _by_user(owners: Ints, places: Floats, kind: str, at: int) -> PerUser:
    order = np.lexsort((places, owners))
    owners, places = owners[order], places[order]
    users, first, counts = np.unique(owners, return_index=True, return_counts=True)
    inside = places <= at
    if kind == "recall":
        earned, most = inside.astype(np.float64), counts.astype(np.float64)
    else:
        within = np.arange(len(owners)) - np.repeat(first, counts) + 1
        earned, most = np.where(inside, within / places, 0.0), np.minimum(counts, at).astype(np.float64)
    return PerUser(users, np.add.reduceat(earned, first) / most if len(first) else np.empty(0))
