"""Comparison of two to four runs, side by side: settings, losses, metrics, gates and stages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from services.console import run_charts
from services.console.api import Api, Json, at
from services.console.formatting import moment
from services.console.page import Pages
from services.console.render import PageFault, fault, page
from shared.domain.metric import is_detail

pages = Pages()

_MOST = 4
_MAIN = ("candidate.", "parity", "latency", "throughput", "memory", "size", "rows.", "train.seconds", "train.rows_per_s", "train.loss")
_CANDIDATE = "candidate."


@pages.page("/runs/compare")
async def compare(request: Request, api: Api) -> Response:
    ids = list(dict.fromkeys(request.query_params.getlist("run")))
    if not 2 <= len(ids) <= _MOST:
        return fault(request, PageFault(422, "Not valid", f"Choose two to {_MOST} runs in a list of runs; {len(ids)} are chosen."))
    runs = await api.all(*(api.get(at("runs", id)) for id in ids))
    runs.sort(key=lambda run: (moment(run["created_at"]), run["id"]))
    trainings = await api.all(*(api.maybe(at("runs", run["id"], "training")) for run in runs))
    comparisons = await api.all(*(api.get(at("runs", runs[0]["id"], "compare"), with_=run["id"]) for run in runs[1:]))
    metrics = _metrics(runs)
    first = [row for row in metrics if row["metric"].startswith(_MAIN) and "{" not in row["metric"]]
    return page(
        request,
        "compare.html",
        runs=runs,
        recommender=runs[0]["recommender"],
        losses=run_charts.losses([(run["id"], training) for run, training in zip(runs, trainings, strict=True)]),
        plots=_plots(runs, first),
        first=first,
        rest=[row for row in metrics if row not in first],
        spec=_merged([comparison["spec"] for comparison in comparisons]),
        lineage=_merged([comparison["lineage"] for comparison in comparisons]),
        gates=_rows([{gate["gate"]: gate for gate in run["gates"]} for run in runs]),
        stages=_rows([{stage["stage"]: stage | {"seconds": _seconds(stage)} for stage in run["stages"]} for run in runs]),
        parts_of=_parts(comparisons),
    )


def _metrics(runs: Sequence[Json]) -> list[Json]:
    """Rows with the value of each run, and its change against the first run as a share."""
    names = sorted({name for run in runs for name in run["metrics"] if not is_detail(name)})
    rows = []
    for name in names:
        first, *_ = values = [run["metrics"].get(name) for run in runs]
        changes = [(value - first) / abs(first) if first and value is not None else None for value in values[1:]]
        rows.append({"metric": name, "cells": list(zip(values, [None, *changes], strict=True))})
    return rows


def _rows(sides: Sequence[dict[str, Json]]) -> list[tuple[str, list[Json | None]]]:
    return [(name, [side.get(name) for side in sides]) for name in dict.fromkeys(name for side in sides for name in side)]


def _seconds(stage: Json) -> float | None:
    return None if stage["reused"] else (moment(stage["ended_at"]) - moment(stage["started_at"])).total_seconds()


def _parts(comparisons: Sequence[Json]) -> dict[str, list[str]]:
    """Inputs of each stage in which any run differs from the first one."""
    parts: dict[str, set[str]] = {}
    for stage in (stage for comparison in comparisons for stage in comparison["stages"]):
        parts.setdefault(stage["stage"], set()).update(part["path"] for part in stage["parts"])
    return {stage: sorted(paths) for stage, paths in parts.items()}


def _plots(runs: Sequence[Json], rows: Sequence[Json]) -> list[tuple[str, Markup]]:
    names = [row["metric"] for row in rows if row["metric"].startswith(_CANDIDATE)]
    return run_charts.metric_plots(
        {name.removeprefix(_CANDIDATE): [run_charts.interval(run["id"], run["metrics"], name) for run in runs] for name in names}
    )


def _merged(comparisons: Sequence[Sequence[Json]]) -> list[Json]:
    """Joins the differences of each run to the first one: a row for each path, with the value of each run."""
    sides = [{difference["path"]: difference for difference in differences} for differences in comparisons]
    rows = []
    for path in sorted({path for side in sides for path in side}):
        first_value = next(side[path]["left"] for side in sides if path in side)
        rows.append(
            _flat(path, [first_value, *(side[path]["right"] if path in side else _value(side, path, first_value) for side in sides)])
        )
    return rows


def _value(side: dict[str, Json], path: str, first_value: Any) -> Any:
    """Value of a run that does not differ at this path: the first run's, unless it differs above or below it."""
    related = [other for other in side if other.startswith((f"{path}.", f"{path}[")) or path.startswith((f"{other}.", f"{other}["))]
    return f"see {', '.join(related)}" if related else first_value


def _flat(path: str, values: list[Any]) -> Json:
    """For lists, the entries that not all runs have, one on each line; nested values as JSON."""
    if all(isinstance(value, list) for value in values):
        common = [entry for entry in values[0] if all(entry in value for value in values)]
        distinct = [[entry for entry in value if entry not in common] for value in values]
        if any(distinct):
            lines = [[json.dumps(_without_nulls(entry), ensure_ascii=False) for entry in entries] for entries in distinct]
            return {"path": path, "values": lines, "kind": "lines", "same": len(common)}
    kind = "json" if any(isinstance(value, list | dict) for value in values) else "plain"
    return {"path": path, "values": values, "kind": kind, "same": 0}


def _without_nulls(entry: Any) -> Any:
    """Removes fields that are None."""
    return {name: value for name, value in entry.items() if value is not None} if isinstance(entry, dict) else entry
