"""`kpis`: what each version has earned, by variant and slice, and over time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli import paths
from services.cli.session import AsJson, Name, client, show_json, show_table, when

_SHOWN = {
    "ANSWERS": "answers",
    "HITS": "hits",
    "HIT RATE": "hit_rate",
    "CONVERSION": "conversion",
    "REVENUE": "revenue_per_answer",
    "ENGAGEMENT": "engagement",
}


def kpis(
    ctx: typer.Context,
    name: Name,
    window: Annotated[str, typer.Option(help="Such as 30m, 6h or 7d.")] = "1h",
    parts: Annotated[bool, typer.Option("--parts", help="By variant and slice, too.")] = False,
    series: Annotated[bool, typer.Option("--series", help="Windows that end a step apart, instead of the newest alone.")] = False,
    step: Annotated[str, typer.Option(help="Of the series; a window is a whole number of them.")] = "5m",
    points: Annotated[int, typer.Option(min=1, max=500, help="Of the series: so many windows.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Show what each version has earned lately."""
    if series:
        _series(client(ctx).get(paths.recommender(name, "/kpis/series"), window=window, step=step, points=points), as_json)
        return
    found = client(ctx).get(paths.recommender(name, "/kpis"), window=window)
    if as_json:
        show_json(found)
        return
    rows = []
    for one in found["versions"]:
        rows.append((one["version"], "", *_rates(one), _said(one["coverage"]), _said(one["novelty"])))
        apart = [*one["variants"].items(), *one["slices"].items()] if parts else []
        rows += [(one["version"], part, *_rates(rates), "", "") for part, rates in apart]
    columns = ("VERSION", "PART", *_SHOWN, "COVERAGE", "NOVELTY")
    show_table(columns, rows, f"no answers whose attribution window has closed in the last {window}")


def _series(found: Any, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    rows: list[tuple[Any, ...]] = [
        (when(one["ends"]), line["version"], *_rates(one)) for line in found["versions"] for one in line["points"]
    ]
    show_table(("ENDS", "VERSION", *_SHOWN), sorted(rows), "no answers in any of these windows")


def _rates(one: Any) -> tuple[Any, ...]:
    return tuple(one[column] for column in _SHOWN.values())


def _said(value: float | None) -> Any:
    return "" if value is None else value
