"""Drift of a recommender against the first days of the serving version, and its retraining triggers."""

from __future__ import annotations

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json, at
from services.console.charts import bars
from services.console.page import Pages
from services.console.render import page

pages = Pages()


@pages.page("/recommenders/{name}/drift")
async def drift(request: Request, api: Api) -> Response:
    name = request.path_params["name"]
    drift, triggers = await api.all(api.get(at("recommenders", name, "drift")), api.get(at("recommenders", name, "triggers")))
    rows = [reading | {"state": _state(reading)} for reading in sorted(drift["readings"], key=_rank)]
    drawn = [row | {"picture": _picture(row)} for row in rows if row["shares"]]
    missing = drift["wanted"] - drift["likes"] if drift["wanted"] is not None and drift["likes"] is not None else None
    return page(
        request,
        "drift.html",
        every=10,
        name=name,
        drift=drift,
        rows=rows,
        drawn=drawn,
        triggers=triggers,
        missing=missing,
        answer=_answer(drift),
    )


def _rank(reading: Json) -> tuple[bool, float]:
    """Sorts drifted readings first, then by size relative to the threshold."""
    return not reading["stands"], -(reading["size"] / reading["threshold"] if reading["threshold"] else 0.0)


def _answer(drift: Json) -> tuple[str, str]:
    """Summary sentence and its colour."""
    if drift["version"] is None:
        return "Drift is not known yet.", "hint"
    standing = [reading["feature"] for reading in drift["readings"] if reading["stands"]]
    if standing:
        return f"Drift since version {drift['version']} began to serve: {', '.join(standing)}.", "wrong"
    coming = [reading["feature"] for reading in drift["readings"] if _state(reading) == "unconfirmed"]
    if coming:
        return f"Possible drift: {', '.join(coming)} beyond the threshold, but not yet in enough consecutive looks.", "hint"
    return f"No drift since version {drift['version']} began to serve.", "said"


def _state(reading: Json) -> str:
    """State of a reading. `unconfirmed`: beyond its threshold, but for too few looks in a row."""
    if reading["stands"]:
        return "drift"
    if reading["threshold"] is None:
        return "no threshold"
    return "unconfirmed" if reading["size"] >= reading["threshold"] and reading["chance"] <= reading["limit"] else "no drift"


def _picture(reading: Json) -> Markup:
    rows = [(share["value"], share["before"], share["after"]) for share in reading["shares"]]
    label = f"Shares of {len(rows)} values of {reading['feature']} among positives, before and now; the table has the numbers"
    return bars(rows, label, ("before", "now"))
