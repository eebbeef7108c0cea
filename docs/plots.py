"""The plots of docs/benchmarks, one SVG a page, drawn from the page's own first table.

`python -m docs.plots` writes them; `--check` names each stale one, and fails if there is one. A page names the column in a comment:
`<!-- plot: p99, ms -->`. The first column gives the labels. A bar shows the first number of its cell, and a line over it the spread,
`(1.2 to 1.9)` or `± 0.1`. A cell without a number stands as text.
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/benchmarks"
_COMMENT = re.compile(r"^<!-- plot: (.+) -->$", re.MULTILINE)
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
_CELL = re.compile(rf"({_NUMBER})(?: \(({_NUMBER}) to ({_NUMBER})\)| ± ({_NUMBER}))?")
WIDTH, LEFT, RIGHT, TOP, STEP = 820, 320, 150, 40, 24
TEXT, BAR, SPREAD = "#7a7a7a", "#4a8fd4", "#d2691e"


@dataclass(frozen=True)
class Bar:
    label: str
    text: str
    value: float | None
    least: float | None = None
    most: float | None = None


def bars(page: str) -> tuple[str, list[Bar]]:
    """Returns a title with the column of the page's comment, and a bar per row of the first table; LookupError if one is missing."""
    named = _COMMENT.search(page)
    lines = [line for line in re.split(r"\n{2,}", page) if line.startswith("|")]
    if named is None or not lines:
        raise LookupError("no table, or no comment `<!-- plot: COLUMN -->`; add it")
    header, _, *rows = [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in lines[0].splitlines()]
    if named[1] not in header:
        raise LookupError(f"the first table has no column {named[1]!r}; it has {', '.join(header)}")
    return f"{page.splitlines()[0].lstrip('# ')}: {named[1]}", [_bar(row[0].replace("`", ""), row[header.index(named[1])]) for row in rows]


def _bar(label: str, cell: str) -> Bar:
    match = _CELL.match(cell)
    if match is None:
        return Bar(label, cell, None)
    value, least, most, deviation = (float(part.replace(",", "")) if part else None for part in match.groups())
    if value is not None and deviation is not None:
        least, most = value - deviation, value + deviation
    return Bar(label, match[1], value, least, most)


def svg(title: str, rows: Sequence[Bar]) -> str:
    """Returns the plot as SVG. Its grey text is readable on a white and on a black page; font and background are those of the page."""
    longest = max((row.most or row.value or 0.0 for row in rows), default=0.0) or 1.0
    height, scale = TOP + STEP * len(rows) + 6, (WIDTH - LEFT - RIGHT) / longest
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'font-family="sans-serif" font-size="13" fill="{TEXT}">',
        f"<title>{html.escape(title)}</title>",
        f'<text x="{LEFT}" y="22" font-weight="bold">{html.escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        middle, end = TOP + STEP * number + STEP / 2, LEFT + max(row.value or 0.0, row.most or 0.0) * scale
        lines.append(f'<text x="{LEFT - 8}" y="{middle + 4:g}" text-anchor="end">{html.escape(row.label)}</text>')
        if row.value is not None:
            lines.append(f'<rect x="{LEFT}" y="{middle - 8:g}" width="{max(row.value * scale, 1):.1f}" height="16" fill="{BAR}"/>')
        if row.least is not None and row.most is not None:
            ends = f"M{LEFT + row.least * scale:.1f} {middle:g}H{LEFT + row.most * scale:.1f}"
            lines.append(f'<path d="{ends}" stroke="{SPREAD}" stroke-width="2"/>')
        lines.append(f'<text x="{end + 8:.1f}" y="{middle + 4:g}">{html.escape(row.text)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main(words: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a plot is stale")
    check, faults = parser.parse_args(words).check, []
    for page in sorted(set(folder.glob("*.md")) - {folder / "index.md"}):
        path = page.with_suffix(".svg")
        try:
            drawn = svg(*bars(page.read_text()))
        except LookupError as error:
            faults.append(f"{page.name}: {error}\n")
            continue
        if not check:
            path.write_text(drawn)
        elif not path.exists() or path.read_text() != drawn:
            faults.append(f"{path.name} is stale: run `python -m docs.plots`\n")
    sys.stderr.writelines(faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
