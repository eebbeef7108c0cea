"""In what two runs differ, and what that made of their figures."""

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
        known = {"found": None, "recommender": run["recommender"], "recent": [one for one in recent["items"] if one["id"] != id]}
        return page(request, "compare.html", id=id, at=way("runs", id), **known)
    found = await api.get(at("runs", id, "compare"), with_=other)
    metrics = [one for one in found["metrics"] if not is_detail(one["metric"])]
    first = [one for one in metrics if one["metric"].startswith(_MAIN) and "{" not in one["metric"]]
    return page(
        request,
        "compare.html",
        id=id,
        at=way("runs", id),
        found=found,
        recommender=found["left"]["recommender"],
        recent=[],
        first=first,
        rest=[one for one in metrics if one not in first],
        spec=[_flat(one) for one in found["spec"]],
        lineage=[_flat(one) for one in found["lineage"]],
    )


def _flat(one: Json) -> dict[str, Any]:
    """Of lists what only one side has, an entry a line; mappings as JSON."""
    left, right = one["left"], one["right"]
    if isinstance(left, list) and isinstance(right, list):
        alone = {"left": [entry for entry in left if entry not in right], "right": [entry for entry in right if entry not in left]}
        if any(alone.values()):
            lines = {side: [json.dumps(_said(entry), ensure_ascii=False) for entry in entries] for side, entries in alone.items()}
            return {"path": one["path"], **lines, "kind": "lines", "same": len(left) - len(alone["left"])}
    return {"path": one["path"], "left": left, "right": right, "kind": "json" if _nested(left) or _nested(right) else "plain", "same": 0}


def _said(entry: Any) -> Any:
    """Without what it doesn't say."""
    return {name: value for name, value in entry.items() if value is not None} if isinstance(entry, dict) else entry


def _nested(value: Any) -> bool:
    return isinstance(value, list | dict)
