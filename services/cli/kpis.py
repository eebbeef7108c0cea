"""`kpis`: KPIs of each version, by variant and slice, and over time."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from services.cli import paths, watching
from services.cli.output import AsJson, show_table, when
from services.cli.session import Name, client

_SHOWN = {
    "ANSWERS": "answers",
    "HITS": "hits",
    "HIT RATE": "hit_rate",
    "CONVERSION": "conversion",
    "REVENUE": "revenue_per_answer",
    "ENGAGEMENT": "engagement",
}
_LEAST = ("ENGAGEMENT", "REVENUE", "CONVERSION", "HITS")


def kpis(  # noqa: PLR0913, PLR0917  the options of a command
    ctx: typer.Context,
    name: Name,
    window: Annotated[str, typer.Option(help="Length of the window, such as 30m, 6h or 7d.")] = "1h",
    parts: Annotated[bool, typer.Option("--parts", help="Show variants and slices too.")] = False,
    series: Annotated[bool, typer.Option("--series", help="Show a series of windows instead of the newest window.")] = False,
    step: Annotated[str, typer.Option(help="Step of the series; the window must be a multiple of it.")] = "5m",
    points: Annotated[int, typer.Option(min=1, max=500, help="Number of windows in the series.")] = 12,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """Show recent KPIs of each version."""
    http = client(ctx)
    if series:
        ask = partial(http.get, paths.recommender(name, "/kpis/series"), window=window, step=step, points=points)
        watching.shown(ask, _draw_series, as_json, watch)
    else:
        draw = partial(_draw, window, parts)
        watching.shown(partial(http.get, paths.recommender(name, "/kpis"), window=window), draw, as_json, watch)


def _draw(window: str, parts: bool, answer: Any) -> None:
    rows = []
    for version in answer["versions"]:
        rows.append((version["version"], "", *_rates(version), _blank_if_none(version["coverage"]), _blank_if_none(version["novelty"])))
        apart = [*version["variants"].items(), *version["slices"].items()] if parts else []
        rows += [(version["version"], part, *_rates(rates), "", "") for part, rates in apart]
    columns = ("VERSION", "PART", *_SHOWN, "COVERAGE", "NOVELTY")
    show_table(columns, rows, f"no answers whose attribution window has closed in the last {window}", drop=("NOVELTY", "COVERAGE", *_LEAST))


def _draw_series(answer: Any) -> None:
    rows: list[tuple[Any, ...]] = [
        (when(point["ends"]), line["version"], *_rates(point)) for line in answer["versions"] for point in line["points"]
    ]
    show_table(("ENDS", "VERSION", *_SHOWN), sorted(rows), "no answers in any of these windows", drop=_LEAST)


def _rates(metrics: Any) -> tuple[Any, ...]:
    return tuple(metrics[column] for column in _SHOWN.values())


def _blank_if_none(value: float | None) -> Any:
    return "" if value is None else value
