"""Home: every recommender in a line. What serves, what it earns, whether tastes drift, what is under way."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json, at
from services.console.lights import drawn, earns, light, points_of, under_way
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
    found = await api.get("/v1/recommenders", limit=_ROWS, cursor=asked.get("cursor"), prefix=prefix)
    rows = await api.all(*(_row(api, one) for one in found["items"]))
    busy = any(row["under_way"] for row in rows)
    more = urlencode({"prefix": prefix}) if prefix else ""
    return page(request, "home.html", every=5 if busy else 10, rows=rows, next=found["next"], prefix=prefix or "", more=more)


async def _row(api: Api, one: Json) -> Json:
    name = one["name"]
    serving = one["serving"]["stable"] if one["serving"] else None
    life, drift, runs, rollouts = await api.all(
        api.get(at("recommenders", name, "life"), window=_WINDOW, points=_POINTS),
        api.get(at("recommenders", name, "drift")),
        api.get(at("recommenders", name, "runs"), limit=1),
        api.get(at("recommenders", name, "rollouts"), limit=1),
    )
    return {
        "name": name,
        "version": serving,
        "rates": [point["hit_rate"] for point in drawn(points_of(life, serving))],
        "last": earns(life, serving),
        "newest": life["newest"],
        "drift": light(drift),
        "under_way": under_way(runs, rollouts),
    }
