"""Judges one contender: its metrics on the cases and on the labelled rows of the holdout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.cases import Cases, Ints, UserCases
from pipelines.evaluation.metrics import STANDARD, RankMetric, auc, middle_rank, rank_metric
from pipelines.evaluation.recall import Retrieve
from pipelines.evaluation.scorers import Scorer
from shared.contracts.gates import MetricGate
from shared.contracts.spec import RecommenderSpec

CHUNK = 131_072
MAX_LABELLED = 200_000


@dataclass(frozen=True)
class Labelled:
    """Rows of the holdout with what their users said; at most `MAX_LABELLED` of them."""

    users: Ints
    rows: Ints
    labels: NDArray[np.int8]


def labelled_rows(holdout: pl.LazyFrame, seed: int) -> Labelled:
    frame = holdout.select("user", "item_row", "label").collect(engine="streaming")
    if len(frame) > MAX_LABELLED:
        frame = frame[np.sort(np.random.default_rng((seed, 23)).choice(len(frame), MAX_LABELLED, replace=False))]
    return Labelled(frame["user"].to_numpy(), frame["item_row"].cast(pl.Int64).to_numpy(), frame["label"].to_numpy())


def wanted_metrics(spec: RecommenderSpec) -> tuple[RankMetric, ...]:
    """The standard ranking metrics and those that a gate names."""
    named = [gate.metric for gate in spec.gates if isinstance(gate, MetricGate)]
    return tuple(rank_metric(name) for name in dict.fromkeys((*STANDARD, *named)) if name != "auc" and not name.startswith("recall@"))


def judge(
    scorer: Scorer, cases: Cases, negatives: dict[int, list[list[Ints]]], labelled: Labelled, metrics: Sequence[RankMetric]
) -> dict[str, float]:
    """`negatives` holds the sampled rows for each count that a metric asks for, shared by all contenders."""
    full: list[float] = []
    sampled: dict[int, list[float]] = {count: [] for count in negatives}
    for number, (one, scores) in enumerate(zip(cases.users, _score_users(scorer, cases), strict=True)):
        full += _full_ranks(one, scores)
        for count, drawn in negatives.items():
            targets = zip(one.targets, drawn[number], strict=True)
            sampled[count] += [middle_rank(scores[row], scores[others]) for row, others in targets]
    ranks = {None: np.array(full)} | {count: np.array(values) for count, values in sampled.items()}
    values = {metric.name: metric.of(ranks[metric.negatives]) for metric in metrics}
    area = auc(labelled.labels, _score_pairs(scorer, labelled.users, labelled.rows))
    return values if area is None else values | {"auc": area}


def judge_retrieved(scorer: Scorer, retrieve: Retrieve, candidates: int, cases: Cases, metrics: Sequence[RankMetric]) -> dict[str, float]:
    """As it will be served: what isn't among the candidates isn't scored, however good the model would find it."""
    ranks: list[float] = []
    for one, scores in zip(cases.users, _score_users(scorer, cases), strict=True):
        found = np.full(len(scores), -np.inf)
        rows = retrieve(one.user, candidates)
        found[rows] = scores[rows]
        ranks += _full_ranks(one, found)
    return {metric.name: metric.of(np.array(ranks)) for metric in metrics if metric.negatives is None}


def _full_ranks(one: UserCases, scores: NDArray[Any]) -> Iterator[float]:
    """Ranks without the user's other known positives: those that aren't the target itself."""
    hidden = scores.copy()
    hidden[one.liked] = -np.inf
    hidden[one.targets] = -np.inf
    for row in one.targets:
        yield middle_rank(scores[row], hidden)


def _score_users(scorer: Scorer, cases: Cases) -> Iterator[NDArray[Any]]:
    """Each user's scores over the whole catalogue, computed in chunks of many users."""
    size = cases.catalogue
    step = max(1, CHUNK // size)
    everything = np.arange(size, dtype=np.int64)
    for start in range(0, len(cases.users), step):
        keys = np.array([one.user for one in cases.users[start : start + step]], dtype=np.int64)
        scores = _checked(scorer(np.repeat(keys, size), np.tile(everything, len(keys))))
        yield from scores.reshape(len(keys), size)


def _score_pairs(scorer: Scorer, users: Ints, rows: Ints) -> NDArray[Any]:
    chunks: Iterable[int] = range(0, len(users), CHUNK)
    return np.concatenate([_checked(scorer(users[at : at + CHUNK], rows[at : at + CHUNK])) for at in chunks])


def _checked(scores: NDArray[Any]) -> NDArray[Any]:
    if not np.isfinite(scores).all():
        raise FloatingPointError("the model answers with values that are no numbers")
    return scores
