"""`run`, `runs`, `cancel`, `logs`: one training after the other."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import typer

from services.cli import paths
from services.cli.client import Client
from services.cli.session import AsJson, Name, Reason, client, show_json, show_table, when

ENDED = frozenset({"registered", "rejected", "failed", "cancelled"})
_POLL = 0.5

RunId = Annotated[str, typer.Argument(metavar="RUN", callback=paths.checked_id, help="The run's id.", show_default=False)]


def run(
    ctx: typer.Context,
    name: Name,
    mode: Annotated[Literal["full", "warm"], typer.Option(help="`warm` starts from the serving version's weights.")] = "full",
    reason: Reason = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; exit code 1 unless it registered a version.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run."""
    http = client(ctx)
    found = http.post(paths.recommender(name, "/runs"), {"mode": mode, "reason": reason})
    if not as_json:
        typer.echo(f"run {found['id']} started")
    if wait:
        found = _until_ended(http, found, quiet=as_json)
    if as_json:
        show_json(found)
    if wait and found["state"] != "registered":
        raise typer.Exit(1)


def runs(ctx: typer.Context, name: Name, limit: Annotated[int, typer.Option(min=1, max=200)] = 20, as_json: AsJson = False) -> None:
    """List runs, the newest first."""
    found = client(ctx).get(paths.recommender(name, "/runs"), limit=limit)
    if as_json:
        show_json(found)
        return
    rows = [
        (one["id"], one["state"], one["mode"], when(one["created_at"]), one["version"], one["cause"], one["reason"])
        for one in found["items"]
    ]
    show_table(("RUN", "STATE", "MODE", "CREATED", "VERSION", "CAUSE", "REASON"), rows, f"{name} has no run yet")


def cancel(ctx: typer.Context, id: RunId, reason: Reason = "") -> None:
    """End a run before its time."""
    client(ctx).post(paths.run(id, ":cancel"), {"reason": reason})
    typer.echo(f"run {id}: asked to end")


def logs(
    ctx: typer.Context,
    id: RunId,
    stage: Annotated[str | None, typer.Option(help="etl, train, evaluate, export or verify; the newest when absent.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run has ended.")] = False,
) -> None:
    """Show what a stage has written."""
    http = client(ctx)
    shown, offset = stage, 0
    while True:
        ended = http.get(paths.run(id))["state"] in ENDED  # before the text, so that none is missed after the end
        shown, offset = _print_log(http, id, stage, shown, offset)
        if not follow or ended:
            return
        time.sleep(_POLL)


def _print_log(http: Client, id: str, stage: str | None, shown: str | None, offset: int) -> tuple[str | None, int]:
    """Everything from the offset on; without a chosen stage, the rest of this one and then the next one's beginning."""
    newest = http.get(paths.run(id, "/logs"), stage=stage, offset=0)["stage"] if stage is None else stage
    wanted = [one for one in (shown, newest) if one is not None]
    for one in dict.fromkeys(wanted):
        if one != shown:
            offset = 0
        while True:
            found = http.get(paths.run(id, "/logs"), stage=one, offset=offset)
            typer.echo(found["text"], nl=False)
            moved, offset = found["next"] > offset, found["next"]
            if not moved:
                break
        shown = one
    return shown, offset


def _until_ended(http: Client, found: Any, quiet: bool) -> Any:
    said = ""
    while True:
        line = f"{found['state']}  {found['reason']}".rstrip()
        if line != said and not quiet:
            typer.echo(line)
            said = line
        if found["state"] in ENDED:
            return found
        time.sleep(_POLL)
        found = http.get(paths.run(found["id"]))
