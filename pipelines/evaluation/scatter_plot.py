"""Scatter plot of one value against another: numbers on a linear or log axis, or words in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pipelines.evaluation.plots import RIGHT, WIDTH, axes, axis, format_number, svg

_HEIGHT, _BOTTOM, _TOP, _LEFT = 230, 190, 16, 60
_INNER = 14
"""Distance between the axis and the first point."""


@dataclass(frozen=True)
class PlotPoint:
    along: float | str
    up: float
    label: str
    marked: bool = False


def points(title: str, drawn: Sequence[PlotPoint], axis_names: tuple[str, str], log: bool = False, best_so_far: bool = False) -> str:
    """Draws the points; `best_so_far` adds a line of the highest value up to each point, in the points' order."""
    low, high, ticks = axis(min(point.up for point in drawn), max(point.up for point in drawn))
    scale = _PlotTexts(drawn) if any(isinstance(point.along, str) for point in drawn) else _PlotNumbers(drawn, log)

    def up(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low)

    def across(share: float) -> float:
        return _LEFT + _INNER + (WIDTH - _LEFT - RIGHT - 2 * _INNER) * share

    marks = [(name, across(share)) for name, share in scale.marks()]
    parts = axes((_LEFT, _BOTTOM, _TOP - 4), [(tick, up(tick)) for tick in ticks], marks, axis_names)
    places = [(across(scale.share(point.along)), up(point.up)) for point in drawn]
    if best_so_far:
        best = [max(point.up for point in drawn[: at + 1]) for at in range(len(drawn))]
        path = " ".join(f"{x:.1f},{up(value):.1f}" for (x, _), value in zip(places, best, strict=True))
        parts.append(f'<g class="c0"><polyline points="{path}"/></g>')
    for point, (x, y) in zip(drawn, places, strict=True):
        colour, radius = ("c1", 6) if point.marked else ("c0", 4)
        about = f"<title>{escape(point.label)}</title>"
        parts.append(f'<g class="{colour}"><circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{about}</circle></g>')
    return svg(title, _HEIGHT, parts)


class _PlotNumbers:
    def __init__(self, drawn: Sequence[PlotPoint], log: bool) -> None:
        values = [float(point.along) for point in drawn]
        self._log = log and min(values) > 0
        self._low, self._high = self._at(min(values)), self._at(max(values))
        self._values = values

    def share(self, value: float | str) -> float:
        return 0.5 if self._high == self._low else (self._at(float(value)) - self._low) / (self._high - self._low)

    def marks(self) -> list[tuple[str, float]]:
        low, high = min(self._values), max(self._values)
        middle = math.sqrt(low * high) if self._log else (low + high) / 2
        return [(format_number(value), self.share(value)) for value in dict.fromkeys((low, middle, high))]

    def _at(self, value: float) -> float:
        return math.log(value) if self._log else value


class _PlotTexts:
    def __init__(self, drawn: Sequence[PlotPoint]) -> None:
        self._names = list(dict.fromkeys(str(point.along) for point in drawn))

    def share(self, value: float | str) -> float:
        return 0.5 if len(self._names) == 1 else self._names.index(str(value)) / (len(self._names) - 1)

    def marks(self) -> list[tuple[str, float]]:
        return [(name[:14], self.share(name)) for name in self._names]
