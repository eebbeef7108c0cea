"""`features`: the features of a spec, and the feature store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import paths, watching
from services.cli.converting import convert
from services.cli.encoding import encode
from services.cli.exit_codes import Exit
from services.cli.explaining import explain
from services.cli.faults import FaultReportingGroup, ReportedError
from services.cli.files import json_lines, send_batches
from services.cli.output import AsJson, say, show, show_json, show_table, when
from services.cli.session import Name, client

app = typer.Typer(
    cls=FaultReportingGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Features of a spec, and the feature store: values of users that versions read.",
)

View = Annotated[
    str, typer.Argument(metavar="VIEW", callback=paths.checked_view, help="Name of the view, such as user.", show_default=False)
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Id of the user.", show_default=False)]


@app.command("list")
def list_views(ctx: typer.Context, name: Name, watch: watching.Watch = False, as_json: AsJson = False) -> None:
    """List the feature views that the serving versions read."""
    http = client(ctx)
    watching.shown(lambda: http.get(paths.features(name)), _draw_views, as_json, watch)


def _draw_views(answer: Any) -> None:
    rows = [
        (
            view["name"],
            view["version"],
            view["rows"],
            "yes" if view["loaded"] else "no",
            view["ttl"],
            " ".join(c["name"] for c in view["columns"]),
        )
        for view in answer["views"]
    ]
    empty = "the serving versions read nothing from the feature store"
    show_table(("VIEW", "VERSION", "ROWS", "LOADED", "TTL", "COLUMNS"), rows, empty, drop=("TTL", "ROWS"))


@app.command()
def get(ctx: typer.Context, name: Name, view: View, key: Key, as_json: AsJson = False) -> None:
    """Show the stored values of a key."""
    answer = client(ctx).get(paths.features(name, view, key))
    if as_json:
        show_json(answer)
        return
    rows = [
        (
            "written" if row["version"] is None else f"version {row['version']}",
            when(row["at"]),
            "expired" if row["expired"] else json.dumps(row["values"], ensure_ascii=False),
        )
        for row in answer["rows"]
    ]
    show_table(("FROM", "AT", "VALUES"), rows, "no stored values")


@app.command()
def put(
    ctx: typer.Context,
    name: Name,
    view: View,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON Lines: key, values, and optionally at.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write rows; the newest row of each key counts, in any order. All lines are checked before the first request."""
    path, http = paths.features(name, view), client(ctx)
    totals = send_batches(json_lines(file, _row), lambda batch: http.put(path, {"rows": batch}), "row", file)
    summary = f"{name}: {totals['accepted']} rows written to {view}, {totals['standing']} of them are now the newest of their key"
    show({"accepted": totals["accepted"], "standing": totals["standing"]}, as_json, lambda _: say(summary))


@app.command()
def materialise(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Load the feature store again: the values published with the serving versions, and the rows written since."""
    answer = client(ctx).post(f"{paths.features(name)}:materialise")
    follow = f"follow it with: eyas features list {name} --watch"
    show(answer, as_json, lambda answer: say(f"{name}: {answer['views']} views are loading again; {follow}"))


def _row(place: str, value: Any, _: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not {"key", "values"} <= value.keys():
        raise ReportedError(f'{place}: expected a row such as {{"key": 42, "values": {{"age": 30}}}}', Exit.WRONG)
    return value


for _command in (explain, convert, encode):
    app.command()(_command)
