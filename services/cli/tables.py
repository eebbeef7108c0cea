"""Tables that fit a width.

Without a width (a pipe, a file), each row is one complete line, with two blanks between columns. On a terminal, a table is narrowed in
this order until it fits: columns of sentences are folded at blanks, the widest first, to at least 20 characters; columns of `drop` are
left out, and a note names them; sentences are folded further; finally each row becomes a block with a line for each column. A word is
never broken, even if it is wider than the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.cli.sanitise import cell, width

_GAP = 2
_WORD = 20
"""Cells up to this width are not folded, for example a time."""
_READABLE = 20
HARD = "\u00a0"
"""No-break space between a name and its value; printed as a normal blank."""


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    drop: tuple[str, ...] = ()
    """Columns to leave out in a narrow terminal, the first column first."""

    @classmethod
    def of(cls, columns: Sequence[str], rows: Sequence[Sequence[Any]], drop: Sequence[str] = ()) -> Table:
        return cls(tuple(map(cell, columns)), tuple(tuple(map(_cell_text, row)) for row in rows), tuple(drop))

    def without(self, column: str) -> Table:
        place = self.columns.index(column)
        rows = tuple((*row[:place], *row[place + 1 :]) for row in self.rows)
        return replace(self, columns=(*self.columns[:place], *self.columns[place + 1 :]), rows=rows)

    def column(self, place: int) -> tuple[str, ...]:
        return (self.columns[place], *(row[place] for row in self.rows))


@dataclass(frozen=True)
class TableLine:
    """Line of cells, each padded to its column. `kind` selects its style."""

    cells: tuple[str, ...]
    widths: tuple[int, ...]
    kind: str = "row"
    columns: tuple[str, ...] = ()
    """Column names of the cells of a row."""

    def text(self, painted: Sequence[str] | None = None) -> str:
        shown = painted or self.cells
        padded = (show + " " * (wide - width(cell)) for show, cell, wide in zip(shown, self.cells, self.widths, strict=True))
        return (" " * _GAP).join(padded).rstrip().replace(HARD, " ")


def laid_out(table: Table, room: int | None) -> list[TableLine]:
    if room is None:
        return list(_grid(table, _natural(table)))
    left_out: list[str] = []
    fitted, widths = table, _folded(table, room, _READABLE)
    for name in table.drop:
        if widths is not None:
            break
        fitted = fitted.without(name)
        left_out.append(name)
        widths = _folded(fitted, room, _READABLE)
    if widths is None:
        widths = _folded(fitted, room, 0)
    if widths is None:
        return list(_blocks(table, room))
    lines = list(_grid(fitted, widths))
    if left_out:
        note = f"without {', '.join(left_out)}: a wider terminal or --json shows them"
        lines += [TableLine((part,), (0,), "note") for part in wrapped(note, room)]
    return lines


def wrapped(text: str, room: int) -> list[str]:
    """Folds text at blanks only."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and width(lines[-1]) + 1 + width(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [line.strip(" ") for line in lines] or [""]


def _natural(table: Table) -> tuple[int, ...]:
    return tuple(max(map(width, table.column(place))) for place in range(len(table.columns)))


def _folded(table: Table, room: int, least: int) -> tuple[int, ...] | None:
    """Returns column widths that fit into `room`, or None."""
    widths = list(_natural(table))
    floors = [_floor(table, place, least) for place in range(len(widths))]
    over = sum(widths) + _GAP * (len(widths) - 1) - room
    while over > 0:
        spare = [(widths[place], place) for place in range(len(widths)) if widths[place] > floors[place]]
        if not spare:
            return None
        widest, place = max(spare)
        step = min(
            over, widest - floors[place], max(1, widest - max((spare_width for spare_width, other in spare if other != place), default=0))
        )
        widths[place] -= step
        over -= step
    return tuple(widths)


def _floor(table: Table, place: int, least: int) -> int:
    cells = table.column(place)
    natural = max(map(width, cells))
    if not any(width(cell) > _WORD and " " in cell for cell in cells):
        return natural
    words = max(width(word) for cell in cells for word in (cell.split(" ") if width(cell) > _WORD else [cell]))
    return max(words, min(natural, least))


def _grid(table: Table, widths: tuple[int, ...]) -> Iterator[TableLine]:
    yield TableLine(table.columns, widths, "head")
    for row in table.rows:
        parts = [wrapped(cell, wide) if width(cell) > wide else [cell] for cell, wide in zip(row, widths, strict=True)]
        for number in range(max(map(len, parts))):
            yield TableLine(tuple(part[number] if number < len(part) else "" for part in parts), widths, columns=table.columns)


def _blocks(table: Table, room: int) -> Iterator[TableLine]:
    """Yields each row as a block with a line for each column."""
    names = max(map(width, table.columns))
    beside = room - names - _GAP
    for number, row in enumerate(table.rows):
        if number:
            yield TableLine(("",), (0,), "rest")
        for name, value in zip(table.columns, row, strict=True):
            parts = wrapped(value, max(beside, 1))
            if max(map(width, parts)) <= beside:
                yield from (TableLine(("" if later else name, part), (names, 0), "pair") for later, part in enumerate(parts))
            else:
                yield TableLine((name,), (0,), "head")
                yield from (TableLine((part,), (0,), "rest") for part in wrapped(value, room))


def _cell_text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else cell(str(value))
