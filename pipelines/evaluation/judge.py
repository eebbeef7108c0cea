"""Judges a contender: the ranks of the cases, and the scores of the labelled rows of the holdout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.calibration import Calibration, calibrate
from pipelines.evaluation.cases import Cases, Ints, Negatives
from pipelines.evaluation.coverage import coverage, novelty
from pipelines.evaluation.metrics import STANDARD, Floats, auc, is_rank_metric
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.ranking import CHUNK, SHOWN, CaseRanks, Tell, by_pairs, checked, count_above, rank
from pipelines.evaluation.recall import Retrieve
from pipelines.evaluation.scorers import Every, Scorer
from pipelines.evaluation.slices import Slice
from shared.contracts.gates import MetricGate
from shared.contracts.spec import RecommenderSpec
from shared.domain.metric import certainty

MAX_LABELLED = 200_000
MORE = ("mrr@10", "map@10", "auc/99")
"""Metrics of every report besides the standard ones."""


@dataclass(frozen=True)
class Labelled:
    """Rows of the holdout with their labels; at most `MAX_LABELLED` rows."""

    users: Ints
    rows: Ints
    labels: NDArray[np.int8]


@dataclass(frozen=True)
class ModelEvaluation:
    ranked: CaseRanks
    breadth: Mapping[str, float]
    auc: float | None = None
    """AUC of the labelled rows; None if they all have the same label."""
    calibration: Calibration | None = None
    scores: NDArray[Any] | None = field(default=None, repr=False)
    """Scores of the labelled rows."""

    def first(self, users: int) -> ModelEvaluation:
        """Returns the judgement with the ranks of the first users only, for comparison with a contender that ranked no more."""
        return replace(self, ranked=self.ranked.first(users))

    def values(self, names: Iterable[str]) -> dict[str, float]:
        """Returns these metrics, and all other metrics with a single value."""
        values = {name: observed.mean for name, observed in observe(self.ranked, names).items()} | dict(self.breadth)
        if self.auc is not None:
            values["auc"] = self.auc
        if self.calibration is not None:
            values |= {"log_loss": self.calibration.log_loss, "calibration_error": self.calibration.error}
            values |= {"calibration": self.calibration.ratio, certainty("calibration"): self.calibration.ratio_error}
        return values


def labelled_rows(holdout: pl.LazyFrame, seed: int) -> Labelled:
    frame = holdout.select("user", "item_row", "label").collect(engine="streaming")
    if len(frame) > MAX_LABELLED:
        frame = frame[np.sort(np.random.default_rng((seed, 23)).choice(len(frame), MAX_LABELLED, replace=False))]
    return Labelled(frame["user"].to_numpy(), frame["item_row"].cast(pl.Int64).to_numpy(), frame["label"].to_numpy())


def wanted_metrics(spec: RecommenderSpec) -> tuple[str, ...]:
    """Returns the ranking metrics of every report and of the spec's gates."""
    named = [gate.metric for gate in spec.gates if isinstance(gate, MetricGate)]
    return tuple(dict.fromkeys(name for name in (*STANDARD, *MORE, *named) if is_rank_metric(name) or name in MORE))


def judge(
    scorer: Scorer,
    cases: Cases,
    negatives: Mapping[int, Negatives],
    labelled: Labelled | None = None,
    likes: Ints | None = None,
    every: Every | None = None,
    tell: Tell | None = None,
) -> ModelEvaluation:
    """Judges a contender. `negatives` draws the rows for each count that a metric needs, the same for all contenders. `likes` is the number
    of likes per catalogue row, if novelty is wanted. `every` scores the whole catalogue faster than pair by pair."""
    ranked = rank(every or by_pairs(scorer, cases.catalogue), cases, negatives, tell=tell)
    breadth = {f"coverage@{SHOWN}": coverage(ranked.shown, cases.catalogue)}
    if likes is not None and (bits := novelty(ranked.shown, likes, cases.catalogue)) is not None:
        breadth[f"novelty@{SHOWN}"] = bits
    if labelled is None:
        return ModelEvaluation(ranked, breadth)
    scores = _score_pairs(scorer, labelled.users, labelled.rows)
    area = auc(labelled.labels, scores)
    return ModelEvaluation(ranked, breadth, area, _calibrated(labelled, scores) if area is not None else None, scores)


def _calibrated(labelled: Labelled, scores: NDArray[Any]) -> Calibration | None:
    return calibrate(labelled.labels, scores, users=labelled.users)


def sliced(judgement: ModelEvaluation, names: Sequence[str], slices: Iterable[Slice]) -> dict[str, float]:
    """Returns the ranking metrics by slice, named as `hr@10{cold_users}`."""
    wanted = [name for name in names if is_rank_metric(name) and name not in MORE]
    return {
        f"{name}{{{part.name}}}": observed.mean
        for part in slices
        if part.chosen[: len(judgement.ranked)].any()
        for name, observed in observe(judgement.ranked, wanted, part.chosen).items()
    }


def ranks_of_retrieved(scorer: Scorer, retrieve: Retrieve, candidates: int, cases: Cases) -> Floats:
    """Returns the rank of each case as served: only the candidates are scored, and a target that is not retrieved ranks at infinity."""
    ranks = np.full(cases.count, np.inf)
    retrieved = iter(retrieve(cases.keys, candidates))
    step = max(1, CHUNK // candidates)
    for first in range(0, len(cases.users), step):
        users = cases.users[first : first + step]
        rows = list(islice(retrieved, len(users)))
        lengths = [len(some) for some in rows]
        scores = checked(scorer(np.repeat(cases.keys[first : first + step], lengths), np.concatenate(rows)))
        ends = np.cumsum(lengths)[:-1]
        for offset, user, shortlist, own in zip(cases.offsets[first:], users, rows, np.split(scores, ends), strict=False):
            _, at, candidate = np.intersect1d(user.targets, shortlist, return_indices=True)
            shown = ~np.isin(shortlist, np.union1d(user.liked, user.targets))
            above, equal = count_above(own[shown], own[candidate])
            ranks[offset + at] = 1 + above + equal / 2
    return ranks


def _score_pairs(scorer: Scorer, users: Ints, rows: Ints) -> NDArray[Any]:
    chunks: Iterable[int] = range(0, len(users), CHUNK)
    return np.concatenate([checked(scorer(users[at : at + CHUNK], rows[at : at + CHUNK])) for at in chunks])
