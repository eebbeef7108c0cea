"""`apply`, `rollback`, `delete`, `drift`, `triggers`, `retrain`: commands on a recommender."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import completing, paths, watching
from services.cli.files import read_text
from services.cli.output import AsJson, say, show, show_json, show_table, when
from services.cli.planning import report_check
from services.cli.session import Name, Reason, client


def apply(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The spec: YAML or JSON.", show_default=False)],
    run: Annotated[bool, typer.Option("--run/--no-run", help="Start a run if the spec is new or changed.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the spec and its data, as `eyas plan FILE` does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a recommender or change its spec. An equal spec changes nothing."""
    from shared.contracts.spec import parse_spec

    if dry_run:
        report_check(ctx, file, None, as_json)
        return
    text = read_text(file)
    parse_spec(text, str(file))  # reports faults with the file's name before the request
    answer = client(ctx).post_text("/v1/recommenders", text, "application/yaml", run=str(run).lower())
    if as_json:
        show_json(answer)
        return
    started = f"run {answer['run']} started" if answer["run"] else "no run started"
    say(f"{answer['name']}: generation {answer['generation']}, {started}")
    for warning in answer.get("warnings", ()):
        say(f"warning: {warning}")


def rollback(
    ctx: typer.Context,
    name: Name,
    to: Annotated[
        int | None,
        typer.Option(min=1, autocompletion=completing.versions, help="Number of the version to return to.", show_default=False),
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Go back to the previous version. An active rollout is aborted; otherwise the previous stable version returns."""
    body = {"reason": reason} | ({} if to is None else {"to": to})
    show(client(ctx).post(paths.recommender(name, ":rollback"), body), as_json, partial(_draw_rollback, name))


def _draw_rollback(name: str, answer: Any) -> None:
    aborted = f" (aborting: {', '.join(answer['aborted'])})" if answer["aborted"] else ""
    loads = f"; rollout {answer['rollout']} loads this version and then moves all users" if answer["rollout"] else ""
    say(f"{name}: version {answer['stable']} is stable{aborted}{loads}")


def delete(
    ctx: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a recommender. Serving and retraining stop, and versions without a tag become garbage."""
    path = paths.recommender(name)
    if not yes:
        typer.confirm(f"Delete {name}? It stops serving at once; its versions without a tag are collected", abort=True, err=True)
    client(ctx).delete(path)
    show({"recommender": name, "deleted": True}, as_json, lambda _: say(f"{name}: deleted"))


def drift(ctx: typer.Context, name: Name, watch: watching.Watch = False, as_json: AsJson = False) -> None:
    """Show the drift of each feature, its start and its certainty, and the state of the retrainer."""
    http = client(ctx)
    watching.shown(lambda: http.get(paths.recommender(name, "/drift")), _draw_drift, as_json, watch)


def _draw_drift(drift: Any) -> None:
    for line in drift["said"]:
        say(line)
    rows = [
        (
            reading["feature"],
            reading["detector"],
            reading["size"],
            reading["threshold"],
            reading["chance"],
            when(reading["since"]) if reading["stands"] else "",
        )
        for reading in drift["readings"]
    ]
    if rows:
        columns = ("FEATURE", "DETECTOR", "SIZE", "THRESHOLD", "CHANCE", "SINCE")
        show_table(columns, rows, "", drop=("THRESHOLD", "CHANCE", "DETECTOR"))
    if drift["retrainer"]:
        _show_retrainer(drift["retrainer"])


def triggers(
    ctx: typer.Context,
    name: Name,
    history: Annotated[bool, typer.Option("--history", help="Show past firings and held-back triggers, with reasons.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Maximum number of rows of the history.")] = 20,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """Show each retraining trigger, what holds it back, and the next scheduled time."""
    http = client(ctx)
    if history:
        past = partial(http.get, paths.recommender(name, "/triggers/history"), limit=limit)
        watching.shown(past, partial(_draw_triggered, name), as_json, watch)
    else:
        watching.shown(lambda: http.get(paths.recommender(name, "/triggers")), partial(_draw_triggers, name), as_json, watch)


def _draw_triggered(name: str, page: Any) -> None:
    lines = [(when(transition["at"]), transition["target"], transition["reason"], transition["actor"]) for transition in page["items"]]
    show_table(("AT", "STATE", "REASON", "BY"), lines, f"the retrainer of {name} has no history yet", drop=("BY",))


def _draw_triggers(name: str, answer: Any) -> None:
    rows = [
        (trigger["trigger"], trigger["mode"], "yes" if trigger["fires"] else "no", trigger["found"], trigger["held_by"])
        for trigger in answer["triggers"]
    ]
    columns = ("TRIGGER", "MODE", "FIRES", "OBSERVED", "HELD BACK BY")
    show_table(columns, rows, f"the spec of {name} has no trigger: use eyas retrain {name}", drop=("MODE",))
    if answer["schedule"]:
        due = answer["schedule"]
        say(f"next: {when(due['next'])} UTC, {due['next_local']} in {due['timezone']}")
    most = f" of at most {answer['max_per_day']}" if answer["max_per_day"] else ""
    by = ", ".join(f"{firing['trigger']} at {when(firing['at'])}" for firing in answer["firings"])
    say(f"in the last 24 hours: {len(answer['firings'])}{most}" + (f" ({by})" if by else ""))
    if answer["retrainer"]:
        _show_retrainer(answer["retrainer"])


def retrain(ctx: typer.Context, name: Name, reason: Reason = "", as_json: AsJson = False) -> None:
    """Request a retraining. It starts in the mode of the spec, when no run is active."""
    answer = client(ctx).post(paths.recommender(name, ":retrain"), {"reason": reason})
    show(answer, as_json, lambda _: say(f"{name}: retraining requested"))


def _show_retrainer(retrainer: dict[str, Any]) -> None:
    say(f"retrainer: {retrainer['state']}  {retrainer['reason']}")
    for trigger in retrainer["held"]:
        say(f"{'dropped' if trigger['dropped'] else 'held back'}: {trigger['trigger']} since {when(trigger['since'])}: {trigger['by']}")
