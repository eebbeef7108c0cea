"""Shared by the commands: the client from the global options, and common arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from services.cli.completing import names
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.home import ClientSession
from services.cli.paths import checked_name, recommender
from shared.domain.entity_ids import Id, read_id
from shared.domain.errors import Invalid

if TYPE_CHECKING:
    from services.cli.client import Client

Name = Annotated[
    str, typer.Argument(metavar="NAME", callback=checked_name, autocompletion=names, help="Name of the recommender.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", help="Reason, for the history.", show_default=False)]


def entity_id(http: Client, name: str, text: str, entity: Literal["user", "item"]) -> Id:
    (id,) = entity_ids(http, name, [text], entity)
    return id


def entity_ids(http: Client, name: str, texts: Sequence[str], entity: Literal["user", "item"]) -> list[Id]:
    """Reads ids of the command line by the recommender's kind of ids; a client's token does not see the kind."""
    try:
        kind = http.get(recommender(name)).get("ids", {}).get(entity)
    except ReportedError as error:
        if error.code != Exit.WRONG:
            raise
        kind = None
    try:
        return [read_id(text, kind) for text in texts]
    except Invalid as error:
        raise ReportedError(f"{entity}: {error}", Exit.WRONG) from None


def client(ctx: typer.Context) -> Client:
    session = ctx.find_object(ClientSession) or ClientSession()
    http = session.client()
    ctx.call_on_close(http.close)
    return http
