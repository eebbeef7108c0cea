"""`open`: the console's address of a recommender, run or rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.cli import completing, paths
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.output import AsJson, show, show_text
from services.cli.session import client

if TYPE_CHECKING:
    from services.cli.client import Client

_PLACES = ("recommenders", "runs", "rollouts")


def open_(
    ctx: typer.Context,
    name_or_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[WHAT]",
            callback=paths.checked_id_or_none,
            autocompletion=completing.names,
            help="Name of a recommender, or id of a run or rollout. Default: the first page.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser", help="Open the page in a browser too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the console's address, or the address of a recommender, run or rollout in the console."""
    http = client(ctx)
    place = "" if name_or_id is None else f"{_place(http, name_or_id)}/{name_or_id}"
    link = {"url": f"{http.url}/{place}"}
    show(link, as_json, lambda link: show_text(link["url"]))
    if browser:
        import webbrowser

        if not webbrowser.open(link["url"]):
            raise ReportedError("cannot open a browser here: open the address above elsewhere", Exit.NO)


def _place(http: Client, name_or_id: str) -> str:
    """Looks the text up as a name, then as the id of a run, then of a rollout."""
    for place in _PLACES:
        if http.knows(f"/v1/{place}/{name_or_id}"):
            return place
    raise ReportedError(
        f"no recommender, run or rollout '{name_or_id}': list them with `eyas recommenders` and `eyas runs NAME`", Exit.WRONG
    )
