"""Home page: the serving version, hit rate, drift and active runs and rollouts of each recommender."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json
from services.console.page import Pages
from services.console.render import page
from services.console.status_badges import drawn, light, under_way

pages = Pages()

_ROWS = 20
_POINTS = 24
_WINDOW = "7d"
"""Span of the small line chart."""


@pages.page("/")
async def home(request: Request, api: Api) -> Response:
    query = request.query_params
    prefix = query.get("prefix", "").strip() or None
    overview = await api.get("/v1/overview", limit=_ROWS, cursor=query.get("cursor"), prefix=prefix, window=_WINDOW, points=_POINTS)
    rows = [_row(recommender) for recommender in overview["items"]]
    busy = any(row["under_way"] for row in rows)
    more = urlencode({"prefix": prefix}) if prefix else ""
    return page(request, "home.html", every=5 if busy else 10, rows=rows, next=overview["next"], prefix=prefix or "", more=more)


def _row(recommender: Json) -> Json:
    return {
        "name": recommender["name"],
        "version": recommender["serving"]["stable"] if recommender["serving"] else None,
        "rates": [point["hit_rate"] for point in drawn(recommender["points"])],
        "last": recommender["last"],
        "newest": recommender["newest"],
        "drift": light(recommender["drift"]),
        "under_way": [shown for busy in recommender["under_way"] for shown in under_way(busy["kind"], [busy])],
    }
