"""`items`: the catalogue, which filters of answers read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import paths
from services.cli.exit_codes import Exit
from services.cli.faults import FaultReportingGroup, ReportedError
from services.cli.files import json_lines, send_batches
from services.cli.output import AsJson, say, show, show_json, show_table, when
from services.cli.session import Name, client, entity_ids
from shared.domain.catalogue import read_write
from shared.domain.errors import Invalid

app = typer.Typer(cls=FaultReportingGroup, no_args_is_help=True, rich_markup_mode=None, help="The catalogue: items and their attributes.")

_SHOWN = 100

Item = Annotated[str, typer.Argument(metavar="ITEM", help="Id of the item.", show_default=False)]


@app.command()
def put(
    ctx: typer.Context,
    name: Name,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON Lines: item, and optionally attributes, available.", show_default=False)
    ],
    partial: Annotated[bool, typer.Option("--partial", help="Change only the given fields; null deletes an attribute.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write items. All lines are checked before the first request."""
    method, path, http = "POST" if partial else "PUT", paths.items(name), client(ctx)
    totals = send_batches(json_lines(file, _checked), lambda batch: http.lines(method, path, batch), "item", file)
    summary = f"{name}: {totals['accepted']} items written, {totals['changed']} of them changed"
    show({"accepted": totals["accepted"], "changed": totals["changed"]}, as_json, lambda _: say(summary))


@app.command()
def get(ctx: typer.Context, name: Name, item: Item, as_json: AsJson = False) -> None:
    """Show an item of the catalogue."""
    show(client(ctx).get(paths.items(name, item)), as_json, _draw_item)


def _draw_item(item: Any) -> None:
    say(f"item {item['item']}: {'available' if item['available'] else 'not available'}, changed {when(item['updated_at'])}")
    attributes = [(name, json.dumps(value, ensure_ascii=False)) for name, value in item["attributes"].items()]
    show_table(("ATTRIBUTE", "VALUE"), attributes, "no attributes")


@app.command("list")
def list_items(
    ctx: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Maximum number of items.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List items, ordered by key."""
    items: list[dict[str, Any]] = []
    cursor = None
    for page in client(ctx).pages(paths.items(name), limit):
        items += page["items"]
        cursor = page["next"]
    if as_json:
        show_json({"items": items, "next": cursor})
        return
    rows = [(item["item"], "yes" if item["available"] else "no", when(item["updated_at"]), _short(item["attributes"])) for item in items]
    show_table(("ITEM", "AVAILABLE", "CHANGED", "ATTRIBUTES"), rows, "the catalogue has no items", drop=("CHANGED", "AVAILABLE"))
    if cursor is not None:
        typer.echo("there are more items: raise --limit", err=True)


@app.command()
def delete(
    ctx: typer.Context,
    name: Name,
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Ids of the items.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Delete items. They are unavailable until they are written again."""
    http = client(ctx)
    ids = entity_ids(http, name, items, "item")
    answer = http.post(f"{paths.items(name)}:delete", {"items": ids})
    none = "" if answer["deleted"] else "; the catalogue had none of them"
    show(answer, as_json, lambda answer: say(f"{name}: {answer['deleted']} of {len(items)} items deleted{none}"))


def _short(attributes: dict[str, Any]) -> str:
    text = json.dumps(attributes, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _checked(place: str, value: Any, line: str) -> str:
    """Checks an item without the spec's declarations, which only the platform knows."""
    try:
        read_write(value, {}, lambda _: 0)
    except Invalid as error:
        raise ReportedError(f"{place}: {error}", Exit.WRONG) from None
    return line
