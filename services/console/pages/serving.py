"""Serving page: replicas of the model server, gateways, routes and the latency of each stage."""

from __future__ import annotations

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json
from services.console.formatting import moment, now
from services.console.page import Pages
from services.console.render import page

pages = Pages()

_ROWS = 50
_VERSIONS = 12
_SILENT = timedelta(seconds=3)
"""Rollouts do not wait for a gateway that was silent for this long."""


@pages.page("/serving")
async def serving(request: Request, api: Api) -> Response:
    wanted, after = request.query_params.get("recommender", "").strip(), request.query_params.get("after", "")
    serving = await api.get("/v1/serving")
    routes = serving["routes"]
    recommender = wanted if wanted in routes else None
    latency = await api.get("/v1/serving/latency", recommender=recommender)
    names = [name for name in sorted(routes) if name.startswith(wanted) and name > after]
    return page(
        request,
        "serving.html",
        every=5,
        server=serving["server"],
        replicas=[_replica(replica) for replica in serving["server"]["replicas"]],
        gateways=[_gateway(gateway) for gateway in serving["gateways"]],
        latency=latency,
        slowest=max((stage["p99"] for stage in latency["stages"]), default=0.0),
        rows=[{"name": name, **routes[name], "answered": serving["successes"].get(name, {})} for name in names[:_ROWS]],
        next=names[_ROWS - 1] if len(names) > _ROWS else None,
        count=len(routes),
        wanted=wanted,
        recommender=recommender,
    )


def _replica(replica: Json) -> Json:
    versions = [f"{name} {number}" for name, numbers in sorted(replica["versions"].items()) for number in numbers]
    return {**replica, "versions": versions[:_VERSIONS], "more": len(versions) - _VERSIONS}


def _gateway(gateway: Json) -> Json:
    heard = moment(gateway["heard_at"])
    silent = heard is None or now() - heard > _SILENT
    state = "silent" if silent else "behind" if gateway["behind"] else "up to date"
    return {**gateway, "state": state, "behind": gateway["behind"][:_VERSIONS], "more": len(gateway["behind"]) - _VERSIONS}
