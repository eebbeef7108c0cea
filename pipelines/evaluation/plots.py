"""Plots of a report as inline SVG, with the colours of the page, so that they suit a light and a dark page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, ROW, TEXT = 660, 190, 60, 24, 12
_LONGEST = 26
"""Most characters of a label on the left."""
COLOURS = 8
"""Number of colours in the page's style; further contenders start over."""


@dataclass(frozen=True)
class Dot:
    """A value with its interval and its values by seed."""

    label: str
    value: float
    interval: tuple[float, float] | None = None
    values: tuple[float, ...] = ()
    colour: int = 0


def dots(title: str, rows: Sequence[Dot]) -> str:
    """Draws a row per value: a dot, a line for the interval, a tick for each seed."""
    ends = [value for row in rows for value in (row.value, *(row.interval or ()), *row.values)]
    low, high, ticks = axis(min(ends), max(ends))
    height = ROW * len(rows) + 2 * ROW

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)

    parts = [_grid(across(tick), format_number(tick), height) for tick in ticks]
    for number, row in enumerate(rows):
        y = ROW * (number + 0.75)
        shown = f"{row.label}: {row.value:.4f}" + (f" ({row.interval[0]:.4f} to {row.interval[1]:.4f})" if row.interval else "")
        parts.append(f'<g class="c{row.colour % COLOURS}"><title>{escape(shown)}</title>')
        parts.append(f'<text class="label" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(_short(row.label))}</text>')
        if row.interval:
            parts.append(f'<line x1="{across(row.interval[0]):.1f}" x2="{across(row.interval[1]):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if len(row.values) > 1:
            parts += [f'<line class="seed" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 6:.1f}" y2="{y + 6:.1f}"/>' for x in map(across, row.values)]
        parts.append(f'<circle cx="{across(row.value):.1f}" cy="{y:.1f}" r="4"/></g>')
        parts.append(f'<text class="dim" x="{WIDTH - RIGHT + 8}" y="{y + 4:.1f}">{row.value:.4f}</text>')
    return svg(title, height, parts)


def lines(
    title: str, along: Sequence[float], of: Mapping[str, Sequence[float]], axis_names: tuple[str, str], diagonal: bool = False
) -> str:
    """Draws a line per name; `axis_names` name the horizontal and the vertical axis. With `diagonal` both axes are from 0 to 1."""
    height, bottom, top, left = 280, 240, 12, 60
    low, high, ticks = (
        (0.0, 1.0, [0, 0.25, 0.5, 0.75, 1]) if diagonal else axis(0.0, max((max(values) for values in of.values()), default=1))
    )

    def up(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    def across(place: int, value: float) -> float:
        share = value if diagonal else place / max(1, len(along) - 1)
        return left + (WIDTH - left - RIGHT) * share

    marks = [(tick, across(0, tick)) for tick in ticks] if diagonal else [(value, across(at, value)) for at, value in enumerate(along)]
    parts = axes(
        (left, bottom, top - 2), [(tick, up(tick)) for tick in ticks], [(format_number(value), x) for value, x in marks], axis_names
    )
    if diagonal:
        parts.append(f'<line class="grid" x1="{across(0, 0):.1f}" x2="{across(0, 1):.1f}" y1="{up(0):.1f}" y2="{up(1):.1f}"/>')
    for number, (name, values) in enumerate(of.items()):
        places = [(across(at, along[at]), up(value)) for at, value in enumerate(values)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        circles = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(name)}, {format_number(along[at])}: {values[at]:.4f}</title></circle>'
            for at, (x, y) in enumerate(places)
        )
        parts.append(f'<g class="c{number % COLOURS}"><polyline points="{path}"/>{circles}</g>')
    return svg(title, height, parts)


def axes(
    place: tuple[int, int, int], ticks: Sequence[tuple[float, float]], marks: Sequence[tuple[str, float]], axis_names: tuple[str, str]
) -> list[str]:
    """Draws a grid line per tick (value, y), a text per mark (text, x), and both names. `place`: left, bottom, y of the vertical name."""
    left, bottom, name_y = place
    parts = []
    for tick, y in ticks:
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="dim" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{format_number(tick)}</text>')
    parts += [f'<text class="dim" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(text)}</text>' for text, x in marks]
    middle = (left + WIDTH - RIGHT) / 2
    parts.append(f'<text class="dim" x="{middle}" y="{bottom + 36}" text-anchor="middle">{escape(axis_names[0])}</text>')
    return [*parts, f'<text class="dim" x="{left}" y="{name_y}">{escape(axis_names[1])}</text>']


def legend(names: Sequence[str]) -> str:
    keys = (f'<span class="key c{number % COLOURS}"><i></i>{escape(name)}</span>' for number, name in enumerate(names))
    return f'<p class="legend">{"".join(keys)}</p>'


def svg(title: str, height: float, parts: Sequence[str]) -> str:
    drawn = "".join(parts)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}"'
        f' font-size="{TEXT}">{drawn}</svg></figure>'
    )


def _grid(x: float, text: str, height: float) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - ROW:.1f}"/>'
        f'<text class="dim" x="{x:.1f}" y="{height - 6:.1f}" text-anchor="middle">{text}</text>'
    )


def axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Returns round ends of an axis, and the round numbers between."""
    if high - low < 1e-9:
        low, high = low - 0.01, high + 0.01
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return first * step, last * step, [number * step for number in range(first, last + 1)]


def format_number(value: float) -> str:
    return f"{value:.4g}"


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"
