"""`run`, `runs`, `cancel`, `retry`, `prioritise`, `plan`, `compare`, `logs`, `watch`: runs of a recommender."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from services.cli import completing, paths, watching
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.output import AsJson, say, show, show_json, show_json_line, show_table, when
from services.cli.sanitise import plain
from services.cli.session import Name, Reason, client

if TYPE_CHECKING:
    from services.cli.client import Client

ENDED = frozenset({"registered", "rejected", "failed", "cancelled"})
_POLL = 0.5

RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", callback=paths.checked_id, autocompletion=completing.runs, help="Id of the run.", show_default=False),
]


def run(  # noqa: PLR0913, PLR0917  the options of a command
    ctx: typer.Context,
    name: Name,
    mode: Annotated[
        Literal["full", "warm", "auto"], typer.Option(help="Mode: `warm` starts from the serving version's weights; `auto` chooses.")
    ] = "full",
    reason: Reason = "",
    priority: Annotated[int, typer.Option(min=-100, max=100, help="Priority among pending runs: higher starts first.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every stage, without stage reuse.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the run; exit code 1 unless it registered a version.")] = False,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """Start a run."""
    http = client(ctx)
    run = http.post(paths.recommender(name, "/runs"), {"mode": mode, "reason": reason, "priority": priority, "fresh": fresh})
    if watch:
        first = [run]
        watching.shown(lambda: first.pop() if first else http.get(paths.run(run["id"])), _draw_run, as_json, watch, ended)
        return
    if not as_json:
        say(f"run {run['id']} started")
    if wait:
        run = _until_ended(http, run, quiet=as_json)
    if as_json:
        show_json(run)
    if wait and run["state"] != "registered":
        raise typer.Exit(Exit.NO)


def ended(run: Any) -> Exit | None:
    """Returns the exit code of an ended run, else None."""
    if run["state"] not in ENDED:
        return None
    return Exit.DONE if run["state"] == "registered" else Exit.NO


def _draw_run(run: Any) -> None:
    say(f"run {run['id']} of {run['recommender']}: {run['state']}  {run['reason']}".rstrip(), run["state"])
    for line in _epochs(run, set()):
        say(line)


def runs(
    ctx: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Maximum number of runs.")] = 20,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="Show only runs that gave up: `eyas retry` continues one.")] = False,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first."""
    http = client(ctx)

    def ask() -> Any:
        return http.get(paths.recommender(name, "/runs"), limit=limit, dead_letter="true" if dead_letter else None)

    def draw(page: Any) -> None:
        rows = [
            (run["id"], run["state"], run["mode"], when(run["created_at"]), run["version"], run["cause"], run["reason"])
            for run in page["items"]
        ]
        empty = f"no run of {name} gave up" if dead_letter else f"{name} has no run yet"
        columns = ("RUN", "STATE", "MODE", "CREATED", "VERSION", "CAUSE", "REASON")
        show_table(columns, rows, empty, drop=("CAUSE", "MODE", "VERSION", "CREATED", "REASON"))

    watching.shown(ask, draw, as_json, watch)


def cancel(ctx: typer.Context, id: RunId, reason: Reason = "", as_json: AsJson = False) -> None:
    """Cancel a run."""
    answer = client(ctx).post(paths.run(id, ":cancel"), {"reason": reason})
    show(answer, as_json, lambda _: say(f"run {id}: cancellation requested"))


