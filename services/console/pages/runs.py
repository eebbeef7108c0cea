"""Lists of runs, of all recommenders or of one: active runs, the queue, and ended runs with reasons."""

from __future__ import annotations

from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, ApiProblem, at
from services.console.page import Pages
from services.console.render import page
from services.console.run_summary import ENDED
from shared.domain.run import STAGES

pages = Pages()

_ROWS = 25
_UNDER_WAY = ("pending", *STAGES)
_STATES = (*_UNDER_WAY, "registered", "rejected", "failed", "cancelled")


@pages.page("/runs")
async def runs(request: Request, api: Api) -> Response:
    return await _list(request, api, None)


@pages.page("/recommenders/{name}/runs")
async def runs_of(request: Request, api: Api) -> Response:
    return await _list(request, api, request.path_params["name"])


async def _list(request: Request, api: Api, name: str | None) -> Response:
    """`state` is a state of the API, or `active` for all runs that have not ended."""
    query = request.query_params
    state, since, recommender = query.get("state", ""), _day(query.get("since", "")), query.get("recommender", "").strip()
    dead = "true" if query.get("dead") else None
    states = _UNDER_WAY if state == "active" else [state] if state else None
    filters = {
        "state": states,
        "since": f"{since}T00:00:00Z" if since else None,
        "dead_letter": dead,
        "limit": _ROWS,
        "cursor": query.get("cursor"),
    }
    if name is None:
        listing = await api.get("/v1/runs", recommender=recommender or None, **filters)
    else:
        listing = await api.get(at("recommenders", name, "runs"), **filters)
    form_values = {"state": state, "since": since, "recommender": "" if name else recommender, "dead": "1" if dead else ""}
    return page(
        request,
        "runs.html",
        every=3 if any(run["state"] not in ENDED for run in listing["items"]) else 10,
        name=name,
        runs=listing["items"],
        next=listing["next"],
        states=_STATES,
        form_values=form_values,
        chosen=query.getlist("run"),
        narrowed=any(form_values.values()),
    )


def _day(text: str) -> str:
    """Checks the form's date field, which may be empty."""
    try:
        return f"{datetime.strptime(text, '%Y-%m-%d').date()}" if text else ""
    except ValueError:
        raise ApiProblem(422, f"since: {text[:40]!r} is not a date; write it as 2026-01-31") from None
