"""Terminal plot of the hit rate over time, with a mark for each version and a list of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demo.counting import Bin

WIDTH, HEIGHT = 72, 12
MARKS = "●○◆◇■□▲△"
_FEWEST = 30  # fewest answers of a point


@dataclass(frozen=True)
class Moment:
    """Event at a second of the tally."""

    at: float
    title: str


def plot(bins: Sequence[Bin], moments: Sequence[Moment], width: int = WIDTH, height: int = HEIGHT) -> str:
    """Returns the plot's lines; each column is an equal period."""
    if not bins:
        return "no answers, no plot"
    start, end = bins[0].second, max(bins[-1].second + 1, bins[0].second + 1)
    points = _points(bins, start, end, width)
    top = max(0.1, max((rate for _, _, rate in points), default=0.1) * 1.1)
    grid = [[" "] * width for _ in range(height)]
    versions = sorted({version for _, version, _ in points})
    marks = {version: MARKS[index % len(MARKS)] for index, version in enumerate(versions)}
    for column, version, rate in points:
        grid[height - 1 - min(height - 1, int(rate / top * height))][column] = marks[version]
    lines = ["hit rate: share of answers with at least one click, counted by the simulator"]
    for row, cells in enumerate(grid):
        value = f"{top * (height - row - 0.5) / height:5.0%}" if row % 3 == 1 else " " * 5
        lines.append(f"{value} ┤{''.join(cells).rstrip()}")
    lines.append(f"      └{_axis(moments, start, end, width)}")
    lines.append(f"       {'0 s':<{width - 8}}{end - start:>6d} s")
    lines.append("       " + "  ".join(f"{mark} version {version}" for version, mark in marks.items()))
    lines += [f"       {_letter(index)} {moment.at - start:4.0f} s  {moment.title}" for index, moment in enumerate(moments)]
    return "\n".join(lines)


def _points(bins: Sequence[Bin], start: int, end: int, width: int) -> list[tuple[int, int, float]]:
    """Returns column, version and hit rate of each period with enough answers."""
    answers: dict[tuple[int, int], int] = {}
    hits: dict[tuple[int, int], int] = {}
    for counts in bins:
        key = (_column(counts.second, start, end, width), counts.version)
        answers[key] = answers.get(key, 0) + counts.answers
        hits[key] = hits.get(key, 0) + counts.hits
    return [(column, version, hits[column, version] / n) for (column, version), n in sorted(answers.items()) if n >= _FEWEST]


def _axis(moments: Sequence[Moment], start: int, end: int, width: int) -> str:
    axis = ["─"] * width
    for index, moment in enumerate(moments):
        axis[_column(moment.at, start, end, width)] = _letter(index)
    return "".join(axis)


def _column(at: float, start: int, end: int, width: int) -> int:
    return max(0, min(width - 1, int((at - start) / (end - start) * width)))


def _letter(index: int) -> str:
    return chr(ord("a") + index % 26)