def retry(
    ctx: typer.Context,
    id: RunId,
    stage: Annotated[
        str | None,
        typer.Option(
            "--from", autocompletion=completing.stages, help="First stage to run again. Default: the stage in which the run ended."
        ),
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Accept inconclusive gates; needs --reason.")] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Start a new run that continues an ended run and reuses its stages."""
    body = {"from": stage, "reason": reason} | ({"accept": True} if accept else {})
    new_run = client(ctx).post(paths.run(id, ":retry"), body)
    show(new_run, as_json, lambda new_run: say(f"run {new_run['id']} started"))


def prioritise(
    ctx: typer.Context,
    id: RunId,
    priority: Annotated[int, typer.Argument(metavar="PRIORITY", min=-100, max=100, help="Higher starts first.", show_default=False)],
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Change the priority of a pending run."""
    run = client(ctx).post(paths.run(id, ":prioritise"), {"priority": priority, "reason": reason})
    why = f", {run['reason']}" if run["reason"] else ""
    show(run, as_json, lambda run: say(f"run {id}: priority {run['priority']}{why}"))


def compare(
    ctx: typer.Context,
    id: RunId,
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER", callback=paths.checked_id, autocompletion=completing.runs, help="Id of the other run.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Compare the settings and metrics of two runs, from the older to the newer run."""
    comparison = client(ctx).get(paths.run(id, "/compare"), **{"with": other})
    if as_json:
        show_json(comparison)
        return
    differing = [(f"spec: {difference['path']}", difference["left"], difference["right"]) for difference in comparison["spec"]]
    differing += [(difference["path"], difference["left"], difference["right"]) for difference in comparison["lineage"]]
    older, newer = comparison["left"]["id"], comparison["right"]["id"]
    show_table(("SETTING", older, newer), differing, "spec, data and code are the same")
    numbers = [(metric["metric"], metric["left"], metric["right"], metric["change"]) for metric in comparison["metrics"]]
    show_table(("METRIC", older, newer, "CHANGE"), numbers, "no metrics")
    gates = [(gate["gate"], *((gate[side] or {}).get("verdict") for side in ("left", "right"))) for gate in comparison["gates"]]
    show_table(("GATE", older, newer), gates, "no gates")
    seconds = [(stage["stage"], _took(stage, "left"), _took(stage, "right")) for stage in comparison["stages"]]
    show_table(("SECONDS", older, newer), seconds, "no published stages")


def _took(stage: Any, side: str) -> Any:
    return "reused" if stage[side] and stage[side]["reused"] else stage[f"{side}_seconds"]


def logs(
    ctx: typer.Context,
    id: RunId,
    stage: Annotated[
        str | None,
        typer.Option(autocompletion=completing.stages, help="Stage: etl, train, evaluate, refit, export or verify. Default: the newest."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the run has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the log of a stage. With --json, one line of JSON for each piece: stage, attempt, text."""
    http = client(ctx)
    get = http.get
    shown, offset = stage, 0
    while True:
        over = get(paths.run(id))["state"] in ENDED  # read before the text, so that the last text is not missed
        shown, offset = _print_log(get, id, stage, shown, offset, as_json)
        if not follow or over:
            return
        time.sleep(_POLL)
        get = partial(watching.patiently, http)


def watch(ctx: typer.Context, id: RunId, as_json: AsJson = False) -> None:
    """Show each change of a run's state until the run has ended. Exit code 1 unless it registered a version."""
    for name, data in watching.stream_events(client(ctx), paths.run(id, "/stream")):
        if as_json and name in {"state", "end"}:
            show_json_line({"event": name} | data)
        elif name == "state":
            say(f"{when(data['at'])}  {data['target']}  {' '.join(data['reason'].split())}".rstrip(), data["target"])
        if name == "problem":
            raise ReportedError(data["detail"])
        if name == "end":
            if data["state"] != "registered":
                raise typer.Exit(Exit.NO)
            return


def _print_log(
    get: Callable[..., Any], id: str, stage: str | None, shown: str | None, offset: int, as_json: bool
) -> tuple[str | None, int]:
    """Prints the log from the offset on. Without a chosen stage, prints the rest of the shown stage, then the newest stage."""
    newest = get(paths.run(id, "/logs"), stage=stage, offset=0)["stage"] if stage is None else stage
    wanted = [name for name in (shown, newest) if name is not None]
    for name in dict.fromkeys(wanted):
        if name != shown:
            offset = 0
        while True:
            chunk = get(paths.run(id, "/logs"), stage=name, offset=offset)
            if not as_json:
                typer.echo(plain(chunk["text"]), nl=False)
            elif chunk["text"]:
                show_json_line({"stage": name, "attempt": chunk["attempt"], "text": chunk["text"]})
            moved, offset = chunk["next"] > offset, chunk["next"]
            if not moved:
                break
        shown = name
    return shown, offset


def _epochs(run: Any, printed_epochs: set[tuple[int, float]]) -> Iterator[str]:
    """Yields each finished epoch of the active stage once, although a later attempt may repeat epochs."""
    progress = run.get("progress")
    for epoch in progress["history"] if progress else ():
        if (epoch["epoch"], epoch["loss"]) not in printed_epochs:
            printed_epochs.add((epoch["epoch"], epoch["loss"]))
            validation = "".join(f", validation {name} {value:.4f}" for name, value in epoch["validation"].items())
            rate = f"{epoch['rows_per_s']:,.0f} rows/s"
            yield f"{run['state']}  epoch {epoch['epoch']} of {progress['epochs']}, loss {epoch['loss']:.4f}{validation}, {rate}"


def _until_ended(http: Client, run: Any, quiet: bool) -> Any:
    last_line = ""
    printed_epochs: set[tuple[int, float]] = set()
    while True:
        line = f"{run['state']}  {run['reason']}".rstrip()
        if line != last_line and not quiet:
            say(line, run["state"])
            last_line = line
        for epoch in _epochs(run, printed_epochs):
            if not quiet:
                say(epoch)
        if run["state"] in ENDED:
            return run
        time.sleep(_POLL)
        run = watching.patiently(http, paths.run(run["id"]))
