"""`overview`: how every recommender fares."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli import watching
from services.cli.recommenders import none_begins
from services.cli.session import client
from services.cli.shown import AsJson, say, show_table, when

_TELLING = 30
"""Users of a stretch, from which on its hit rate is shown: a few users' luck is none."""


def overview(
    ctx: typer.Context,
    prefix: Annotated[str | None, typer.Option(help="Of names that begin so.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """Show what serves, what it earns, whether tastes drift and what is under way, of every recommender."""
    http = client(ctx)

    def draw(found: Any) -> None:
        rows = [
            (
                one["name"],
                _served(one["serving"]),
                _earned(one["points"]),
                when(one["newest"]),
                one["drift"]["state"],
                _busy(one["under_way"]),
            )
            for one in found["items"]
        ]
        columns = ("NAME", "SERVES", "HIT RATE", "NEWEST ANSWER", "TASTES", "UNDER WAY")
        show_table(columns, rows, none_begins(prefix), drop=("NEWEST ANSWER", "TASTES"))
        if found["next"]:
            say(f"there are more than {limit}: ask for them with --limit or --prefix")

    watching.shown(lambda: http.get("/v1/overview", prefix=prefix, limit=limit), draw, as_json, watch)


def _served(route: Any) -> str:
    return "nothing yet" if route is None else f"version {route['stable']}"


def _earned(points: Any) -> str:
    """Of the newest stretch of time in which users enough answered."""
    telling = [one for one in points if one["users"] >= _TELLING]
    if not telling:
        return ""
    last = telling[-1]
    return f"{last['hit_rate']:.1%} ({last['low']:.1%} to {last['high']:.1%})"


def _busy(found: Any) -> str:
    return ", ".join(f"{one['kind']} {one['id']}: {one['state'].replace('_', ' ')}" for one in found)
