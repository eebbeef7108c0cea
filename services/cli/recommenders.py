"""`apply`, `rollback`, `delete`, `drift`, `retrain`: what is done with a recommender as a whole."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import completing, paths, watching
from services.cli.files import read_text
from services.cli.session import Name, Reason, client
from services.cli.shown import AsJson, say, show, show_json, show_table, when


def apply(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The spec: YAML or JSON.", show_default=False)],
    run: Annotated[bool, typer.Option("--run/--no-run", help="Start a run if the spec is new or changed.")] = True,
    as_json: AsJson = False,
) -> None:
    """Create a recommender or change its spec. An equal spec changes nothing."""
    from shared.contracts.spec import parse_spec

    text = read_text(file)
    parse_spec(text, str(file))  # its faults are named by file before anything is sent
    found = client(ctx).post_text("/v1/recommenders", text, "application/yaml", run=str(run).lower())
    if as_json:
        show_json(found)
        return
    started = f"run {found['run']} started" if found["run"] else "no run started"
    say(f"{found['name']}: generation {found['generation']}, {started}")


def rollback(
    ctx: typer.Context,
    name: Name,
    to: Annotated[
        int | None,
        typer.Option(min=1, autocompletion=completing.versions, help="A certain version, by number.", show_default=False),
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Go back to the proven version. An active rollout is aborted; else the previous stable version returns."""
    wish = {"reason": reason} | ({} if to is None else {"to": to})
    show(client(ctx).post(paths.recommender(name, ":rollback"), wish), as_json, partial(_draw_rollback, name))


def _draw_rollback(name: str, found: Any) -> None:
    aborted = f" (asked to abort: {', '.join(found['aborted'])})" if found["aborted"] else ""
    loads = f"; rollout {found['rollout']} loads the other version and then moves everybody" if found["rollout"] else ""
    say(f"{name}: version {found['stable']} is the stable one{aborted}{loads}")


def delete(
    ctx: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask whether it is meant.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a recommender: nothing of it serves or retrains, and its versions may be collected, tagged ones aside."""
    path = paths.recommender(name)
    if not yes:
        typer.confirm(f"Delete {name}? It stops serving at once, and its versions are collected; tagged ones stay", abort=True, err=True)
    client(ctx).delete(path)
    show({"recommender": name, "deleted": True}, as_json, lambda _: say(f"{name}: deleted"))


def drift(ctx: typer.Context, name: Name, watch: watching.Watch = False, as_json: AsJson = False) -> None:
    """Show which features have moved, how, since when and how sure that is, and what the retrainer makes of it."""
    http = client(ctx)
    watching.shown(lambda: http.get(paths.recommender(name, "/drift")), _draw_drift, as_json, watch)


def _draw_drift(found: Any) -> None:
    for line in found["said"]:
        say(line)
    rows = [
        (one["feature"], one["detector"], one["size"], one["threshold"], one["chance"], when(one["since"]) if one["stands"] else "")
        for one in found["readings"]
    ]
    if rows:
        columns = ("FEATURE", "DETECTOR", "MOVED BY", "THRESHOLD", "BY CHANCE", "STANDS SINCE")
        show_table(columns, rows, "", drop=("THRESHOLD", "BY CHANCE", "DETECTOR"))
    if found["retrainer"]:
        _show_retrainer(found["retrainer"])


def triggers(
    ctx: typer.Context,
    name: Name,
    history: Annotated[bool, typer.Option("--history", help="Show what fired, what was held back, and why.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Lines of the history.")] = 20,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """Show what may start a retraining: what each trigger sees, what holds it back, when the schedule is due."""
    http = client(ctx)
    if history:
        past = partial(http.get, paths.recommender(name, "/triggers/history"), limit=limit)
        watching.shown(past, partial(_draw_triggered, name), as_json, watch)
    else:
        watching.shown(lambda: http.get(paths.recommender(name, "/triggers")), partial(_draw_triggers, name), as_json, watch)


def _draw_triggered(name: str, page: Any) -> None:
    lines = [(when(one["at"]), one["target"], one["reason"], one["actor"]) for one in page["items"]]
    show_table(("AT", "STATE", "REASON", "BY"), lines, f"nothing has happened to the retrainer of {name} yet", drop=("BY",))


def _draw_triggers(name: str, found: Any) -> None:
    rows = [(one["trigger"], one["mode"], "yes" if one["fires"] else "no", one["found"], one["held_by"]) for one in found["triggers"]]
    columns = ("TRIGGER", "MODE", "FIRES", "FOUND", "HELD BACK BY")
    show_table(columns, rows, f"the spec of {name} names no trigger: retrain by hand", drop=("MODE",))
    if found["schedule"]:
        due = found["schedule"]
        say(f"next: {when(due['next'])} UTC, {due['next_local']} in {due['timezone']}")
    most = f" of at most {found['max_per_day']}" if found["max_per_day"] else ""
    by = ", ".join(f"{one['trigger']} at {when(one['at'])}" for one in found["firings"])
    say(f"in the last 24 hours: {len(found['firings'])}{most}" + (f" ({by})" if by else ""))
    if found["retrainer"]:
        _show_retrainer(found["retrainer"])


def retrain(ctx: typer.Context, name: Name, reason: Reason = "", as_json: AsJson = False) -> None:
    """Ask for a retraining. It starts as the spec says, as soon as nothing else is under way."""
    found = client(ctx).post(paths.recommender(name, ":retrain"), {"reason": reason})
    show(found, as_json, lambda _: say(f"{name}: retraining asked for"))


def _show_retrainer(found: dict[str, Any]) -> None:
    say(f"retrainer: {found['state']}  {found['reason']}")
    for one in found["held"]:
        say(f"{'let go' if one['dropped'] else 'held back'}: {one['trigger']} since {when(one['since'])}: {one['by']}")
