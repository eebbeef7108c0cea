"""Measures how much a warm run has forgotten: compares its model with the parent's on old likes that neither was trained on.

Both rank the items that both know, with the same negatives. The forgotten share is the relative fall of the hit rate among 99 negatives,
negative for a rise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from pipelines.evaluation.cases import Ints, drawn_negatives, sample_cases
from pipelines.evaluation.judge import ModelEvaluation, judge
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.scorers import Every, Scorer, take_columns
from pipelines.evaluation.standard_errors import FEWEST_USERS, Influence, of_mean
from shared.contracts.evaluation import Evaluate
from shared.domain.metric import FORGOTTEN, OLD, certainty, count_of

NEGATIVES = 99
SHOWN = ("hr@10", f"hr@10/{NEGATIVES}")


@dataclass(frozen=True)
class ComparedModel:
    """A model, and the keys of its catalogue rows, in order."""

    scorer: Scorer
    every: Every | None
    items: Ints
    pairwise: bool = True
    """Whether the model scores pairs one by one, so that `evaluate.pairs` bounds its users."""


@dataclass(frozen=True)
class ForgettingReport:
    metrics: Mapping[str, float] = field(default_factory=dict)
    cases: int = 0
    users: int = 0
    why: str = ""
    """Why there is no metric."""


def forgetting(
    holdout: pl.LazyFrame, history: pl.LazyFrame, candidate: ComparedModel, parent: ComparedModel, seed: int, bounds: Evaluate
) -> ForgettingReport:
    """Compares candidate and parent; `holdout` has user and item.

    Metrics: `candidate.old.hr@10/99`, `parent.old.hr@10/99`, and `candidate.forgotten` with its standard error.
    """
    both = np.intersect1d(candidate.items, parent.items)
    likes = holdout.select("user", "item", label=pl.lit(1, pl.Int8)).filter(pl.col("item").is_in(pl.Series(both).implode()))
    if likes.select(pl.len()).collect().item() == 0:
        return ForgettingReport(why="no earlier holdout rows are left to evaluate")
    cases = sample_cases(likes, history, pl.Series(both), True, seed, bounds.user_limit)
    if candidate.pairwise or parent.pairwise:
        cases = cases.first(bounds.pairwise_users(cases.catalogue))
    negatives = {NEGATIVES: drawn_negatives(cases, NEGATIVES, seed)}
    judgements = {}
    for name, side in (("candidate", candidate), ("parent", parent)):
        scorer, every = _among(side, both)
        judgements[name] = judge(scorer, cases, negatives, every=every)
    metrics = {f"{name}.{OLD}.{metric}": value for name, judgement in judgements.items() for metric, value in _values(judgement).items()}
    before, after = (metrics[f"{name}.{OLD}.{SHOWN[1]}"] for name in ("parent", "candidate"))
    users = len(cases.users)
    if users < FEWEST_USERS or not before:
        why = "the hit rate of the parent is 0" if not before else f"only {users} users; at least {FEWEST_USERS} needed"
        return ForgettingReport(metrics, cases.count, users, why)
    moved = _moved(judgements["candidate"], judgements["parent"], users)
    lost = Influence((after * moved[1].users / before - moved[0].users) / before, users, cases.count)
    metrics |= {f"candidate.{FORGOTTEN}": 1 - after / before, certainty(f"candidate.{FORGOTTEN}"): lost.error()}
    metrics[count_of(f"candidate.{FORGOTTEN}")] = float(users)
    return ForgettingReport(metrics, cases.count, users)


def _among(side: ComparedModel, items: Ints) -> tuple[Scorer, Every | None]:
    """Returns the side's scorers on the items that both know."""
    order = np.argsort(side.items)
    rows = order[np.searchsorted(side.items, items, sorter=order)]
    every = side.every
    return lambda users, places: side.scorer(users, rows[places]), None if every is None else lambda users: take_columns(every(users), rows)


def _values(judgement: ModelEvaluation) -> dict[str, float]:
    return {name: observed.mean for name, observed in observe(judgement.ranked, SHOWN).items()}


def _moved(candidate: ModelEvaluation, parent: ModelEvaluation, users: int) -> tuple[Influence, Influence]:
    pair = [observe(judgement.ranked, SHOWN[1:])[SHOWN[1]] for judgement in (candidate, parent)]
    return of_mean(pair[0].values, pair[0].owners, users), of_mean(pair[1].values, pair[1].owners, users)
