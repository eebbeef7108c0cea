"""What users like now, held against the first days of the version that serves; and what retrains it."""

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
    found, triggers = await api.all(api.get(at("recommenders", name, "drift")), api.get(at("recommenders", name, "triggers")))
    rows = [one | {"state": _state(one)} for one in sorted(found["readings"], key=_rank)]
    drawn = [one | {"picture": _picture(one)} for one in rows if one["shares"]]
    missing = found["wanted"] - found["likes"] if found["wanted"] is not None and found["likes"] is not None else None
    return page(
        request,
        "drift.html",
        every=10,
        name=name,
        drift=found,
        rows=rows,
        drawn=drawn,
        triggers=triggers,
        missing=missing,
        answer=_answer(found),
    )


def _rank(one: Json) -> tuple[bool, float]:
    """Those that count first, then by how near they come to their threshold."""
    return not one["stands"], -(one["size"] / one["threshold"] if one["threshold"] else 0.0)


def _answer(found: Json) -> tuple[str, str]:
    """In one sentence, and its colour."""
    if found["version"] is None:
        return "Nothing is known yet.", "hint"
    standing = [one["feature"] for one in found["readings"] if one["stands"]]
    if standing:
        return f"What users like has moved since version {found['version']} began to serve: {', '.join(standing)}.", "wrong"
    coming = [one["feature"] for one in found["readings"] if _state(one) == "waiting"]
    if coming:
        return f"Perhaps: {', '.join(coming)} moved beyond the threshold, but not yet for as many looks in a row as it takes.", "hint"
    return f"Users like what they liked when version {found['version']} began to serve.", "said"


def _state(one: Json) -> str:
    """`waiting`: beyond its threshold, and not yet for as many looks in a row as it takes."""
    if one["stands"]:
        return "drifted"
    if one["threshold"] is None:
        return "watched"
    return "waiting" if one["size"] >= one["threshold"] and one["chance"] <= one["limit"] else "steady"


def _picture(one: Json) -> Markup:
    rows = [(share["value"], share["before"], share["after"]) for share in one["shares"]]
    label = f"Shares of {len(rows)} values of {one['feature']} among what users liked at first, and now; the table has the numbers"
    return bars(rows, label, ("at first", "now"))
