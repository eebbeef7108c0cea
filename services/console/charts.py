"""SVG charts, drawn on the server: they need no script, and the page shows the same numbers in a table.

Shapes have classes and no styles: the content security policy forbids inline styles, and the style sheet colours both themes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from services.console.formatting import DASH

_LANE = 13
"""Smallest distance between letters, horizontally and vertically."""
_MOST_LANES = 6


@dataclass(frozen=True)
class ChartPoint:
    """Value with optional bounds of its band."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ChartLine:
    name: str
    points: Sequence[ChartPoint]
    hue: int = 0
    """Index of one of the style sheet's eight colours."""


@dataclass(frozen=True)
class EventMark:
    """Event: a vertical line with a letter on top."""

    x: float
    text: str
    tone: str = "plain"
    letter: str = ""


@dataclass(frozen=True)
class ShadedPeriod:
    """Period that is shaded behind the lines."""

    start: float
    end: float
    tone: str = ""


@dataclass(frozen=True)
class Axis:
    """Unit of y (`%`, a unit or empty), and whether x is seconds since 1970 or a plain number."""

    unit: str = "%"
    clock: bool = True
    width: int = 900
    height: int = 260
    span: tuple[float, float] | None = None
    """Range of x; by default the range of lines and marks."""


@dataclass(frozen=True)
class ChartScale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Maps a value; a range of one value maps to the middle."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * (self.end - self.start)


def spark(values: Sequence[float | None], label: str) -> Markup:
    """Small line chart of a table row, with gaps for unknown values."""
    width, height = 120, 28
    numbers = [value for value in values if value is not None]
    if not numbers:
        return element("span", DASH, class_="quiet")
    across, up = ChartScale(0, max(1, len(values) - 1), 2, width - 2), ChartScale(min(numbers), max(numbers), height - 3, 3)
    shapes = [
        element("polyline", points=_path(run, across, up))
        if len(run) > 1
        else element("circle", cx=across(run[0].x), cy=up(run[0].y or 0), r=2)
        for run in _runs([ChartPoint(index, value) for index, value in enumerate(values)])
    ]
    return _picture("spark", label, width, height, shapes)


def timeline(
    lines: Sequence[ChartLine],
    label: str,
    marks: Sequence[EventMark] = (),
    stretches: Sequence[ShadedPeriod] = (),
    levels: Sequence[tuple[float, str]] = (),
    axis: Axis = Axis(),
) -> Markup:
    """Line chart with bands, vertical marks, shaded periods and level lines."""
    points = [point for line in lines for point in line.points]
    xs = [point.x for point in points] + [mark.x for mark in marks] + [x for stretch in stretches for x in (stretch.start, stretch.end)]
    if not xs:
        return Markup("")
    first, last = axis.span or (min(xs), max(xs))
    ys = [y for point in points for y in (point.y, point.low, point.high) if y is not None] + [y for y, _ in levels]
    ticks = _ticks(min(ys, default=0.0), max(ys, default=1.0))
    left, right = 56, axis.width - 24
    across = ChartScale(first, last, left, right)
    lanes = _lanes([across(mark.x) for mark in marks])
    top, bottom = 22 + _LANE * max(lanes, default=0), axis.height - 26
    up = ChartScale(ticks[0], ticks[-1], bottom, top)
    shapes: list[Markup] = []
    for stretch in stretches:
        size = {"width": across(stretch.end) - across(stretch.start), "height": bottom - top}
        shapes.append(element("rect", class_=f"stretch {stretch.tone}", x=across(stretch.start), y=top, **size))
    for tick in ticks:
        shapes.append(_level("grid", up(tick), left, right))
        shapes.append(element("text", with_unit(tick, axis.unit), class_="tick", x=left - 6, y=up(tick) + 4, text_anchor="end"))
    shapes += _label_x(axis, first, last, across)
    shapes += [_level("level", up(y), left, right, element("title", text)) for y, text in levels]
    for line in lines:
        shapes += _drawn(line, across, up, axis.unit)
    for mark, lane in zip(marks, lanes, strict=True):
        x, above = across(mark.x), top - _LANE * lane
        upright = element("line", x1=x, x2=x, y1=above, y2=bottom)
        letter = element("text", mark.letter, x=x, y=above - 6, text_anchor="middle")
        shapes.append(element("g", element("title", mark.text), upright, letter, class_=f"mark {mark.tone}"))
    return _picture("chart", label, axis.width, axis.height, shapes)


