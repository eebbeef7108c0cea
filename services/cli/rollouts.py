"""`rollout`: shows, starts and controls rollouts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli import completing, paths, watching
from services.cli.exit_codes import Exit
from services.cli.faults import FaultReportingGroup, ReportedError
from services.cli.output import AsJson, say, show, show_table
from services.cli.registry import Version
from services.cli.runs import ENDED
from services.cli.session import Name, Reason, client
from shared.domain.rollout_plan import percent

if TYPE_CHECKING:
    from services.cli.client import Client

app = typer.Typer(cls=FaultReportingGroup, no_args_is_help=True, rich_markup_mode=None, help="Rollouts of new versions to the users.")

ENDS = {"promoted": Exit.DONE, "rolled_back": Exit.NO, "aborted": Exit.NO}
_UNDER_WAY = ("loading", "shadow", "canary", "paused")
"""At most one rollout of a recommender is in these states; the newer rollouts wait behind it."""

Which = Annotated[
    str | None,
    typer.Option(
        "--id",
        callback=paths.checked_id_or_none,
        autocompletion=completing.rollouts,
        help="Id of a rollout. Default: the active rollout, else the newest.",
        show_default=False,
    ),
]


@app.command()
def start(ctx: typer.Context, name: Name, version: Version, reason: Reason = "", as_json: AsJson = False) -> None:
    """Start a rollout of a registered version, by the current spec."""
    http = client(ctx)
    path = paths.recommender(name, "/rollouts")
    rollout = http.post(path, {"version": version, "reason": reason})
    show(rollout, as_json, lambda _: _draw_start(rollout, http.get(path, limit=1, state=_UNDER_WAY)["items"]))


def _draw_start(rollout: Any, under_way: list[Any]) -> None:
    name, id = rollout["recommender"], rollout["id"]
    state = rollout["state"].replace("_", " ")
    say(f"{id}: version {rollout['version']} of {name} is {state}: eyas rollout status {name} --id {id} --watch")
    for other in under_way:
        if other["id"] != id:
            say(f"waits for the end of rollout {other['id']} of version {other['version']}, which is {other['state']}")


@app.command()
def status(ctx: typer.Context, name: Name, id: Which = None, watch: watching.Watch = False, as_json: AsJson = False) -> None:
    """Show a rollout's state and the analysis of each step. With --watch, the exit code is 1 unless the rollout was promoted;
    if a run is active, its rollout is awaited."""
    http = client(ctx)
    begun = _await_run(http, name) if watch and id is None else None
    ids: list[str | None] = [id]

    def ask() -> Any:
        nonlocal begun
        rollout, begun = begun or _find(http, name, ids[-1]), None
        ids.append(rollout["id"])  # keeps watching this rollout when a newer rollout begins
        return rollout

    watching.shown(ask, _draw, as_json, watch, ended)


def ended(rollout: Any) -> Exit | None:
    """Returns the exit code of an ended rollout, else None."""
    return ENDS.get(rollout["state"])


def _draw(rollout: Any) -> None:
    say(f"{rollout['id']}: version {rollout['version']} is {rollout['state'].replace('_', ' ')}  {rollout['reason']}", rollout["state"])
    if shadow := rollout.get("shadow"):
        say(f"shadow: {shadow['verdict']}  {shadow['reason']}")
    reports = rollout["reports"]
    rows = [
        (
            percent(report["weight"]),
            report["verdict"],
            *(f"{report['stable'][count]:,} / {report['candidate'][count]:,}" for count in ("users", "answers", "hits")),
            f"{report['stable']['mean']:.3f} / {report['candidate']['mean']:.3f}",
            _evidence(report),
        )
        for report in reports
    ]
    heads = ("WEIGHT", "VERDICT", "USERS (STABLE / CANDIDATE)", "ANSWERS", "HITS", "HIT RATE", "CHANGE")
    show_table(heads, rows, "no step has been judged yet", drop=("ANSWERS", "HITS", "USERS (STABLE / CANDIDATE)"))
    checks = [(percent(report["weight"]), each["name"], each["verdict"], each["reason"]) for report in reports for each in report["checks"]]
    if checks:
        say()
        show_table(("WEIGHT", "CHECK", "VERDICT", "REASON"), checks, "")
    if rollout["state"] == "paused":
        say(f"\npaused: use eyas rollout resume, skip, promote or abort {rollout['recommender']}")


def _add_command(verb: str, text: str) -> None:
    def steer(ctx: typer.Context, name: Name, id: Which = None, reason: Reason = "", as_json: AsJson = False) -> None:
        http = client(ctx)
        rollout = _find(http, name, id)
        answer = http.post(paths.rollout(rollout["id"], f":{verb}"), {"reason": reason})
        show(answer, as_json, lambda _: say(f"{rollout['id']}: {verb} requested"))

    app.command(verb, help=text)(steer)


for _verb, _text in {
    "pause": "Pause a rollout: the candidate's weight stays the same.",
    "resume": "Resume a paused rollout.",
    "skip": "Go to the next step without a verdict on this step.",
    "promote": "Send all users to the new version, without waiting for more evidence.",
    "abort": "Send all users back to the stable version.",
}.items():
    _add_command(_verb, _text)


def _evidence(report: Any) -> str:
    """Formats the candidate's lift with its confidence interval."""
    if report["lift"] is None:
        return ""
    bounds = " to ".join("?" if report[end] is None else f"{report[end]:+.1%}" for end in ("lower", "upper"))
    return f"{report['lift']:+.1%} ({bounds})"


def _await_run(http: Client, name: str) -> Any:
    """Returns the active rollout. If there is none, waits for the newest run, and raises `ReportedError` if it registered nothing."""
    waits = False
    while True:
        rollouts = http.get(paths.recommender(name, "/rollouts"), limit=1, state=_UNDER_WAY)["items"]
        if rollouts:
            return rollouts[0]
        runs = http.get(paths.recommender(name, "/runs"), limit=1)["items"]
        if not runs or runs[0]["state"] in ENDED:
            if waits and runs[0]["state"] != "registered":
                raise ReportedError(f"run {runs[0]['id']} ended as {runs[0]['state']}, so no rollout starts: {runs[0]['reason']}", Exit.NO)
            return None
        if not waits:
            typer.echo(f"run {runs[0]['id']} is active: waiting for its rollout", err=True)
        waits = True
        time.sleep(watching.EVERY)


def _find(http: Client, name: str, id: str | None) -> Any:
    if id is not None:
        rollout = http.get(paths.rollout(id))
        if rollout["recommender"] != name:
            raise ReportedError(f"rollout {id} belongs to '{rollout['recommender']}', not to '{name}'", Exit.WRONG)
        return rollout
    path = paths.recommender(name, "/rollouts")
    newest = http.get(path, limit=1, state=_UNDER_WAY)["items"] or http.get(path, limit=1)["items"]
    if not newest:
        raise ReportedError(f"recommender '{name}' has no rollout yet: a rollout starts when a run has registered a version", Exit.WRONG)
    return newest[0]
