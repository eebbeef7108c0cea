"""The questions that panels put to Prometheus, by their kinds.

Several control planes tell the same gauges, so the greatest of what they tell is shown. Counters and times are
each process's own, so they add up.
"""

from __future__ import annotations

from dashboards.board import OF
from dashboards.form import RATE


def newest(metric: str, *by: str, where: str = OF) -> str:
    return f"max{_by(by)}({_of(metric, where)})"


def total(metric: str, *by: str, where: str = OF) -> str:
    """Of a gauge that each process has for itself."""
    return f"sum{_by(by)}({_of(metric, where)})"


def rate(metric: str, *by: str, where: str = OF) -> str:
    """A second."""
    return f"sum{_by(by)}(rate({_of(metric, where)}{RATE}))"


def share(part: str, whole: str) -> str:
    """Of one rate in another; nothing while there is nothing to share."""
    return f"{part} / ({whole} > 0)"


def quantile(q: float, metric: str, *by: str, where: str = OF) -> str:
    return f"histogram_quantile({q:g}, {rate(f'{metric}_bucket', *by, 'le', where=where)})"


def mean(metric: str, *by: str, where: str = OF) -> str:
    return share(rate(f"{metric}_sum", *by, where=where), rate(f"{metric}_count", *by, where=where))


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""


def _of(metric: str, where: str) -> str:
    return f"{metric}{{{where}}}" if where else metric
