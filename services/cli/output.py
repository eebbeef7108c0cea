"""Output of results: coloured text and tables for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Annotated, Any

import typer

from services.cli import terminal
from services.cli.sanitise import plain, width
from services.cli.tables import Table, TableLine, laid_out, wrapped

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

_PAGE: ContextVar[list[str] | None] = ContextVar("_PAGE", default=None)
"""Lines of the active `drawn` call; None when lines go to stdout."""

_GOOD = {"registered", "promoted", "pass", "ok", "serves", "ready"}
_BAD = {"failed", "rejected", "rolled_back", "stop", "fail", "missing", "error", "dead"}
_DOUBTFUL = {"paused", "inconclusive", "warn", "aborted", "cancelled", "optional"}
_UNDER_WAY = {"pending", "etl", "train", "evaluate", "refit", "export", "verify", "loading", "shadow", "canary"}
_PAINTED = {"STATE", "VERDICT", "FIRES", ""}


def say(line: str = "", state: str = "") -> None:
    """Prints text, folded at blanks to the terminal's width. `state` is a word of the text to colour."""
    room = terminal.width()
    text = plain(line)
    if room is not None:
        text = "\n".join("\n".join(wrapped(row, room)) if width(row) > room else row for row in text.split("\n"))
    if shown := state.replace("_", " "):
        text = text.replace(shown, in_its_colour(state, shown), 1)
    page = _PAGE.get()
    if page is None:
        typer.echo(text, color=terminal.colourful())
    else:
        page.extend(text.split("\n"))


def show_text(text: str) -> None:
    """Prints text unfolded, for use by other programs."""
    typer.echo(plain(text))


def show(value: Any, as_json: bool, draw: Callable[[Any], None]) -> None:
    """Prints the value as JSON, or calls `draw`."""
    if as_json:
        show_json(value)
    else:
        draw(value)


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def show_json_line(value: Any) -> None:
    """Prints one line of JSON Lines at once."""
    typer.echo(json.dumps(value))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str, drop: Sequence[str] = ()) -> None:
    """Prints a table. A narrow terminal leaves out the columns of `drop`, the first column first."""
    if not rows:
        say(empty)
        return
    table = Table.of(columns, rows, drop)
    for line in laid_out(table, terminal.width()):
        shown = _painted(line)
        page = _PAGE.get()
        if page is None:
            typer.echo(shown, color=terminal.colourful())
        else:
            page.append(shown)


def drawn(draw: Callable[[], None]) -> list[str]:
    """Returns the lines that `draw` prints."""
    page: list[str] = []
    before = _PAGE.set(page)
    try:
        draw()
    finally:
        _PAGE.reset(before)
    return page


def when(value: str | None) -> str:
    """Formats a time to the second."""
    return value[:19].replace("T", " ") if value else ""


def in_its_colour(word: str, shown: str) -> str:
    for words, colour in ((_GOOD, "green"), (_BAD, "red"), (_DOUBTFUL, "yellow"), (_UNDER_WAY, "cyan")):
        if word in words:
            return terminal.painted(shown, colour)
    return shown


def _painted(line: TableLine) -> str:
    if line.kind == "head":
        return line.text([terminal.painted(cell, "bold") for cell in line.cells])
    if line.kind == "note":
        return terminal.painted(line.text(), "dim")
    if line.kind == "pair":
        return line.text([terminal.painted(line.cells[0], "bold"), in_its_colour(line.cells[1], line.cells[1])])
    return line.text(
        [in_its_colour(cell, cell) if name in _PAINTED else cell for name, cell in zip(line.columns, line.cells, strict=False)] or None
    )
