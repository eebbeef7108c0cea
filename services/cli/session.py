"""Shared by the commands: the client from the global options, and common arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.completing import names
from services.cli.home import ClientSession
from services.cli.paths import checked_name

if TYPE_CHECKING:
    from services.cli.client import Client

Name = Annotated[
    str, typer.Argument(metavar="NAME", callback=checked_name, autocompletion=names, help="Name of the recommender.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", help="Reason, for the history.", show_default=False)]


def client(ctx: typer.Context) -> Client:
    session = ctx.find_object(ClientSession) or ClientSession()
    http = session.client()
    ctx.call_on_close(http.close)
    return http
