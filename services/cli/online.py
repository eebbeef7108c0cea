"""`recommend`, `similar` and `events`: requests to the gateway; `serving`: the replicas of the model server."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import paths, watching
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.files import batches, json_lines
from services.cli.output import AsJson, say, show, show_json, show_table
from services.cli.session import Name, client, entity_id

_BATCH = 1000
_REPORT_EVERY = 5.0


def recommend(
    ctx: typer.Context,
    name: Name,
    user: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.", show_default=False)],
    k: Annotated[int, typer.Option("-k", "--k", min=1, max=1000, help="Number of items.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Show the work of each stage, and the rules that apply to each item.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask for recommendations for a user. The answer is logged like any other."""
    http = client(ctx)
    question = {"user": entity_id(http, name, user, "user"), "k": k}
    answer = http.post(paths.recommend(name), question, **({"explain": "true"} if explain else {}))
    if as_json:
        show_json(answer)
        return
    fallback = f", fallback: {answer['fallback']}" if answer["fallback"] else ""
    say(f"request {answer['request_id']}: version {answer['version']} ({answer['variant']}){fallback}")
    explanation = answer.get("explain")
    if explanation:
        took = ", ".join(f"{stage} {milliseconds:g} ms" for stage, milliseconds in explanation["milliseconds"].items())
        say(f"{explanation['retrieved']} candidates, {explanation['filtered']} filtered; {took}")
    why = explanation["rules"] if explanation and explanation["rules"] else [[] for _ in answer["items"]]
    rows = [
        (place, item["item"], item["score"], "; ".join(reasons))
        for place, (item, reasons) in enumerate(zip(answer["items"], why, strict=True), 1)
    ]
    columns = ("PLACE", "ITEM", "SCORE", "WHY")
    show_table(columns if explain else columns[:3], [row if explain else row[:3] for row in rows], "no items are left for this user")


def similar(
    ctx: typer.Context,
    name: Name,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Id of the item.", show_default=False)],
    k: Annotated[int, typer.Option("-k", "--k", min=1, max=1000, help="Number of items.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Ask for similar items, by the vectors of the stable version."""
    http = client(ctx)
    answer = http.post(paths.similar(name), {"item": entity_id(http, name, item, "item"), "k": k})
    if as_json:
        show_json(answer)
        return
    say(f"version {answer['version']}")
    rows = [(place, neighbour["item"], neighbour["score"]) for place, neighbour in enumerate(answer["items"], 1)]
    show_table(("PLACE", "ITEM", "SIMILARITY"), rows, "no similar items")


def events(
    ctx: typer.Context,
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON Lines: user, item, and optionally id, kind, value, revenue, request_id, at.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Send events of users. All lines are checked before the first request."""
    http = client(ctx)
    interactions = json_lines(file, partial(_interaction, name))
    if not interactions:
        http.get(paths.recommender(name))  # reports a wrong name even if the file is empty
    accepted, hits, duplicates = 0, 0, 0
    later = False
    for batch in batches(interactions, _BATCH) if interactions else ():
        try:
            answer = http.post("/v1/events", {"events": batch})
        except ReportedError as error:
            raise ReportedError(f"{error} ({accepted} lines of {file} were sent before)", error.code) from None
        accepted += answer["accepted"]
        later = later or answer["hits"] is None
        hits, duplicates = hits + (answer["hits"] or 0), duplicates + (answer["duplicates"] or 0)
    again = f", {duplicates} of them duplicates" if duplicates else ""
    if as_json:
        show_json({"accepted": accepted, "duplicates": duplicates, "hits": None if later else hits})
        return
    earned = "hits are counted in a moment" if later else f"{hits} answers became hits"
    say(f"{name}: {accepted} events accepted{again}, {earned}")


def export_events(
    ctx: typer.Context,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, as JSON Lines.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write the stored events of users to a file, which `eyas events` can send to another recommender. Page views are left out."""
    count, reported_at = 0, time.monotonic()
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("w", encoding="utf-8") as lines:
            for page in client(ctx).pages(paths.events(name)):
                lines.writelines(json.dumps(event, ensure_ascii=False) + "\n" for event in page["items"])
                count += len(page["items"])
                if time.monotonic() - reported_at > _REPORT_EVERY:
                    reported_at = time.monotonic()
                    typer.echo(f"{count} events written", err=True)
        part.replace(file)
    except OSError as error:
        raise ReportedError(f"{file}: cannot be written: {error.strerror}", Exit.WRONG) from None
    finally:
        part.unlink(missing_ok=True)
    show({"recommender": name, "events": count, "file": str(file)}, as_json, lambda _: say(f"{name}: {count} events written to {file}"))


def serving(ctx: typer.Context, watch: watching.Watch = False, as_json: AsJson = False) -> None:
    """Show the replicas of the model server and the versions that they serve."""
    http = client(ctx)
    watching.shown(lambda: http.get("/v1/serving"), _draw_serving, as_json, watch)


def _draw_serving(serving: Any) -> None:
    server = serving["server"]
    if server["fault"]:
        say(f"no Triton answers: {server['fault']}")
    rows = [(replica["name"], replica["state"], _versions(replica["versions"]), replica["fault"] or "") for replica in server["replicas"]]
    show_table(("TRITON", "STATE", "VERSIONS", "WHY"), rows, "no replicas here: another control plane places the versions")


def _versions(versions: dict[str, list[int]]) -> str:
    return ", ".join(f"{name} {' '.join(map(str, numbers))}" for name, numbers in versions.items())


def _interaction(name: str, place: str, value: Any, _: str) -> dict[str, Any]:
    from shared.contracts.events import event_model
    from shared.contracts.strict import read

    if not isinstance(value, dict):
        raise ReportedError(f'{place}: expected an object such as {{"user": 1, "item": 2}}', Exit.WRONG)
    if value.setdefault("recommender", name) != name:
        raise ReportedError(f"{place}: the event is of '{value['recommender']}', not of '{name}'", Exit.WRONG)
    return read(event_model(value), value, place).model_dump(mode="json", exclude_none=True)
