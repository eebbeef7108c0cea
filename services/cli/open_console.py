"""`open`: the console's address of a recommender, run or rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.cli import completing, paths
from services.cli.exit_codes import Exit
from services.cli.faults import Refused
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
            help="A recommender's name, a run's id or a rollout's; the first page when absent.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser", help="Open it in a browser, too.")] = False,
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
            raise Refused("no browser can be opened here: take the address above to one", Exit.NO)


def _place(http: Client, name_or_id: str) -> str:
    """Looks the text up as a name, then as the id of a run, then of a rollout."""
    for place in _PLACES:
        if http.knows(f"/v1/{place}/{name_or_id}"):
            return place
    raise Refused(
        f"no recommender, run or rollout is called '{name_or_id}': `eyas recommenders` and `eyas runs NAME` list them", Exit.WRONG
    )
