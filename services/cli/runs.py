"""`run`, `runs`, `cancel`, `logs` and others: one training after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from services.cli import completing, paths, watching
from services.cli.exits import Exit
from services.cli.faults import Refused
from services.cli.plain import plain
from services.cli.session import Name, Reason, client
from services.cli.shown import AsJson, say, show, show_json, show_json_line, show_table, when

if TYPE_CHECKING:
    from services.cli.client import Client

ENDED = frozenset({"registered", "rejected", "failed", "cancelled"})
_POLL = 0.5

RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", callback=paths.checked_id, autocompletion=completing.runs, help="The run's id.", show_default=False),
]


def run(  # noqa: PLR0913, PLR0917  the options of a command
    ctx: typer.Context,
    name: Name,
    mode: Annotated[
        Literal["full", "warm", "auto"], typer.Option(help="`warm` starts from the serving version's weights; `auto` chooses.")
    ] = "full",
    reason: Reason = "",
    priority: Annotated[int, typer.Option(min=-100, max=100, help="Higher goes first among the runs that wait.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every stage, though nothing may have changed.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; exit code 1 unless it registered a version.")] = False,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """Start a run."""
    http = client(ctx)
    found = http.post(paths.recommender(name, "/runs"), {"mode": mode, "reason": reason, "priority": priority, "fresh": fresh})
    if watch:
        first = [found]
        watching.shown(lambda: first.pop() if first else http.get(paths.run(found["id"])), _draw_run, as_json, watch, ended)
        return
    if not as_json:
        say(f"run {found['id']} started")
    if wait:
        found = _until_ended(http, found, quiet=as_json)
    if as_json:
        show_json(found)
    if wait and found["state"] != "registered":
        raise typer.Exit(Exit.NO)


def ended(found: Any) -> Exit | None:
    """Of a run: whether it is over, and how."""
    if found["state"] not in ENDED:
        return None
    return Exit.DONE if found["state"] == "registered" else Exit.NO


def _draw_run(found: Any) -> None:
    say(f"run {found['id']} of {found['recommender']}: {found['state']}  {found['reason']}".rstrip(), found["state"])
    for line in _epochs(found, set()):
        say(line)


def runs(
    ctx: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 20,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="Only runs that gave up: `eyas retry` goes on with one.")] = False,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first."""
    http = client(ctx)

    def ask() -> Any:
        return http.get(paths.recommender(name, "/runs"), limit=limit, dead_letter="true" if dead_letter else None)

    def draw(found: Any) -> None:
        rows = [
            (one["id"], one["state"], one["mode"], when(one["created_at"]), one["version"], one["cause"], one["reason"])
            for one in found["items"]
        ]
        empty = f"no run of {name} gave up" if dead_letter else f"{name} has no run yet"
        columns = ("RUN", "STATE", "MODE", "CREATED", "VERSION", "CAUSE", "REASON")
        show_table(columns, rows, empty, drop=("CAUSE", "MODE", "VERSION", "CREATED", "REASON"))

    watching.shown(ask, draw, as_json, watch)


def cancel(ctx: typer.Context, id: RunId, reason: Reason = "", as_json: AsJson = False) -> None:
    """End a run before its time."""
    found = client(ctx).post(paths.run(id, ":cancel"), {"reason": reason})
    show(found, as_json, lambda _: say(f"run {id}: asked to end"))


