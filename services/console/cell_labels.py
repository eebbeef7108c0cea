"""Labels of table cells. On narrow screens a row is a list of cells, and each cell shows the heading of its column.

Roles keep such a table a table for screen readers, because browsers drop them from elements that are not displayed as parts of tables."""

from __future__ import annotations

import re
from itertools import cycle

_TABLE = re.compile(r"<table(?! role)[^>]*>.*?</table>", re.DOTALL)
_HEADING = re.compile(r'<th scope="col">(.*?)</th>', re.DOTALL)
_PART = re.compile(r'<(table|thead|tbody|tr|td|th scope="col"|th scope="row")(?=[ >])')
_ROLES = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", 'th scope="col"': "columnheader"}
_CELLS = {"td": "cell", 'th scope="row"': "rowheader"}


def label_cells(page: str) -> str:
    """Labels the tables of a rendered page that have no labels yet. All text of the page is already escaped."""
    return _TABLE.sub(lambda match: _labelled(match[0]), page)


def _labelled(table: str) -> str:
    headings = cycle(re.sub(r"<[^>]+>", "", heading).strip() for heading in _HEADING.findall(table))

    def part(match: re.Match[str]) -> str:
        if match[1] in _ROLES:
            return f'<{match[1]} role="{_ROLES[match[1]]}"'
        return f'<{match[1]} role="{_CELLS[match[1]]}" data-label="{next(headings, "")}"'

    return _PART.sub(part, table)
