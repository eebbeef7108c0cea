"""PromQL expressions of the panels.

Several control planes export the same gauges, so panels show their maximum. Counters and histograms belong to one process, so
panels show their sum."""

from __future__ import annotations

from dashboards.board import OF
from dashboards.form import RATE


def newest(metric: str, *by: str, where: str = OF) -> str:
    return f"max{_by(by)}({_of(metric, where)})"


def total(metric: str, *by: str, where: str = OF) -> str:
    """Sum of a gauge that each process has for itself."""
    return f"sum{_by(by)}({_of(metric, where)})"


def rate(metric: str, *by: str, where: str = OF) -> str:
    """Rate per second."""
    return f"sum{_by(by)}(rate({_of(metric, where)}{RATE}))"


def share(part: str, whole: str) -> str:
    """Ratio of two rates; no value while the whole is zero."""
    return f"{part} / ({whole} > 0)"


def quantile(q: float, metric: str, *by: str, where: str = OF) -> str:
    return f"histogram_quantile({q:g}, {rate(f'{metric}_bucket', *by, 'le', where=where)})"


def mean(metric: str, *by: str, where: str = OF) -> str:
    return share(rate(f"{metric}_sum", *by, where=where), rate(f"{metric}_count", *by, where=where))


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""


def _of(metric: str, where: str) -> str:
    return f"{metric}{{{where}}}" if where else metric