def bars(rows: Sequence[tuple[str, float, float]], label: str, names: tuple[str, str]) -> Markup:
    """Two bars for each group, before and after."""
    if not rows:
        return Markup("")
    width, height = max(240, 44 * len(rows) + 20), 160
    top, bottom = 8, height - 22
    up = ChartScale(0, max(max(before, after) for _, before, after in rows) or 1.0, bottom, top)
    shapes = []
    for index, (name, *shares) in enumerate(rows):
        x = 12 + 44 * index
        for place, (value, which) in enumerate(zip(shares, names, strict=True)):
            title = element("title", f"{name}: {which} {value:.2%}")
            size = {"x": x + 14 * place, "y": up(value), "width": 13, "height": bottom - up(value)}
            shapes.append(element("rect", title, class_=f"bar{place}", **size))
        shapes.append(element("text", name[:6], class_="tick", x=x + 14, y=height - 8, text_anchor="middle"))
    return _picture("bars", label, width, height, shapes)


def element(tag: str, *inside: str | Markup, **attributes: str | float) -> Markup:
    """Escapes everything that is not Markup. Attribute names: `class_` for `class`, `_` for `-`."""
    attribute_text = Markup("").join(
        Markup(' {}="{}"').format(
            name.rstrip("_").replace("_", "-"), f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
        )
        for name, value in attributes.items()
    )
    return Markup("<{tag}{attribute_text}>{inside}</{tag}>").format(tag=tag, attribute_text=attribute_text, inside=Markup("").join(inside))


def with_unit(value: float, unit: str) -> str:
    return f"{value * 100:.3g} %" if unit == "%" else f"{value:.3g}{' ' + unit if unit else ''}"


def _picture(kind: str, label: str, width: int, height: int, shapes: Sequence[Markup]) -> Markup:
    return element("svg", *shapes, class_=kind, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)


def _level(kind: str, y: float, left: float, right: float, *inside: Markup) -> Markup:
    return element("line", *inside, class_=kind, x1=left, x2=right, y1=y, y2=y)


def _label_x(axis: Axis, first: float, last: float, across: ChartScale) -> list[Markup]:
    ticks = _moments(first, last) if axis.clock else [(x, f"{x:,.4g}") for x in _ticks(first, last)]
    return [
        element("text", text, class_="tick", x=across(x), y=axis.height - 8, text_anchor="middle")
        for x, text in ticks
        if first <= x <= last
    ]


def _drawn(line: ChartLine, across: ChartScale, up: ChartScale, unit: str) -> list[Markup]:
    hue = f"hue{line.hue % 8}"
    shapes = []
    for run in _runs(line.points):
        band = [(point.x, point.low, point.high) for point in run if point.low is not None and point.high is not None]
        if len(band) > 1:
            edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
            shapes.append(element("polygon", class_=f"band {hue}", points=" ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in edge)))
        for x, low, high in band if len(band) == 1 else ():
            shapes.append(element("line", class_=f"line {hue}", x1=across(x), x2=across(x), y1=up(low), y2=up(high)))
        if len(run) > 1:
            shapes.append(element("polyline", class_=f"line {hue}", points=_path(run, across, up)))
        for point in run:
            title = element("title", f"{line.name}: {with_unit(point.y or 0, unit)}")
            shapes.append(element("circle", title, class_=f"dot {hue}", cx=across(point.x), cy=up(point.y or 0), r=2.5))
    return shapes


def _lanes(xs: Sequence[float]) -> list[int]:
    """Lane (height) of each letter, so that close letters do not overlap."""
    ends: list[float] = []
    lanes = []
    for x in xs:
        lane = next((lane for lane, end in enumerate(ends) if x - end >= _LANE), len(ends))
        lane = min(lane, _MOST_LANES - 1)
        ends[lane : lane + 1] = [x]
        lanes.append(lane)
    return lanes


def _runs(points: Sequence[ChartPoint]) -> list[list[ChartPoint]]:
    runs: list[list[ChartPoint]] = [[]]
    for point in points:
        if point.y is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]


def _path(run: Sequence[ChartPoint], across: ChartScale, up: ChartScale) -> str:
    return " ".join(f"{across(point.x):.1f},{up(point.y or 0):.1f}" for point in run)


def _ticks(low: float, high: float) -> list[float]:
    """Three to seven round values that cover the range."""
    if high <= low:
        low, high = low - abs(low) * 0.1 - 0.001, high + abs(high) * 0.1 + 0.001
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10, 20) if (high - low) / (power * factor) <= 5)
    return [index * step for index in range(math.floor(low / step), math.ceil(high / step) + 1)]


_STEPS = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 86400, 172800, 604800, 2419200, 7862400, 31536000)


def _moments(low: float, high: float) -> list[tuple[float, str]]:
    step = next((seconds for seconds in _STEPS if (high - low) / seconds <= 7), _STEPS[-1])
    shape = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%b %d" if step < 31536000 else "%Y"
    moments = [(float(x), datetime.fromtimestamp(x, UTC).strftime(shape)) for x in range(math.ceil(low / step) * step, int(high) + 1, step)]
    return moments or [(low, datetime.fromtimestamp(low, UTC).strftime("%H:%M:%S"))]
