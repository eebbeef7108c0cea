"""What the commands share: the client made out of the global options, and the arguments that many of them take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.completing import names
from services.cli.home import default_home, endpoint, token, usable
from services.cli.paths import checked_name

if TYPE_CHECKING:
    from services.cli.client import Client

Name = Annotated[
    str, typer.Argument(metavar="NAME", callback=checked_name, autocompletion=names, help="The recommender's name.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", help="Goes into the history.", show_default=False)]


@dataclass(frozen=True)
class Session:
    url: str | None = None
    token_file: Path | None = None
    token: str | None = None

    def client(self, seconds: float | None = None) -> Client:
        """`seconds`: how long it waits at most, where an answer is worth little."""
        from services.cli.client import Client

        home = default_home()
        url = self.url or endpoint(home)
        secret = usable(self.token, "--token or EYAS_TOKEN") if self.token else token(self.token_file or home / "token")
        return Client(url, secret) if seconds is None else Client(url, secret, seconds=seconds)


def client(ctx: typer.Context) -> Client:
    session = ctx.find_object(Session) or Session()
    http = session.client()
    ctx.call_on_close(http.close)
    return http
