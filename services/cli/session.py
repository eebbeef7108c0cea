"""What the commands share: the client made out of the global options, and how results are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from services.cli.client import Client
from services.cli.home import default_home, endpoint, token, usable
from services.cli.paths import checked_name

_ENDLESS = 1_000_000
_WORD = 20

AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Name = Annotated[str, typer.Argument(metavar="NAME", callback=checked_name, help="The recommender's name.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Goes into the history.", show_default=False)]


@dataclass(frozen=True)
class Session:
    url: str | None = None
    token_file: Path | None = None
    token: str | None = None

    def client(self) -> Client:
        home = default_home()
        return Client(
            self.url or endpoint(home),
            usable(self.token, "--token or EYAS_TOKEN") if self.token else token(self.token_file or home / "token"),
        )


def client(ctx: typer.Context) -> Client:
    session = ctx.find_object(Session) or Session()
    found = session.client()
    ctx.call_on_close(found.close)
    return found


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """A table on a terminal; one row one line, however long, where nobody watches its width."""
    if not rows:
        typer.echo(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[_cell(value) for value in row] for row in rows]
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=all(_whole(row[place]) for row in cells))
    for row in cells:
        table.add_row(*row)
    console = Console(markup=False, highlight=False, soft_wrap=False)
    if console.is_terminal:
        console.print(table)
        return
    console = Console(markup=False, highlight=False, width=_ENDLESS)
    with console.capture() as shown:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in shown.get().splitlines()))


def when(value: str | None) -> str:
    """To the second: enough for people."""
    return value[:19].replace("T", " ") if value else ""


def _whole(cell: str) -> bool:
    """Ids and other words stay in one piece on a narrow terminal: they are copied from there."""
    return len(cell) <= _WORD and " " not in cell


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).splitlines())
