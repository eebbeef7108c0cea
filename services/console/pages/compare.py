"""Comparison of two runs: settings and metrics."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json, at
from services.console.page import Pages
from services.console.render import page
from shared.domain.metric import is_detail
from shared.domain.segments import way

pages = Pages()

_CHOICE = 25
_MAIN = ("candidate.", "parity", "latency", "throughput", "memory", "size", "rows.", "train.seconds", "train.rows_per_s", "train.loss")


@pages.page("/runs/{id}/compare")
async def compare(request: Request, api: Api) -> Response:
    id, other = request.path_params["id"], request.query_params.get("with", "").strip()
    if not other:
        run = await api.get(at("runs", id))
        recent = await api.get(at("recommenders", run["recommender"], "runs"), limit=_CHOICE)
        context = {
            "comparison": None,
            "recommender": run["recommender"],
            "recent": [other_run for other_run in recent["items"] if other_run["id"] != id],
        }
        return page(request, "compare.html", id=id, at=way("runs", id), **context)
    comparison = await api.get(at("runs", id, "compare"), with_=other)
    metrics = [metric for metric in comparison["metrics"] if not is_detail(metric["metric"])]
    first = [metric for metric in metrics if metric["metric"].startswith(_MAIN) and "{" not in metric["metric"]]
    return page(
        request,
        "compare.html",
        id=id,
        at=way("runs", id),
        comparison=comparison,
        recommender=comparison["left"]["recommender"],
        recent=[],
        first=first,
        rest=[metric for metric in metrics if metric not in first],
        spec=[_flat(difference) for difference in comparison["spec"]],
        lineage=[_flat(difference) for difference in comparison["lineage"]],
    )


def _flat(difference: Json) -> dict[str, Any]:
    """For lists, the entries of only one side, one on each line; nested values as JSON."""
    left, right = difference["left"], difference["right"]
    if isinstance(left, list) and isinstance(right, list):
        alone = {"left": [entry for entry in left if entry not in right], "right": [entry for entry in right if entry not in left]}
        if any(alone.values()):
            lines = {side: [json.dumps(_without_nulls(entry), ensure_ascii=False) for entry in entries] for side, entries in alone.items()}
            return {"path": difference["path"], **lines, "kind": "lines", "same": len(left) - len(alone["left"])}
    return {
        "path": difference["path"],
        "left": left,
        "right": right,
        "kind": "json" if _nested(left) or _nested(right) else "plain",
        "same": 0,
    }


def _without_nulls(entry: Any) -> Any:
    """Removes fields that are None."""
    return {name: value for name, value in entry.items() if value is not None} if isinstance(entry, dict) else entry


def _nested(value: Any) -> bool:
    return isinstance(value, list | dict)
