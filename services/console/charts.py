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
_LEFT, _RIGHT = 56, 24
"""Space beside a plot, as in the style sheet."""
_NARROWEST = 280
"""Width of a plot on a narrow screen, where letters must not overlap."""
_CURVES = 1000
"""Width of curves before they are stretched."""


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
    dash: int = 0
    """0: a solid line; 1: dashed."""


@dataclass(frozen=True)
class ChartInterval:
    """Value with its uncertainty; None for what is not known."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None


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
    """Unit of y (`%`, a unit or empty), whether x is seconds since 1970 or a plain number, and the names of both."""

    unit: str = "%"
    clock: bool = True
    title: str = ""
    x_title: str = ""
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


def spark(values: Sequence[float | None], label: str, unit: str = "%") -> Markup:
    """Small line chart of a table row, with gaps for unknown values; its lowest, highest and last values stand beside it."""
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
    low, high, last = (with_unit(value, unit) for value in (min(numbers), max(numbers), numbers[-1]))
    scale = element("span", f"lowest {low}, highest {high}, last {last}", class_="quiet at")
    return element("svg", *shapes, class_="spark", viewBox=f"0 0 {width} {height}", role="img", aria_label=label) + scale


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
    across = ChartScale(first, last, 0, 100)
    lanes = _lanes([across(mark.x) / 100 * _NARROWEST for mark in marks])
    top = 24 + _LANE * max(lanes, default=0)
    plot = axis.height - top - 28
    up = ChartScale(ticks[0], ticks[-1], plot, 0)
    shapes = _shaded(stretches, across, plot)
    for tick in ticks:
        shapes.append(_level("grid", up(tick)))
        shapes.append(element("text", with_unit(tick, axis.unit), class_="tick", x=-6, y=up(tick) + 4, text_anchor="end"))
    moments = _moments(first, last) if axis.clock else [(x, f"{x:,.4g}") for x in _ticks(first, last)]
    shapes += _label_x([(across(x), text) for x, text in moments], plot)
    shapes += [_level("level", up(y), element("title", text)) for y, text in levels]
    shapes += _curves(lines, ChartScale(first, last, 0, _CURVES), up, plot)
    shapes += [dot for line in lines for dot in _dots(line, across, up, axis.unit)]
    shapes += _marked(marks, lanes, across, plot)
    return _picture("chart", label, axis.height, top, shapes, _titles(axis))


def intervals(rows: Sequence[ChartInterval], label: str, unit: str = "") -> Markup:
    """Values as dots with their bounds, one below the other. The places of the rows give their colours."""
    values = [value for row in rows for value in (row.value, row.low, row.high) if value is not None]
    if not values:
        return Markup("")
    ticks = _ticks(min(values), max(values))
    across = ChartScale(ticks[0], ticks[-1], 0, 100)
    plot = 36 * len(rows)
    shapes = [element("line", class_="grid", x1=_percent(across(tick)), x2=_percent(across(tick)), y1=0, y2=plot) for tick in ticks]
    shapes += _label_x([(across(tick), with_unit(tick, unit)) for tick in ticks], plot)
    for index, row in enumerate(rows):
        y, hue = 36 * index + 26, f"hue{index % 8}"
        text = DASH if row.value is None else with_unit(row.value, unit, 4)
        if row.low is not None and row.high is not None:
            text += f" ({with_unit(row.low, unit)} to {with_unit(row.high, unit)})"
            bounds = {"x1": _percent(across(row.low)), "x2": _percent(across(row.high))}
            shapes.append(element("line", class_=f"line {hue}", y1=y, y2=y, **bounds))
        if row.value is not None:
            shapes.append(element("circle", class_=f"dot {hue}", cx=_percent(across(row.value)), cy=y, r=4))
        shapes.append(element("text", row.name, class_="name", x=-_LEFT + 8, y=y - 10))
        shapes.append(element("text", text, class_="name", x="100%", dx=_RIGHT - 8, y=y - 10, text_anchor="end"))
    return _picture("chart", label, plot + 36, 8, shapes)


def bars(rows: Sequence[tuple[str, float, float]], label: str, names: tuple[str, str]) -> Markup:
    """Two bars for each group, before and after, with their values."""
    if not rows:
        return Markup("")
    along = ChartScale(0, max(max(before, after) for _, before, after in rows) or 1.0, 0, 80)
    shapes = []
    for index, (name, *shares) in enumerate(rows):
        y = 46 * index
        shapes.append(element("text", name[:40], class_="name", x=-_LEFT + 8, y=y + 12))
        for place, (value, which) in enumerate(zip(shares, names, strict=True)):
            title = element("title", f"{name}: {which} {value:.2%}")
            size: dict[str, str | float] = {"y": y + 16 + 13 * place, "width": _percent(along(value)), "height": 11}
            shapes.append(element("rect", title, class_=f"bar{place}", x=0, **size))
            text: dict[str, str | float] = {"x": _percent(along(value)), "dx": 5, "y": y + 26 + 13 * place}
            shapes.append(element("text", with_unit(value, "%"), class_="tick", **text))
    return _picture("bars", label, 46 * len(rows) + 12, 4, shapes)


def element(tag: str, *inside: str | Markup, **attributes: str | float) -> Markup:
    """Escapes everything that is not Markup. Attribute names: `class_` for `class`, `_` for `-`."""
    attribute_text = Markup("").join(
        Markup(' {}="{}"').format(
            name.rstrip("_").replace("_", "-"), f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
        )
        for name, value in attributes.items()
    )
    return Markup("<{tag}{attribute_text}>{inside}</{tag}>").format(tag=tag, attribute_text=attribute_text, inside=Markup("").join(inside))


def with_unit(value: float, unit: str, digits: int = 3) -> str:
    """Formats a value. Numbers from 1,000 to a million have no exponent, since the labels of an axis have room for nine characters."""
    number = value * 100 if unit == "%" else value
    text = f"{number:,.0f}" if 1_000 <= abs(number) < 1_000_000 else f"{number:.{digits}g}"
    return f"{text} {unit}" if unit else text


def _picture(kind: str, label: str, height: int, top: float, shapes: Sequence[Markup], titles: Sequence[Markup] = ()) -> Markup:
    """Text and dots have fixed sizes, and places in percent of the width: only curves are stretched. The labels of y are in the padding."""
    plot = element("g", *shapes, transform=f"translate(0 {top})")
    return element("svg", *titles, plot, class_=kind, height=height, role="img", aria_label=label)


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _level(kind: str, y: float, *inside: Markup) -> Markup:
    return element("line", *inside, class_=kind, x1=0, x2="100%", y1=y, y2=y)


def _titles(axis: Axis) -> list[Markup]:
    places = ((axis.title, 14), (axis.x_title, axis.height - 8))
    return [element("text", title, class_="tick", x=8 - _LEFT, y=y) for title, y in places if title]


def _label_x(ticks: Sequence[tuple[float, str]], plot: float) -> list[Markup]:
    """Labels below the plot; the style sheet hides every second one where the page is narrow."""
    inside = [(x, text) for x, text in ticks if 0 <= x <= 100]
    return [
        element("text", text, class_="tick second" if index % 2 else "tick", x=_percent(x), y=plot + 20, text_anchor="middle")
        for index, (x, text) in enumerate(inside)
    ]


def _shaded(stretches: Sequence[ShadedPeriod], across: ChartScale, plot: float) -> list[Markup]:
    shapes = []
    for stretch in stretches:
        start, end = across(stretch.start), across(stretch.end)
        kind = f"stretch {stretch.tone}"
        shapes.append(element("rect", class_=kind, x=_percent(start), y=0, width=_percent(end - start), height=plot))
    return shapes


def _marked(marks: Sequence[EventMark], lanes: Sequence[int], across: ChartScale, plot: float) -> list[Markup]:
    shapes = []
    for mark, lane in zip(marks, lanes, strict=True):
        x, above = _percent(across(mark.x)), float(-_LANE * lane)
        upright = element("line", x1=x, x2=x, y1=above, y2=plot)
        letter = element("text", mark.letter, x=x, y=above - 6, text_anchor="middle")
        shapes.append(element("g", element("title", mark.text), upright, letter, class_=f"mark {mark.tone}"))
    return shapes


def _curves(lines: Sequence[ChartLine], across: ChartScale, up: ChartScale, plot: float) -> list[Markup]:
    shapes = []
    for line in lines:
        hue = f"hue{line.hue % 8}"
        for run in _runs(line.points):
            band = [(point.x, point.low, point.high) for point in run if point.low is not None and point.high is not None]
            if len(band) > 1:
                edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
                shapes.append(element("polygon", class_=f"band {hue}", points=" ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in edge)))
            for x, low, high in band if len(band) == 1 else ():
                shapes.append(element("line", class_=f"line {hue}", x1=across(x), x2=across(x), y1=up(low), y2=up(high)))
            if len(run) > 1:
                shapes.append(element("polyline", class_=f"line {hue} dash{line.dash}", points=_path(run, across, up)))
    box: dict[str, str | float] = {"viewBox": f"0 0 {_CURVES} {plot}", "preserveAspectRatio": "none", "width": "100%", "height": plot}
    return [element("svg", *shapes, class_="curves", **box)] if shapes else []


def _dots(line: ChartLine, across: ChartScale, up: ChartScale, unit: str) -> list[Markup]:
    return [
        element(
            "circle",
            element("title", f"{line.name}: {with_unit(point.y, unit)}"),
            class_=f"dot hue{line.hue % 8}",
            cx=_percent(across(point.x)),
            cy=up(point.y),
            r=2.5,
        )
        for point in line.points
        if point.y is not None
    ]


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
