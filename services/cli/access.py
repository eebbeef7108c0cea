"""`tokens`, `whoami`, `audit`: API tokens, their rights, and the log of writes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli import paths
from services.cli.faults import FaultReportingGroup
from services.cli.output import AsJson, say, show, show_json, show_table, show_text, when
from services.cli.session import client

app = typer.Typer(cls=FaultReportingGroup, no_args_is_help=True, rich_markup_mode=None, help="API tokens and their rights.")

Limit = Annotated[int, typer.Option(min=1, max=200, help="Maximum number of rows.")]


@app.command("list")
def list_tokens(ctx: typer.Context, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List tokens, the newest first."""
    page = client(ctx).get("/v1/tokens", limit=limit)
    if as_json:
        show_json(page)
        return
    rows = [
        (
            token["id"],
            token["name"],
            token["role"],
            _scope(token),
            when(token["expires_at"]),
            when(token["revoked_at"]),
            token["created_by"],
        )
        for token in page["items"]
    ]
    show_table(
        ("ID", "NAME", "ROLE", "RECOMMENDERS", "EXPIRES", "REVOKED", "CREATED BY"),
        rows,
        "no tokens besides the first one",
        drop=("CREATED BY", "REVOKED", "EXPIRES", "RECOMMENDERS"),
    )


@app.command()
def create(
    ctx: typer.Context,
    holder: Annotated[str, typer.Argument(metavar="HOLDER", help="Name of the token's holder.", show_default=False)],
    role: Annotated[str, typer.Option(help="Role: client, viewer, operator or admin.", show_default=False)],
    recommender: Annotated[list[str] | None, typer.Option(help="Scope; repeatable. Default: all.", show_default=False)] = None,
    expires_in: Annotated[str, typer.Option(help="Lifetime, such as 12h or 90d, or never.")] = "90d",
    as_json: AsJson = False,
) -> None:
    """Create a token. Its secret is shown only once."""
    body = {"name": holder, "role": role, "recommenders": recommender or None, "expires_in": None if expires_in == "never" else expires_in}
    created = client(ctx).post("/v1/tokens", body)
    if as_json:
        show_json(created)
        return
    about = created["about"]
    ends = f"until {when(about['expires_at'])}" if about["expires_at"] else "until it is revoked"
    typer.echo(f"{about['id']}: {about['role']} '{about['name']}' for {_scope(about)}, {ends}; its secret is shown only once:", err=True)
    show_text(created["token"])


@app.command()
def revoke(
    ctx: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", callback=paths.checked_id, help="Id of the token.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Revoke a token permanently, with immediate effect."""
    show(client(ctx).delete(paths.token(id)), as_json, _draw_revoked)


def _draw_revoked(token: Any) -> None:
    say(f"{token['id']} ('{token['name']}') was revoked at {when(token['revoked_at'])} by {token['revoked_by']}")


def whoami(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the rights of the token in use."""
    identity = client(ctx).get("/v1/whoami")
    if as_json:
        show_json(identity)
        return
    ends = f", until {when(identity['expires_at'])}" if identity["expires_at"] else ""
    say(f"{identity['name']}: {identity['role']} for {_scope(identity)}{ends} (token {identity['token']})")


def audit(
    ctx: typer.Context,
    actor: Annotated[str | None, typer.Option(help="Show only requests of this token holder.", show_default=False)] = None,
    recommender: Annotated[str | None, typer.Option(help="Show only requests on this recommender.", show_default=False)] = None,
    since: Annotated[str | None, typer.Option(help="Start time, such as 2026-01-31T12:00:00Z.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help="End time, such as 2026-01-31T12:00:00Z.", show_default=False)] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List write requests, with their actor and answer, the newest first."""
    page = client(ctx).get("/v1/audit", actor=actor, recommender=recommender, since=since, until=until, limit=limit)
    if as_json:
        show_json(page)
        return
    rows = [
        (
            when(entry["at"]),
            entry["actor"],
            f"{entry['action'].split()[0]} {entry['target']}",
            entry["status"] or "unknown",
            entry["detail"],
        )
        for entry in page["items"]
    ]
    filtered = any((actor, recommender, since, until))
    empty = "no matching write requests" if filtered else "no write requests yet"
    show_table(("TIME", "ACTOR", "REQUEST", "ANSWER", "REASON"), rows, empty, drop=("REASON", "ACTOR"))


def _scope(token: dict[str, Any]) -> str:
    return "all recommenders" if token["recommenders"] is None else ", ".join(token["recommenders"])
