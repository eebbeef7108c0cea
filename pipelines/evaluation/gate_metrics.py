"""Standard errors and user counts of gated metrics, whole or of a slice, for every contender.

The candidate is compared with each other contender on the cases that both were judged on: all are judged on the first users of a common
order, some on fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.evaluation.judge import Labelled, ModelEvaluation
from pipelines.evaluation.per_user import PerUser, observe
from pipelines.evaluation.slices import Slice
from pipelines.evaluation.standard_errors import FEWEST_USERS, Floats, Influence, Ints, of_auc, of_mean
from shared.domain.metric import RETRIEVAL, Metric, certainty, count_of, parse_metric, shared_with

CANDIDATE = "candidate"


@dataclass(frozen=True)
class Evidence:
    """Inputs of gated metrics; `retrieved` holds each contender's value per case of the retrieval metric."""

    judged: Mapping[str, ModelEvaluation]
    slices: Sequence[Slice]
    labelled: Labelled
    retrieved: Mapping[str, PerUser] = field(default_factory=dict)


@dataclass(frozen=True)
class _MetricSample:
    """A contender's values of a metric by case, and each case's place in the common order of cases."""

    values: Floats
    owners: Ints
    places: Ints
    judged: int
    """Number of cases that the contender was judged on, inside the metric's slice or not."""

    def first(self, cases: int) -> _MetricSample:
        """Returns the values of the first cases."""
        inside = self.places < cases
        return _MetricSample(self.values[inside], self.owners[inside], self.places[inside], min(cases, self.judged))

    @property
    def value(self) -> float:
        return float(self.values.mean())

    def influence(self, users: int) -> Influence:
        return of_mean(self.values, self.owners, users)


@dataclass(frozen=True)
class _AucSample:
    """The area under the curve instead of values by case: all contenders score the same labelled rows."""

    value: float
    row_influence: Influence
    judged: int = 0

    def first(self, cases: int) -> _AucSample:
        return self

    def influence(self, users: int) -> Influence:
        return self.row_influence


@dataclass
class _Publisher:
    """Collects the numbers of gated metrics by name, and the reasons for missing numbers."""

    metrics: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def publish(self, key: str, name: str, sample: _MetricSample | _AucSample | None, users: int) -> None:
        """Adds the number of users and the standard error of a value; `key` is the contender with the metric `name`."""
        if sample is None:
            self.missing[certainty(key)] = _lacks(name)
            return
        influence = sample.influence(users)
        self.metrics[count_of(key)] = float(influence.rests_on)
        if influence.rests_on < FEWEST_USERS:
            self.missing[certainty(key)] = f"only {influence.rests_on} users; at least {FEWEST_USERS} needed"
        else:
            self.metrics[certainty(key)] = influence.error()

    def compare(self, name: str, rival: str, candidate: _MetricSample | _AucSample, other: _MetricSample | _AucSample, users: int) -> None:
        """Adds the standard error of the difference on the common cases. If a contender has more, adds its value on them."""
        cases = min(candidate.judged, other.judged)
        pair = candidate.first(cases), other.first(cases)
        for contender, against, sample, shared in ((CANDIDATE, rival, candidate, pair[0]), (rival, CANDIDATE, other, pair[1])):
            if cases < sample.judged:
                key = shared_with(f"{contender}.{name}", against)
                self.metrics[key] = shared.value
                self.publish(key, name, shared, users)
        influence, other_influence = (shared.influence(users) for shared in pair)
        if influence.rests_on >= FEWEST_USERS:
            self.metrics[certainty(f"{CANDIDATE}.{name}", rival)] = influence.error(other_influence)


def certainties(names: Sequence[str], evidence: Evidence) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the published numbers by name, and the reasons for missing numbers."""
    publisher = _Publisher()
    for name in names:
        samples = {contender: _sample(parse_metric(name), contender, evidence) for contender in evidence.judged}
        owners = [sample.owners for sample in samples.values() if isinstance(sample, _MetricSample)]
        users = 1 + max((int(places.max(initial=-1)) for places in owners), default=0)
        for contender, sample in samples.items():
            publisher.publish(f"{contender}.{name}", name, sample, users)
        candidate = samples.pop(CANDIDATE, None)
        for rival, other in samples.items():
            if candidate is not None and other is not None:
                publisher.compare(name, rival, candidate, other, users)
    return publisher.metrics, publisher.missing


def unmeasured(names: Sequence[str], contenders: Iterable[str], values: Mapping[str, float]) -> dict[str, str]:
    """Returns why metrics are missing."""
    absent = [(contender, name) for contender in contenders for name in names if f"{contender}.{name}" not in values]
    return {f"{contender}.{name}": _lacks(name) for contender, name in absent}


def _sample(metric: Metric, contender: str, evidence: Evidence) -> _MetricSample | _AucSample | None:
    judgement = evidence.judged[contender]
    if metric.kind in RETRIEVAL:
        retrieved = evidence.retrieved.get(contender)
        count = 0 if retrieved is None else len(retrieved.values)
        return None if retrieved is None else _MetricSample(retrieved.values, retrieved.owners, np.arange(count), count)
    if metric.kind == "auc":
        if judgement.scores is None or judgement.auc is None:
            return None
        users, owners = np.unique(evidence.labelled.users, return_inverse=True)
        return _AucSample(judgement.auc, of_auc(evidence.labelled.labels, judgement.scores.astype(np.float64), owners, len(users)))
    cases = len(judgement.ranked)
    chosen = np.ones(cases, bool)
    if metric.slice is not None:
        chosen = next((part.chosen[:cases] for part in evidence.slices if part.name == metric.slice), np.zeros(cases, bool))
    if not chosen.any():
        return None
    observed = observe(judgement.ranked, [str(metric.unsliced)], chosen)[str(metric.unsliced)]
    return _MetricSample(observed.values, observed.owners, np.flatnonzero(chosen), cases)


def _lacks(name: str) -> str:
    metric = parse_metric(name)
    if metric.kind in RETRIEVAL:
        return "the model has no vectors of users and items"
    return f"the holdout has no case of {metric.slice}" if metric.slice else "all holdout rows have the same label"
