"""How long answers of this process have taken since it began, stage by stage: read off the histograms that `/metrics` gives as well."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.metrics import MetricWrapperBase

from shared.telemetry import metrics

STAGES = ("seen", "retrieve", "filter", "features", "score", "order", "log")
"""In the order in which an answer goes through them; not each of them has to."""


@dataclass(frozen=True)
class Times:
    """Seconds below which half, and 99 of 100, stayed: as far apart as the histogram's buckets are, at most its last bound."""

    count: int
    p50: float
    p99: float


def answers(sees: Callable[[str], bool]) -> Times | None:
    """Of whole answers of the recommenders that are seen; None without any."""
    return _read(metrics.REQUEST_SECONDS, sees, lambda labels: "whole").get("whole")


def stages(sees: Callable[[str], bool]) -> Mapping[str, Times]:
    """Requests that came together count once."""
    times = _read(metrics.ANSWER_STAGE_SECONDS, sees, lambda labels: labels["stage"])
    return {name: times[name] for name in STAGES if name in times}


def quantile(share: float, buckets: Iterable[tuple[float, float]]) -> float:
    """By cumulative counts up to each bound, evenly spread within a bucket, as Prometheus has it."""
    ordered = sorted(buckets)
    rank, below, bound = share * ordered[-1][1], 0.0, 0.0
    for upper, count in ordered:
        if math.isinf(upper):
            break
        if count >= rank and count > below:
            return bound + (upper - bound) * (rank - below) / (count - below)
        bound, below = upper, count
    return bound


def _read(histogram: MetricWrapperBase, sees: Callable[[str], bool], key: Callable[[Mapping[str, str]], str]) -> Mapping[str, Times]:
    counts: dict[str, dict[float, float]] = {}
    for family in histogram.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket") and sees(sample.labels["recommender"]):
                bucket_counts = counts.setdefault(key(sample.labels), {})
                bound = float(sample.labels["le"])
                bucket_counts[bound] = bucket_counts.get(bound, 0.0) + sample.value
    return {
        name: Times(int(bucket_counts[math.inf]), quantile(0.5, bucket_counts.items()), quantile(0.99, bucket_counts.items()))
        for name, bucket_counts in counts.items()
        if bucket_counts[math.inf]
    }
