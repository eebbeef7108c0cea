"""What gates ask beside the values themselves: standard errors and users, whole or of a slice, for every contender.

The candidate is compared with each other contender on the cases that both were judged on: contenders are judged on the first users of one
order, some on fewer than others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.evaluation.certainty import FEWEST_USERS, Floats, Influence, Ints, of_auc, of_mean
from pipelines.evaluation.judge import Judgement, Labelled
from pipelines.evaluation.observed import Observed, observe
from pipelines.evaluation.slices import Slice
from shared.domain.metric import RETRIEVAL, Metric, certainty, count_of, parse_metric, shared_with

CANDIDATE = "candidate"


@dataclass(frozen=True)
class Evidence:
    """What gated metrics are measured from. `retrieved`: by contender, what each case earns by the retrieval metric."""

    judged: Mapping[str, Judgement]
    slices: Sequence[Slice]
    labelled: Labelled
    retrieved: Mapping[str, Observed] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sample:
    """One contender's values of a metric by case, and where each case stands in the order that all contenders share."""

    values: Floats
    owners: Ints
    places: Ints
    judged: int
    """Cases that the contender was judged on, of the metric's slice or not."""

    def first(self, cases: int) -> _Sample:
        kept = self.places < cases
        return _Sample(self.values[kept], self.owners[kept], self.places[kept], min(cases, self.judged))

    @property
    def value(self) -> float:
        return float(self.values.mean())

    def influence(self, users: int) -> Influence:
        return of_mean(self.values, self.owners, users)


@dataclass(frozen=True)
class _Area:
    """The same of the area under the curve: all contenders score the same labelled rows."""

    value: float
    moved: Influence
    judged: int = 0

    def first(self, cases: int) -> _Area:
        return self

    def influence(self, users: int) -> Influence:
        return self.moved


def certainties(names: Sequence[str], evidence: Evidence) -> tuple[dict[str, float], dict[str, str]]:
    """Published numbers by name, and why some are missing."""
    metrics: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name in names:
        samples = {who: _sample(parse_metric(name), who, evidence) for who in evidence.judged}
        users = 1 + max((int(one.owners.max(initial=-1)) for one in samples.values() if isinstance(one, _Sample)), default=0)
        for who, one in samples.items():
            _publish(f"{who}.{name}", one, users, name, metrics, missing)
        own = samples.get(CANDIDATE)
        for other, theirs in samples.items():
            if own is None or theirs is None or other == CANDIDATE:
                continue
            both = min(own.judged, theirs.judged)
            for who, against, one in ((CANDIDATE, other, own), (other, CANDIDATE, theirs)):
                if both < one.judged and len(one.first(both).influence(users).users):
                    key = shared_with(f"{who}.{name}", against)
                    metrics[key] = one.first(both).value
                    _publish(key, one.first(both), users, name, metrics, missing)
            moved = own.first(both).influence(users)
            if moved.rests_on >= FEWEST_USERS:
                metrics[certainty(f"{CANDIDATE}.{name}", other)] = moved.error(theirs.first(both).influence(users))
    return metrics, missing


def unmeasured(names: Sequence[str], contenders: Iterable[str], values: Mapping[str, float]) -> dict[str, str]:
    """Why metrics aren't there."""
    absent = [(who, name) for who in contenders for name in names if f"{who}.{name}" not in values]
    return {f"{who}.{name}": _lacks(name) for who, name in absent}


def _publish(key: str, one: _Sample | _Area | None, users: int, name: str, metrics: dict[str, float], missing: dict[str, str]) -> None:
    if one is None:
        missing[certainty(key)] = _lacks(name)
        return
    moved = one.influence(users)
    metrics[count_of(key)] = float(moved.rests_on)
    if moved.rests_on < FEWEST_USERS:
        missing[certainty(key)] = f"it rests on {moved.rests_on} users; {FEWEST_USERS} are needed"
    else:
        metrics[certainty(key)] = moved.error()


def _sample(metric: Metric, who: str, evidence: Evidence) -> _Sample | _Area | None:
    one = evidence.judged[who]
    if metric.kind in RETRIEVAL:
        found = evidence.retrieved.get(who)
        return None if found is None else _Sample(found.values, found.owners, np.arange(len(found.values)), len(found.values))
    if metric.kind == "auc":
        if one.scores is None or one.auc is None:
            return None
        users, owners = np.unique(evidence.labelled.users, return_inverse=True)
        return _Area(one.auc, of_auc(evidence.labelled.labels, one.scores.astype(np.float64), owners, len(users)))
    chosen = np.ones(len(one.ranked), bool)
    if metric.slice is not None:
        chosen = next((part.chosen[: len(chosen)] for part in evidence.slices if part.name == metric.slice), np.zeros(len(chosen), bool))
    if not chosen.any():
        return None
    seen = observe(one.ranked, [str(metric.whole)], chosen)[str(metric.whole)]
    return _Sample(seen.values, seen.owners, np.flatnonzero(chosen), len(chosen))


def _lacks(name: str) -> str:
    metric = parse_metric(name)
    if metric.kind in RETRIEVAL:
        return "it has no vectors of users and items"
    return f"the holdout has no case of {metric.slice}" if metric.slice else "the holdout has rows of one label alone"
