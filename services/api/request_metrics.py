"""Metrics of requests to the control plane. The alerts on its error and latency budgets use them (docs/how-to/operate.md)."""

from __future__ import annotations

import time
from typing import Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.access import RoleRoute
from services.api.rate_limits import BULK, HEAVY
from shared.telemetry import metrics

Kind = Literal["read", "write", "long"]
OUTCOMES = ("ok", "refused", "error")

_API = "/v1/"
_ONLINE = ("/v1/recommend/", "/v1/score/", "/v1/similar/")
_EVENTS = "/v1/events"
_LONG = frozenset({"/v1/runs/{id}/stream", "/v1/runs/{id}/logs/stream", "/v1/events/{name}", "/v1/users/{id}"})
"""Streams, exports and the deletion of a user: their duration depends on the amount of data."""
_LONG_WORK = (HEAVY, BULK)
_TIMED: tuple[Kind, ...] = ("read", "write")


class RequestMetrics:
    """Outermost middleware of a control plane. Counts each request by kind and outcome, and measures its duration until the last byte.

    Online routes and health are not counted. A request whose client leaves before the answer starts is not counted either.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_control(scope["path"]):
            await self._app(scope, receive, send)
            return
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        try:
            await self._app(scope, receive, watched)
        except Exception:
            status = 500  # also an answer that breaks off
            raise
        finally:
            if status:
                _count(kind_of(scope), status, time.perf_counter() - began)


def create_series() -> None:
    """Each series starts at 0: a rate misses the first event of a series that starts with it."""
    for kind in (*_TIMED, "long"):
        for outcome in OUTCOMES:
            metrics.API_REQUESTS.labels(kind, outcome)
    for kind in _TIMED:
        metrics.API_SECONDS.labels(kind)


def is_control(path: str) -> bool:
    return path.startswith(_API) and not path.startswith(_ONLINE) and path != _EVENTS


def kind_of(scope: Scope) -> Kind:
    """Without a route (a token that is refused, an unknown path) the method decides."""
    route = scope.get("route")
    if isinstance(route, RoleRoute) and (route.path_format in _LONG or route.work in _LONG_WORK):
        return "long"
    return "read" if scope["method"] in ("GET", "HEAD") else "write"


def _count(kind: Kind, status: int, seconds: float) -> None:
    outcome = "error" if status >= 500 else "refused" if status >= 400 else "ok"
    metrics.API_REQUESTS.labels(kind, outcome).inc()
    if outcome == "ok" and kind in _TIMED:
        metrics.API_SECONDS.labels(kind).observe(seconds)
