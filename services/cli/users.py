"""The command `forget-user`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli import paths
from services.cli.output import AsJson, say, show, when
from services.cli.session import client


def forget_user(
    ctx: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.", show_default=False)],
    recommender: Annotated[str | None, typer.Option(help="Forget the user in this recommender only.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a user: delete its data, leave it out of later trainings, and collect the versions that may have learned from it by a
    deadline."""
    path = paths.user(user)
    if not yes:
        typer.confirm(f"Forget this user in {recommender or 'all recommenders'}? Its data is deleted at once", abort=True, err=True)
    show(client(ctx).delete(path, recommender=recommender), as_json, _draw)


def _draw(answer: Any) -> None:
    for forgotten in answer["recommenders"]:
        counts = ", ".join(f"{forgotten[name]:,} {name.replace('_', ' ')}" for name in ("interactions", "impressions", "feature_values"))
        say(f"{forgotten['recommender']}: deleted {counts}")
        if forgotten["versions"]:
            numbers = ", ".join(map(str, forgotten["versions"]))
            say(f"versions {numbers} may know the user until {when(forgotten['collected_by'])}; a serving one stays: start a full run")
