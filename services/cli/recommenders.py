"""`apply`, `rollback`, `delete`, `drift`, `retrain`: what is done with a recommender as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import paths
from services.cli.faults import Refused
from services.cli.session import AsJson, Name, Reason, client, show_json, show_table, when
from shared.contracts.spec import parse_spec

_KEPT_SMALL = 1 << 20


def apply(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The spec: YAML or JSON.", show_default=False)],
    run: Annotated[bool, typer.Option("--run/--no-run", help="Start a run if the spec is new or changed.")] = True,
    as_json: AsJson = False,
) -> None:
    """Create a recommender or change its spec. An equal spec changes nothing."""
    text = read_text(file)
    parse_spec(text, str(file))  # its faults are named by file before anything is sent
    found = client(ctx).post_text("/v1/recommenders", text, "application/yaml", run=str(run).lower())
    if as_json:
        show_json(found)
        return
    started = f"run {found['run']} started" if found["run"] else "no run started"
    typer.echo(f"{found['name']}: generation {found['generation']}, {started}")


def rollback(
    ctx: typer.Context,
    name: Name,
    to: Annotated[int | None, typer.Option(min=1, help="A certain version, by number.", show_default=False)] = None,
    reason: Reason = "",
) -> None:
    """Go back to the proven version. An active rollout is aborted; else the previous stable version returns."""
    wish = {"reason": reason} | ({} if to is None else {"to": to})
    found = client(ctx).post(paths.recommender(name, ":rollback"), wish)
    aborted = f" (asked to abort: {', '.join(found['aborted'])})" if found["aborted"] else ""
    loads = f"; rollout {found['rollout']} loads the other version and then moves everybody" if found["rollout"] else ""
    typer.echo(f"{name}: version {found['stable']} is the stable one{aborted}{loads}")


def delete(
    ctx: typer.Context, name: Name, yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask whether it is meant.")] = False
) -> None:
    """Delete a recommender: nothing of it serves or retrains, and its versions may be collected, tagged ones aside."""
    path = paths.recommender(name)
    if not yes:
        typer.confirm(f"Delete {name}? It stops serving at once, and its versions are collected; tagged ones stay", abort=True)
    client(ctx).delete(path)
    typer.echo(f"{name}: deleted")


def drift(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show which features have moved, how, since when and how sure that is, and what the retrainer makes of it."""
    found = client(ctx).get(paths.recommender(name, "/drift"))
    if as_json:
        show_json(found)
        return
    for line in found["said"]:
        typer.echo(line)
    rows = [
        (one["feature"], one["detector"], one["size"], one["threshold"], one["chance"], when(one["since"]) if one["stands"] else "")
        for one in found["readings"]
    ]
    if rows:
        show_table(("FEATURE", "DETECTOR", "MOVED BY", "THRESHOLD", "BY CHANCE", "STANDS SINCE"), rows, "")
    if found["retrainer"]:
        _show_retrainer(found["retrainer"])


def triggers(
    ctx: typer.Context,
    name: Name,
    history: Annotated[bool, typer.Option("--history", help="Show what fired, what was held back, and why.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Lines of the history.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what may start a retraining: what each trigger sees, what holds it back, when the schedule is due."""
    if history:
        page = client(ctx).get(paths.recommender(name, "/triggers/history"), limit=limit)
        if as_json:
            show_json(page)
            return
        lines = [(when(one["at"]), one["target"], one["reason"], one["actor"]) for one in page["items"]]
        show_table(("AT", "STATE", "REASON", "BY"), lines, f"nothing has happened to the retrainer of {name} yet")
        return
    found = client(ctx).get(paths.recommender(name, "/triggers"))
    if as_json:
        show_json(found)
        return
    rows = [(one["trigger"], one["mode"], "yes" if one["fires"] else "no", one["found"], one["held_by"]) for one in found["triggers"]]
    show_table(("TRIGGER", "MODE", "FIRES", "FOUND", "HELD BACK BY"), rows, f"the spec of {name} names no trigger: retrain by hand")
    if found["schedule"]:
        due = found["schedule"]
        typer.echo(f"next: {when(due['next'])} UTC, {due['next_local']} in {due['timezone']}")
    most = f" of at most {found['max_per_day']}" if found["max_per_day"] else ""
    by = ", ".join(f"{one['trigger']} at {when(one['at'])}" for one in found["firings"])
    typer.echo(f"in the last 24 hours: {len(found['firings'])}{most}" + (f" ({by})" if by else ""))
    if found["retrainer"]:
        _show_retrainer(found["retrainer"])


def retrain(ctx: typer.Context, name: Name, reason: Reason = "") -> None:
    """Ask for a retraining. It starts as the spec says, as soon as nothing else is under way."""
    client(ctx).post(paths.recommender(name, ":retrain"), {"reason": reason})
    typer.echo(f"{name}: retraining asked for")


def _show_retrainer(found: dict[str, Any]) -> None:
    typer.echo(f"retrainer: {found['state']}  {found['reason']}")
    for one in found["held"]:
        typer.echo(f"{'let go' if one['dropped'] else 'held back'}: {one['trigger']} since {when(one['since'])}: {one['by']}")


def read_text(file: Path) -> str:
    try:
        if file.is_file() and file.stat().st_size > _KEPT_SMALL:
            raise Refused(f"{file} is larger than 1 MiB: is it a spec?", 2)
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}", 2) from None
    except UnicodeDecodeError:
        raise Refused(f"{file} is not UTF-8 text", 2) from None
