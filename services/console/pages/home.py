"""Home: every recommender in a line. What serves, what it earns, whether tastes drift, what is under way."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json
from services.console.lights import drawn, light, under_way
from services.console.page import Pages
from services.console.render import page

pages = Pages()

_ROWS = 20
_POINTS = 24
_WINDOW = "7d"
"""Of the small line: the last week that it was asked in, or all of its life if that is shorter."""


@pages.page("/")
async def home(request: Request, api: Api) -> Response:
    asked = request.query_params
    prefix = asked.get("prefix", "").strip() or None
    found = await api.get("/v1/overview", limit=_ROWS, cursor=asked.get("cursor"), prefix=prefix, window=_WINDOW, points=_POINTS)
    rows = [_row(one) for one in found["items"]]
    busy = any(row["under_way"] for row in rows)
    more = urlencode({"prefix": prefix}) if prefix else ""
    return page(request, "home.html", every=5 if busy else 10, rows=rows, next=found["next"], prefix=prefix or "", more=more)


def _row(one: Json) -> Json:
    return {
        "name": one["name"],
        "version": one["serving"]["stable"] if one["serving"] else None,
        "rates": [point["hit_rate"] for point in drawn(one["points"])],
        "last": one["last"],
        "newest": one["newest"],
        "drift": light(one["drift"]),
        "under_way": [shown for busy in one["under_way"] for shown in under_way(busy["kind"], [busy])],
    }