def retry(
    ctx: typer.Context,
    id: RunId,
    stage: Annotated[
        str | None,
        typer.Option(
            "--from", autocompletion=completing.stages, help="The first stage that runs again; the one that it ended in if absent."
        ),
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Gates that come out inconclusive don't refuse it; needs --reason.")] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Start a new run that goes on from where one ended, with what that had published."""
    wish = {"from": stage, "reason": reason} | ({"accept": True} if accept else {})
    found = client(ctx).post(paths.run(id, ":retry"), wish)
    show(found, as_json, lambda found: say(f"run {found['id']} started"))


def prioritise(
    ctx: typer.Context,
    id: RunId,
    priority: Annotated[int, typer.Argument(metavar="PRIORITY", min=-100, max=100, help="Higher goes first.", show_default=False)],
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Give a run that waits another place in the queue."""
    found = client(ctx).post(paths.run(id, ":prioritise"), {"priority": priority, "reason": reason})
    why = f", {found['reason']}" if found["reason"] else ""
    show(found, as_json, lambda found: say(f"run {id}: priority {found['priority']}{why}"))


def plan(
    ctx: typer.Context,
    name: Name,
    mode: Annotated[
        Literal["full", "warm", "auto"], typer.Option(help="`warm` starts from the serving version's weights; `auto` chooses.")
    ] = "full",
    as_json: AsJson = False,
) -> None:
    """Show what a run would do now: which stages run, and which are reused. Nothing is started."""
    found = client(ctx).post(paths.recommender(name, ":plan"), {"mode": mode})
    if as_json:
        show_json(found)
        return
    show_table(
        ("STAGE", "DOES", "ATTEMPT", "SECONDS", "MEMORY", "WHY"),
        [tuple(stage[name] for name in ("stage", "does", "attempt", "seconds", "memory", "why")) for stage in found["stages"]],
        "",
        drop=("MEMORY", "ATTEMPT"),
    )
    known = [stage["seconds"] for stage in found["stages"] if stage["seconds"] is not None]
    if known:
        say(f"time: about {sum(known):,.0f} s, as long as these stages took in the newest run that ran them")
    say(f"gates: {'; '.join(found['gates']) or 'none'}")
    say(f"queue: {found['waits'] or 'it could begin at once'}")
    for one in found["warnings"]:
        say(f"warning: {one}")


def compare(
    ctx: typer.Context,
    id: RunId,
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER", callback=paths.checked_id, autocompletion=completing.runs, help="The other run's id.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Compare the settings and the numbers of two runs, from the older run to the newer one."""
    found = client(ctx).get(paths.run(id, "/compare"), **{"with": other})
    if as_json:
        show_json(found)
        return
    differing = [(f"spec: {one['path']}", one["left"], one["right"]) for one in found["spec"]]
    differing += [(one["path"], one["left"], one["right"]) for one in found["lineage"]]
    older, newer = found["left"]["id"], found["right"]["id"]
    show_table(("WHAT", older, newer), differing, "spec, data and code are the same")
    numbers = [(one["metric"], one["left"], one["right"], one["change"]) for one in found["metrics"]]
    show_table(("METRIC", older, newer, "CHANGE"), numbers, "neither has measured anything")
    gates = [(one["gate"], *((one[side] or {}).get("verdict") for side in ("left", "right"))) for one in found["gates"]]
    show_table(("GATE", older, newer), gates, "neither has met a gate")
    seconds = [(one["stage"], _took(one, "left"), _took(one, "right")) for one in found["stages"]]
    show_table(("SECONDS OF", older, newer), seconds, "neither has published a stage")


def _took(stage: Any, side: str) -> Any:
    return "reused" if stage[side] and stage[side]["reused"] else stage[f"{side}_seconds"]


def logs(
    ctx: typer.Context,
    id: RunId,
    stage: Annotated[
        str | None,
        typer.Option(autocompletion=completing.stages, help="etl, train, evaluate, refit, export or verify; the newest when absent."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a stage has written. With --json one line of JSON for each piece: stage, text."""
    http = client(ctx)
    get = http.get
    shown, offset = stage, 0
    while True:
        over = get(paths.run(id))["state"] in ENDED  # before the text, so that none is missed after the end
        shown, offset = _print_log(get, id, stage, shown, offset, as_json)
        if not follow or over:
            return
        time.sleep(_POLL)
        get = partial(watching.patiently, http)


def watch(ctx: typer.Context, id: RunId, as_json: AsJson = False) -> None:
    """Show each change of a run's state as it comes, until the run has ended; exit code 1 unless it registered a version."""
    for name, data in watching.told(client(ctx), paths.run(id, "/stream")):
        if as_json and name in {"state", "end"}:
            show_json_line({"event": name} | data)
        elif name == "state":
            say(f"{when(data['at'])}  {data['target']}  {' '.join(data['reason'].split())}".rstrip(), data["target"])
        if name == "problem":
            raise Refused(data["detail"])
        if name == "end":
            if data["state"] != "registered":
                raise typer.Exit(Exit.NO)
            return


def _print_log(
    get: Callable[..., Any], id: str, stage: str | None, shown: str | None, offset: int, as_json: bool
) -> tuple[str | None, int]:
    """Everything from the offset on; without a chosen stage, the rest of this one and then the next one's beginning."""
    newest = get(paths.run(id, "/logs"), stage=stage, offset=0)["stage"] if stage is None else stage
    wanted = [one for one in (shown, newest) if one is not None]
    for one in dict.fromkeys(wanted):
        if one != shown:
            offset = 0
        while True:
            found = get(paths.run(id, "/logs"), stage=one, offset=offset)
            if not as_json:
                typer.echo(plain(found["text"]), nl=False)
            elif found["text"]:
                show_json_line({"stage": one, "attempt": found["attempt"], "text": found["text"]})
            moved, offset = found["next"] > offset, found["next"]
            if not moved:
                break
        shown = one
    return shown, offset


def _epochs(found: Any, told: set[tuple[int, float]]) -> Iterator[str]:
    """Each epoch of the stage under way that has ended, once: another try of the stage may have gone on from where one was."""
    progress = found.get("progress")
    for one in progress["history"] if progress else ():
        if (one["epoch"], one["loss"]) not in told:
            told.add((one["epoch"], one["loss"]))
            seen = "".join(f", validation {name} {value:.4f}" for name, value in one["validation"].items())
            rate = f"{one['rows_per_s']:,.0f} rows/s"
            yield f"{found['state']}  epoch {one['epoch']} of {progress['epochs']}, loss {one['loss']:.4f}{seen}, {rate}"


def _until_ended(http: Client, found: Any, quiet: bool) -> Any:
    said = ""
    told: set[tuple[int, float]] = set()
    while True:
        line = f"{found['state']}  {found['reason']}".rstrip()
        if line != said and not quiet:
            say(line, found["state"])
            said = line
        for epoch in _epochs(found, told):
            if not quiet:
                say(epoch)
        if found["state"] in ENDED:
            return found
        time.sleep(_POLL)
        found = watching.patiently(http, paths.run(found["id"]))
