"""Latency of this process's answers since its start, per stage, from the same histograms as `/metrics`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.metrics import MetricWrapperBase

from shared.telemetry import metrics

STAGES = ("seen", "retrieve", "filter", "features", "score", "order", "log")
"""In the order of an answer; an answer may skip stages."""


@dataclass(frozen=True)
class LatencyPercentiles:
    """Percentiles in seconds, with the resolution of the histogram's buckets and at most its last bound."""

    count: int
    p50: float
    p99: float


def answers(sees: Callable[[str], bool]) -> LatencyPercentiles | None:
    """Returns the times of whole answers of the visible recommenders; None without answers."""
    return _read(metrics.REQUEST_SECONDS, sees, lambda labels: "whole").get("whole")


def stages(sees: Callable[[str], bool]) -> Mapping[str, LatencyPercentiles]:
    """Returns the times per stage; requests that were answered together count once."""
    times = _read(metrics.ANSWER_STAGE_SECONDS, sees, lambda labels: labels["stage"])
    return {name: times[name] for name in STAGES if name in times}


def quantile(share: float, buckets: Iterable[tuple[float, float]]) -> float:
    """Interpolates linearly within a bucket of cumulative counts, like Prometheus."""
    ordered = sorted(buckets)
    rank, below, bound = share * ordered[-1][1], 0.0, 0.0
    for upper, count in ordered:
        if math.isinf(upper):
            break
        if count >= rank and count > below:
            return bound + (upper - bound) * (rank - below) / (count - below)
        bound, below = upper, count
    return bound


def _read(
    histogram: MetricWrapperBase, sees: Callable[[str], bool], key: Callable[[Mapping[str, str]], str]
) -> Mapping[str, LatencyPercentiles]:
    counts: dict[str, dict[float, float]] = {}
    for family in histogram.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket") and sees(sample.labels["recommender"]):
                bucket_counts = counts.setdefault(key(sample.labels), {})
                bound = float(sample.labels["le"])
                bucket_counts[bound] = bucket_counts.get(bound, 0.0) + sample.value
    return {
        name: LatencyPercentiles(int(bucket_counts[math.inf]), quantile(0.5, bucket_counts.items()), quantile(0.99, bucket_counts.items()))
        for name, bucket_counts in counts.items()
        if bucket_counts[math.inf]
    }
