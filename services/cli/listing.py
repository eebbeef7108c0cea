"""`recommenders`, `overview`: lists of all recommenders, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from services.cli import watching
from services.cli.output import AsJson, say, show_table, when
from services.cli.session import client

Prefix = Annotated[str | None, typer.Option(help="Show only names with this prefix.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, max=200, help="Maximum number of recommenders.")]


def recommenders(
    ctx: typer.Context, prefix: Prefix = None, limit: Limit = 50, watch: watching.Watch = False, as_json: AsJson = False
) -> None:
    """List recommenders by name, with the version that serves."""
    _APPLIED.show(ctx, prefix, limit, watch, as_json)


def overview(ctx: typer.Context, prefix: Prefix = None, limit: Limit = 50, watch: watching.Watch = False, as_json: AsJson = False) -> None:
    """Show the serving version, hit rate, drift and active runs and rollouts of each recommender."""
    _FARING.show(ctx, prefix, limit, watch, as_json)


@dataclass(frozen=True)
class _List:
    path: str
    columns: Sequence[str]
    row: Callable[[Any], Sequence[Any]]
    drop: Sequence[str]

    def show(self, ctx: typer.Context, prefix: str | None, limit: int, watch: bool, as_json: bool) -> None:
        http = client(ctx)

        def draw(page: Any) -> None:
            begins = f" begins with '{prefix}'" if prefix else " exists yet: create one with eyas apply FILE"
            show_table(self.columns, [self.row(recommender) for recommender in page["items"]], f"no recommender{begins}", drop=self.drop)
            if page["next"]:
                say(f"there are more than {limit}: raise --limit or set --prefix")

        watching.shown(lambda: http.get(self.path, prefix=prefix, limit=limit), draw, as_json, watch)


def _applied(recommender: Any) -> Sequence[Any]:
    route = recommender["serving"]
    candidate = f"{route['candidate']} at {route['weight']:.4g}" if route and route["candidate"] else ""
    return (
        recommender["name"],
        _served(route),
        candidate,
        recommender["generation"],
        when(recommender["created_at"]),
        when(recommender["updated_at"]),
    )


def _faring(recommender: Any) -> Sequence[Any]:
    last, busy = recommender["last"], recommender["under_way"]
    earned = f"{last['hit_rate']:.1%} ({last['low']:.1%} to {last['high']:.1%})" if last else ""
    under_way = ", ".join(f"{task['kind']} {task['id']}: {task['state'].replace('_', ' ')}" for task in busy)
    return (
        recommender["name"],
        _served(recommender["serving"]),
        earned,
        when(recommender["newest"]),
        recommender["drift"]["state"],
        under_way,
    )


def _served(route: Any) -> str:
    return f"version {route['stable']}" if route else "nothing yet"


_APPLIED = _List(
    "/v1/recommenders",
    ("NAME", "SERVES", "CANDIDATE", "GENERATION", "CREATED", "SPEC CHANGED"),
    _applied,
    drop=("CREATED", "GENERATION", "SPEC CHANGED", "CANDIDATE"),
)
_FARING = _List(
    "/v1/overview", ("NAME", "SERVES", "HIT RATE", "NEWEST ANSWER", "DRIFT", "ACTIVE"), _faring, drop=("NEWEST ANSWER", "DRIFT")
)
