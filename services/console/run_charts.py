"""Charts of one run or of several: loss by epoch, and metrics with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from services.console.api import Json
from services.console.charts import Axis, ChartInterval, ChartLine, ChartPoint, EventMark, intervals, timeline
from shared.domain.errors import Invalid
from shared.domain.metric import certainty, parse_metric

_QUANTILE = 1.96
"""Of the normal distribution, for 95 %."""


def losses(trainings: Sequence[tuple[str, Json | None]]) -> Markup:
    """Loss of each run by epoch: a solid line for the training rows, a dashed one for the validation rows."""
    lines = []
    for hue, (name, training) in enumerate(trainings):
        epochs = training["epochs"] if training else []
        validated = [epoch for epoch in epochs if "loss" in epoch["validation"]]
        lines.append(ChartLine(f"{name}: train", [ChartPoint(epoch["epoch"], epoch["loss"]) for epoch in epochs], hue))
        lines.append(
            ChartLine(f"{name}: validation", [ChartPoint(epoch["epoch"], epoch["validation"]["loss"]) for epoch in validated], hue, 1)
        )
    if max(len(line.points) for line in lines) < 2:
        return Markup("")
    reports = [training for _, training in trainings if training]
    published = reports[0]["published"] if len(trainings) == 1 else None
    marks = [EventMark(published, "the published weights", letter="P")] if published else []
    units = " or ".join(sorted({report["unit"] for report in reports}))
    last = ", ".join(f"{line.name} {line.points[-1].y:.3g}" for line in lines if line.points)
    return timeline(lines, f"Loss by {units}; at the end: {last}", marks, axis=Axis(unit="", clock=False, title="loss", x_title=units))


def interval(name: str, metrics: Mapping[str, float], metric: str, bounds: Sequence[float] | None = None) -> ChartInterval:
    """Value of a metric with the bounds, or else with those of its standard error."""
    value, error = metrics.get(metric), metrics.get(certainty(metric))
    if bounds is None and value is not None and error is not None:
        bounds = (value - _QUANTILE * error, value + _QUANTILE * error)
    return ChartInterval(name, value, *(bounds if bounds is not None and value is not None else (None, None)))


def metric_plots(rows: Mapping[str, Sequence[ChartInterval]]) -> list[tuple[str, Markup]]:
    """A chart for each metric of the models; each has its own scale."""
    return [(metric, intervals(row, f"{metric} with 95 % intervals")) for metric, row in rows.items() if _is_metric(metric)]


def _is_metric(name: str) -> bool:
    try:
        parse_metric(name)
    except Invalid:
        return False
    return True
