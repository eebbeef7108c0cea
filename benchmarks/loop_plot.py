"""The hit rates of the arms over the days as an SVG of a few kilobytes: bands are 95% intervals, the grey line is the oracle, ticks below
are promotions of retrained versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 470
_LEFT, _RIGHT, _TOP, _BASE = 52, 846, 46, 370
COLOURS = ("#0b6bcb", "#2a9d4a", "#c2410c", "#7c3aed", "#0f766e")
_GREY, _INK = "#8a8f98", "#24292f"


@dataclass(frozen=True)
class Line:
    name: str
    rates: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    promoted: Sequence[float]
    """Days at which a retrained version was promoted."""
    said: str


def draw(title: str, oracle: Sequence[float], lines: Sequence[Line], shifts: Mapping[int, str]) -> str:
    days = len(oracle)

    def x(day: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * day / days

    def y(rate: float) -> float:
        return _BASE - (_BASE - _TOP) * rate

    def way(rates: Sequence[float]) -> str:
        return " ".join(f"{x(day + 0.5):.1f},{y(rate):.1f}" for day, rate in enumerate(rates))

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', _text(_LEFT, 22, title, size=14, weight="bold")]
    for tenth in range(0, 11, 2):
        at = y(tenth / 10)
        parts.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_RIGHT}" y2="{at:.1f}" stroke="#e5e7eb"/>')
        parts.append(_text(_LEFT - 8, at + 4, f"{tenth * 10}%", anchor="end"))
    parts += [_text(x(day), _BASE + 16, str(day), anchor="middle") for day in range(0, days + 1, 5)]
    parts.append(_text(_RIGHT, _BASE + 30, "day", anchor="end"))
    for day, what in shifts.items():
        parts.append(f'<line x1="{x(day):.1f}" y1="{_TOP}" x2="{x(day):.1f}" y2="{_BASE}" stroke="{_INK}" stroke-dasharray="4 3"/>')
        parts.append(_text(x(day) + 4, _BASE - 8, what))
    parts.append(f'<polyline points="{way(oracle)}" fill="none" stroke="{_GREY}" stroke-width="1.5"/>')
    parts.append(_text(_RIGHT, y(oracle[-1]) - 6, "who knows the tastes", anchor="end", colour=_GREY))
    for number, line in enumerate(lines):
        colour, row = COLOURS[number % len(COLOURS)], _BASE + 50 + 22 * number
        back = " ".join(reversed(way(line.low).split()))
        parts.append(f'<polygon points="{way(line.high)} {back}" fill="{colour}" fill-opacity="0.15"/>')
        parts.append(f'<polyline points="{way(line.rates)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<line x1="{_LEFT}" y1="{row}" x2="{_RIGHT}" y2="{row}" stroke="{colour}" stroke-opacity="0.25"/>')
        parts += [f'<circle cx="{x(at):.1f}" cy="{row}" r="3.5" fill="{colour}"/>' for at in line.promoted]
        parts.append(_text(_LEFT, row - 5, f"{line.name}: {line.said}", colour=colour))
    height = max(HEIGHT, _BASE + 60 + 22 * len(lines))
    body = "\n".join(parts).replace(f'height="{HEIGHT}"', f'height="{height}"')
    view = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {view} font-family="sans-serif" role="img">\n{body}\n</svg>\n'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, colour: str = _INK, weight: str = "normal") -> str:
    given = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}"'
    return f"<text {given}>{escape(text)}</text>"
