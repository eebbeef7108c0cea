"""`rollout`: where a new version stands on its way to the users, and how a person steers it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli import paths
from services.cli.client import Client
from services.cli.faults import Guarded, Refused
from services.cli.session import AsJson, Name, Reason, client, show_json, show_table
from shared.domain.steps import percent

app = typer.Typer(cls=Guarded, no_args_is_help=True, rich_markup_mode=None, help="A version's way to the users.")

_UNDER_WAY = ("loading", "shadow", "canary", "paused")
"""At most one of a recommender's: the others wait in line behind it, and are newer."""

Which = Annotated[
    str | None,
    typer.Option(
        "--id",
        callback=paths.checked_id_or_none,
        help="A certain rollout; when absent, the one under way, else the newest.",
        show_default=False,
    ),
]


@app.command()
def status(ctx: typer.Context, name: Name, id: Which = None, as_json: AsJson = False) -> None:
    """Show where it stands and what each step has shown."""
    found = _find(client(ctx), name, id)
    if as_json:
        show_json(found)
        return
    typer.echo(f"{found['id']}: version {found['version']} is {found['state'].replace('_', ' ')}  {found['reason']}")
    if shadow := found.get("shadow"):
        typer.echo(f"shadow: {shadow['verdict']}  {shadow['reason']}")
    reports = found["reports"]
    rows = [
        (
            percent(one["weight"]),
            one["verdict"],
            *(f"{one['stable'][what]:,} / {one['candidate'][what]:,}" for what in ("users", "answers", "hits")),
            f"{one['stable']['mean']:.3f} / {one['candidate']['mean']:.3f}",
            _evidence(one),
        )
        for one in reports
    ]
    heads = ("WEIGHT", "VERDICT", "USERS (STABLE / CANDIDATE)", "ANSWERS", "HITS", "HIT RATE", "CHANGE")
    show_table(heads, rows, "no step has been judged yet")
    checks = [(percent(one["weight"]), each["name"], each["verdict"], each["reason"]) for one in reports for each in one["checks"]]
    if checks:
        typer.echo()
        show_table(("WEIGHT", "CHECK", "VERDICT", "SAYS"), checks, "")
    if found["state"] == "paused":
        typer.echo(f"\nit waits for you: eyas rollout resume, skip, promote or abort {found['recommender']}")


@app.command()
def pause(ctx: typer.Context, name: Name, id: Which = None, reason: Reason = "") -> None:
    """Keep the weight where it is."""
    _steer(ctx, name, id, "pause", reason)


@app.command()
def resume(ctx: typer.Context, name: Name, id: Which = None, reason: Reason = "") -> None:
    """Go on where it was paused."""
    _steer(ctx, name, id, "resume", reason)


@app.command()
def skip(ctx: typer.Context, name: Name, id: Which = None, reason: Reason = "") -> None:
    """Go to the next step, without a verdict on this one."""
    _steer(ctx, name, id, "skip", reason)


@app.command()
def promote(ctx: typer.Context, name: Name, id: Which = None, reason: Reason = "") -> None:
    """Send all users to the new version. The rest of the evidence is not waited for."""
    _steer(ctx, name, id, "promote", reason)


@app.command()
def abort(ctx: typer.Context, name: Name, id: Which = None, reason: Reason = "") -> None:
    """Send all users back to the stable version."""
    _steer(ctx, name, id, "abort", reason)


def _evidence(report: Any) -> str:
    """How much better the candidate is, and between which bounds surely."""
    if report["lift"] is None:
        return ""
    bounds = " to ".join("?" if report[end] is None else f"{report[end]:+.1%}" for end in ("lower", "upper"))
    return f"{report['lift']:+.1%} ({bounds})"


def _steer(ctx: typer.Context, name: str, id: str | None, verb: str, reason: str) -> None:
    http = client(ctx)
    found = _find(http, name, id)
    http.post(paths.rollout(found["id"], f":{verb}"), {"reason": reason})
    typer.echo(f"{found['id']}: {verb} asked for")


def _find(http: Client, name: str, id: str | None) -> Any:
    if id is not None:
        found = http.get(paths.rollout(id))
        if found["recommender"] != name:
            raise Refused(f"rollout {id} belongs to '{found['recommender']}', not to '{name}'", 2)
        return found
    path = paths.recommender(name, "/rollouts")
    newest = http.get(path, limit=1, state=_UNDER_WAY)["items"] or http.get(path, limit=1)["items"]
    if not newest:
        raise Refused(f"recommender '{name}' has no rollout yet: one starts when a run has registered a version", 2)
    return newest[0]
